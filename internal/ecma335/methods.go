package ecma335

import "sort"

// MethodDef is a row of the MethodDef table (II.22.26).
type MethodDef struct {
	RID       uint32 // row number
	Name      string
	Flags     uint16 // MethodAttributes, II.23.1.10
	ImplFlags uint16 // MethodImplAttributes, II.23.1.11
	Signature []byte // for DecodeMethodSig; part of the metadata
	ParamList uint32 // first parameter, counted in ParamPtr if there is a ParamPtr table
}

// IsStatic reports whether the method has no this.
func (d MethodDef) IsStatic() bool { return d.Flags&0x10 != 0 }

// IsVirtual reports whether a derived type may override the method.
func (d MethodDef) IsVirtual() bool { return d.Flags&0x40 != 0 }

// MethodDef returns a method that the module defines.
func (m *Metadata) MethodDef(rid uint32) (MethodDef, error) {
	if err := m.has(TableMethodDef, rid); err != nil {
		return MethodDef{}, err
	}
	name, err := m.stringAt(TableMethodDef, rid, 3)
	if err != nil {
		return MethodDef{}, err
	}
	sig, err := m.Blob(m.raw(TableMethodDef, rid, 4))
	if err != nil {
		return MethodDef{}, err
	}
	return MethodDef{
		RID:       rid,
		Name:      name,
		ImplFlags: uint16(m.raw(TableMethodDef, rid, 1)),
		Flags:     uint16(m.raw(TableMethodDef, rid, 2)),
		Signature: sig,
		ParamList: m.raw(TableMethodDef, rid, 5),
	}, nil
}

// MethodOwner returns the TypeDef that declares method rid: the last TypeDef
// whose run of methods begins at rid or before (II.22.37).
func (m *Metadata) MethodOwner(rid uint32) (uint32, error) {
	const methodList = 5
	return m.owner(TableMethodDef, rid, methodList)
}

// owner returns the TypeDef whose run, by a list column, contains a row.
func (m *Metadata) owner(t Table, rid uint32, list int) (uint32, error) {
	if err := m.has(t, rid); err != nil {
		return 0, err
	}
	i, err := m.position(t, rid)
	if err != nil {
		return 0, err
	}
	types := int(m.tables[TableTypeDef].rows)
	owner := sort.Search(types, func(n int) bool { return m.raw(TableTypeDef, uint32(n)+1, list) > i })
	if owner == 0 || m.raw(TableTypeDef, uint32(owner), list) == 0 {
		return 0, malformed("no type declares %v", MakeToken(t, rid))
	}
	return uint32(owner), nil
}

// maxMethods bounds the search for a type's method.
const maxMethods = 1 << 14

// OnlyMethod returns TypeDef rid's method called name, and false if there is no such method, or more than one.
func (m *Metadata) OnlyMethod(rid uint32, name string) (def MethodDef, ok bool, err error) {
	if err := m.has(TableTypeDef, rid); err != nil {
		return def, false, err
	}
	lo, hi, err := m.run(TableTypeDef, rid, 5, TableMethodDef)
	if err != nil {
		return def, false, err
	}
	if hi-lo > maxMethods {
		return def, false, malformed("%v declares %d methods", MakeToken(TableTypeDef, rid), hi-lo)
	}
	found := uint32(0)
	for ; lo < hi; lo++ {
		r, err := m.listed(TableMethodDef, lo)
		if err != nil {
			return def, false, err
		}
		if !m.reads(m.raw(TableMethodDef, r, 3), name) {
			continue
		}
		if found != 0 {
			return def, false, nil
		}
		found = r
	}
	if found == 0 {
		return def, false, nil
	}
	def, err = m.MethodDef(found)
	return def, err == nil, err
}

// position returns the place of a row in the order that list columns use: the order of the pointer table, if there is
// a pointer table.
func (m *Metadata) position(t Table, rid uint32) (uint32, error) {
	n := m.tables[t-1].rows
	if n == 0 {
		return rid, nil
	}
	if rid <= n && m.raw(t-1, rid, 0) == rid { // almost always
		return rid, nil
	}
	for i := uint32(1); i <= n; i++ {
		if m.raw(t-1, i, 0) == rid {
			return i, nil
		}
	}
	return 0, malformed("%v is missing in the table that orders it", MakeToken(t, rid))
}

