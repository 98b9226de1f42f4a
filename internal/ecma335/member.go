package ecma335

// A Member is a field or a method, as an instruction names it.
type Member struct {
	Owner string // the type in the name, in the form of TypeName; empty: an array, a function pointer
	Name  string
	// Definition is the row of the Field or MethodDef table, for a member of this module whose type is not
	// generic; RID 0: unknown.
	Definition Token
	This       bool // of a method: the first argument is the object
	Arguments  int  // of a method, without the object
	Void       bool // of a method: no result
}

// Member returns the member behind a token of an instruction: Field, MethodDef, MemberRef, MethodSpec or, for a
// function pointer, StandAloneSig.
func (m *Metadata) Member(t Token) (*Member, error) {
	switch t.Table() {
	case TableField:
		return m.fieldMember(t)
	case TableMethodDef:
		return m.methodMember(t)
	case TableMethodSpec:
		spec, err := m.MethodSpec(t.RID())
		if err != nil {
			return nil, err
		}
		if spec.Method.Table() == TableMethodSpec {
			return nil, malformed("%v is an instance of an instance", t)
		}
		return m.Member(spec.Method)
	case TableMemberRef:
		return m.referredMember(t)
	case TableStandAloneSig:
		const signature = 0 // II.22.36
		at, err := m.Cell(TableStandAloneSig, t.RID(), signature)
		if err != nil {
			return nil, err
		}
		sig, err := m.Blob(at)
		if err != nil {
			return nil, err
		}
		out := &Member{}
		return out, out.sign(sig)
	}
	return nil, malformed("%v is no member", t)
}

func (m *Metadata) fieldMember(t Token) (*Member, error) {
	const name = 1 // II.22.15
	if err := m.has(TableField, t.RID()); err != nil {
		return nil, err
	}
	out := &Member{Definition: t}
	var err error
	if out.Name, err = m.stringAt(TableField, t.RID(), name); err != nil {
		return nil, err
	}
	owner, err := m.FieldOwner(t.RID())
	if err != nil {
		return nil, err
	}
	out.Owner, err = m.TypeName(owner)
	return out, err
}

func (m *Metadata) methodMember(t Token) (*Member, error) {
	def, err := m.MethodDef(t.RID())
	if err != nil {
		return nil, err
	}
	owner, err := m.MethodOwner(t.RID())
	if err != nil {
		return nil, err
	}
	out := &Member{Name: def.Name, Definition: t}
	if out.Owner, err = m.TypeName(owner); err != nil {
		return nil, err
	}
	return out, out.sign(def.Signature)
}

// fieldSignature begins the signature of a field (II.23.2.4).
const fieldSignature = 6

func (m *Metadata) referredMember(t Token) (*Member, error) {
	ref, err := m.MemberRef(t.RID())
	if err != nil {
		return nil, err
	}
	out := &Member{Name: ref.Name}
	if ref.Class.Table() == TableMethodDef { // with variable arguments
		if out, err = m.methodMember(ref.Class); err != nil {
			return nil, err
		}
	} else if owner, err := m.nameOf(ref.Class); err == nil { // else an array's
		out.Owner = owner.String()
	}
	if len(ref.Signature) > 0 && ref.Signature[0] == fieldSignature {
		return out, nil
	}
	return out, out.sign(ref.Signature)
}

// sign takes a call's effect on the stack from the signature.
func (f *Member) sign(sig []byte) error {
	s, err := DecodeMethodSig(sig)
	if err != nil {
		return err
	}
	ret := &s.Ret
	for ret.Kind == ElemCModReqd || ret.Kind == ElemCModOpt {
		ret = ret.Elem
	}
	f.This, f.Arguments, f.Void = s.HasThis && !s.ExplicitThis, len(s.Params), ret.Kind == ElemVoid
	return nil
}

// FieldOwner returns the TypeDef that declares a field: the last TypeDef whose run of fields begins at the
// field or before (II.22.37).
func (m *Metadata) FieldOwner(rid uint32) (uint32, error) {
	const fieldList = 4
	return m.owner(TableField, rid, fieldList)
}

// Methods returns the rows of a type's methods.
func (m *Metadata) Methods(typeRID uint32) ([]uint32, error) {
	if err := m.has(TableTypeDef, typeRID); err != nil {
		return nil, err
	}
	const methodList = 5
	lo, hi, err := m.run(TableTypeDef, typeRID, methodList, TableMethodDef)
	if err != nil {
		return nil, err
	}
	if hi-lo > maxMethods {
		return nil, malformed("%v declares %d methods", MakeToken(TableTypeDef, typeRID), hi-lo)
	}
	out := make([]uint32, 0, hi-lo)
	for ; lo < hi; lo++ {
		rid, err := m.listed(TableMethodDef, lo)
		if err != nil {
			return nil, err
		}
		out = append(out, rid)
	}
	return out, nil
}

// NestedTypes returns all nested types, by the enclosing type (II.22.32).
func (m *Metadata) NestedTypes() map[uint32][]uint32 {
	const nestedClass, enclosingClass = 0, 1
	out := map[uint32][]uint32{}
	for rid := uint32(1); rid <= m.Rows(TableNestedClass); rid++ {
		of := m.raw(TableNestedClass, rid, enclosingClass)
		out[of] = append(out[of], m.raw(TableNestedClass, rid, nestedClass))
	}
	return out
}

// Nested returns the types nested directly in a type (II.22.32).
func (m *Metadata) Nested(typeRID uint32) (out []uint32) {
	const nestedClass, enclosingClass = 0, 1
	for rid := uint32(1); rid <= m.Rows(TableNestedClass); rid++ {
		if m.raw(TableNestedClass, rid, enclosingClass) == typeRID {
			out = append(out, m.raw(TableNestedClass, rid, nestedClass))
		}
	}
	return out
}