// ParamNames returns the names of a method's parameters, a name for each
// parameter in the signature, without this; "" for a parameter without a name.
func (m *Metadata) ParamNames(methodRID uint32) ([]string, error) {
	if err := m.has(TableMethodDef, methodRID); err != nil {
		return nil, err
	}
	sig, err := m.Blob(m.raw(TableMethodDef, methodRID, 4))
	if err != nil {
		return nil, err
	}
	_, n, _, err := sigHeader(sig)
	if err != nil {
		return nil, err
	}
	lo, hi, err := m.run(TableMethodDef, methodRID, 5, TableParam)
	if err != nil {
		return nil, err
	}
	if hi-lo > n+1 { // a row for each parameter, and a row for the result
		return nil, malformed("%v has %d parameters and %d Param rows", MakeToken(TableMethodDef, methodRID), n, hi-lo)
	}
	names := make([]string, n)
	for ; lo < hi; lo++ {
		p, err := m.listed(TableParam, lo)
		if err != nil {
			return nil, err
		}
		seq := m.raw(TableParam, p, 1) // II.22.33: 0 is the result
		if seq > n {
			return nil, malformed("%v has %d parameters and names number %d",
				MakeToken(TableMethodDef, methodRID), n, seq)
		}
		if seq == 0 {
			continue
		}
		if names[seq-1], err = m.stringAt(TableParam, p, 2); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Import is a function of a native library that a method calls (II.22.22).
type Import struct {
	Name    string // of the function
	Library string // as written in the program: libc, or a path
}

// Import returns the native function of method rid; false: the method is no P/Invoke.
func (m *Metadata) Import(rid uint32) (i Import, ok bool, err error) {
	if err := m.has(TableMethodDef, rid); err != nil {
		return i, false, err
	}
	const isMethod = 1 // MemberForwarded, II.24.2.6
	lo, hi := m.lookup(byForwarded, rid<<1|isMethod)
	if hi-lo != 1 {
		return i, false, nil
	}
	row := m.sort(byForwarded).at(lo)
	library := m.raw(TableImplMap, row, 3)
	if err := m.has(TableModuleRef, library); err != nil {
		return i, false, err
	}
	if i.Name, err = m.stringAt(TableImplMap, row, 2); err != nil {
		return i, false, err
	}
	i.Library, err = m.stringAt(TableModuleRef, library, 0)
	return i, err == nil && i.Name != "", err
}

// GenericParams returns the names of the generic parameters that a TypeDef or
// MethodDef declares, in order; none: not generic (II.22.20). A nested type
// repeats the parameters of its enclosing types.
func (m *Metadata) GenericParams(tok Token) ([]string, error) {
	key := tok.RID() << 1
	switch t := tok.Table(); t {
	case TableMethodDef:
		key |= 1
		fallthrough
	case TableTypeDef:
		if err := m.has(t, tok.RID()); err != nil {
			return nil, err
		}
	default:
		return nil, malformed("%v cannot have generic parameters", tok)
	}
	lo, hi := m.lookup(byOwner, key)
	if hi-lo > maxSigNodes {
		return nil, malformed("%v has %d generic parameters", tok, hi-lo)
	}
	if lo == hi {
		return nil, nil
	}
	names, seen := make([]string, hi-lo), make([]bool, hi-lo)
	for i := lo; i < hi; i++ {
		rid := m.sorted[byOwner].at(i)
		number := m.raw(TableGenericParam, rid, 0)
		if number >= uint32(len(names)) || seen[number] {
			return nil, malformed("%v: generic parameter %d of %d appears out of place", tok, number, len(names))
		}
		seen[number] = true
		var err error
		if names[number], err = m.stringAt(TableGenericParam, rid, 3); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// ImplementsOther reports whether TypeDef rid declares that its method implements another method,
// possibly with another name (MethodImpl, II.22.27).
func (m *Metadata) ImplementsOther(rid, method uint32) (bool, error) {
	lo, hi := m.lookup(byImplementer, rid)
	if hi-lo > maxMethods {
		return false, malformed("%v implements %d methods", MakeToken(TableTypeDef, rid), hi-lo)
	}
	for i := lo; i < hi; i++ {
		body, err := decodeCoded(methodDefOrRef, m.raw(TableMethodImpl, m.sorted[byImplementer].at(i), 1))
		if err != nil {
			return false, err
		}
		if body == MakeToken(TableMethodDef, method) {
			return true, nil
		}
	}
	return false, nil
}

// MemberRef is a row of the MemberRef table (II.22.25): a field or method of
// another module or of a constructed type.
type MemberRef struct {
	Class     Token // TypeDef, TypeRef, ModuleRef, MethodDef or TypeSpec
	Name      string
	Signature []byte
}

// MemberRef returns a reference to a member.
func (m *Metadata) MemberRef(rid uint32) (MemberRef, error) {
	if err := m.has(TableMemberRef, rid); err != nil {
		return MemberRef{}, err
	}
	class, err := decodeCoded(memberRefParent, m.raw(TableMemberRef, rid, 0))
	if err != nil {
		return MemberRef{}, err
	}
	name, err := m.stringAt(TableMemberRef, rid, 1)
	if err != nil {
		return MemberRef{}, err
	}
	sig, err := m.Blob(m.raw(TableMemberRef, rid, 2))
	if err != nil {
		return MemberRef{}, err
	}
	return MemberRef{class, name, sig}, nil
}

// MethodSpec is a row of the MethodSpec table (II.22.29): a generic method with
// its arguments.
type MethodSpec struct {
	Method        Token  // MethodDef or MemberRef
	Instantiation []byte // for DecodeMethodSpec
}

// MethodSpec returns an instantiated generic method.
func (m *Metadata) MethodSpec(rid uint32) (MethodSpec, error) {
	if err := m.has(TableMethodSpec, rid); err != nil {
		return MethodSpec{}, err
	}
	method, err := decodeCoded(methodDefOrRef, m.raw(TableMethodSpec, rid, 0))
	if err != nil {
		return MethodSpec{}, err
	}
	inst, err := m.Blob(m.raw(TableMethodSpec, rid, 1))
	if err != nil {
		return MethodSpec{}, err
	}
	return MethodSpec{method, inst}, nil
}

// AssemblyName returns the assembly's simple name, and false for a module without a readable manifest (II.22.2).
func (m *Metadata) AssemblyName() (string, bool) { return m.only(TableAssembly, 7) }

// ModuleName returns the module's file name at compilation, for example
// "app.dll" (II.22.30).
func (m *Metadata) ModuleName() (string, bool) { return m.only(TableModule, 1) }

func (m *Metadata) only(t Table, col int) (string, bool) {
	if m.tables[t].rows == 0 {
		return "", false
	}
	s, err := m.stringAt(t, 1, col)
	return s, err == nil && s != ""
}

// MVID returns the module's version id, new in every build.
func (m *Metadata) MVID() ([16]byte, bool) {
	if m.tables[TableModule].rows == 0 {
		return [16]byte{}, false
	}
	g, err := m.GUID(m.raw(TableModule, 1, 2))
	return g, err == nil
}
