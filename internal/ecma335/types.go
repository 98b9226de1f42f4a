package ecma335

// maxNesting bounds the depth of nested types.
const maxNesting = 64

// TypeDef is a row of the TypeDef table (II.22.37).
type TypeDef struct {
	Flags      uint32 // TypeAttributes, II.23.1.15
	Name       string // without namespace and enclosing types, with `arity
	Namespace  string // empty for nested types
	Extends    Token  // base type; RID 0: none
	MethodList uint32 // first method, counted in MethodPtr if there is a MethodPtr table
}

// IsNested reports whether the type is declared inside another type: visibility
// NestedPublic and up (II.23.1.15).
func (t TypeDef) IsNested() bool { return nested(t.Flags) }

func nested(flags uint32) bool { return flags&7 >= 2 }

// TypeDef returns a type that the module defines.
func (m *Metadata) TypeDef(rid uint32) (TypeDef, error) {
	var d TypeDef
	err := m.has(TableTypeDef, rid)
	if err != nil {
		return d, err
	}
	d.Flags = m.raw(TableTypeDef, rid, 0)
	d.MethodList = m.raw(TableTypeDef, rid, 5)
	if d.Name, err = m.stringAt(TableTypeDef, rid, 1); err != nil {
		return TypeDef{}, err
	}
	if d.Namespace, err = m.stringAt(TableTypeDef, rid, 2); err != nil {
		return TypeDef{}, err
	}
	if d.Extends, err = decodeCoded(typeDefOrRef, m.raw(TableTypeDef, rid, 3)); err != nil {
		return TypeDef{}, err
	}
	return d, nil
}

// EnclosingType returns the type in which type rid is nested, and false for a
// top-level type (NestedClass, II.22.32).
func (m *Metadata) EnclosingType(rid uint32) (uint32, bool, error) {
	if err := m.has(TableTypeDef, rid); err != nil {
		return 0, false, err
	}
	if !nested(m.raw(TableTypeDef, rid, 0)) {
		return 0, false, nil
	}
	lo, hi := m.lookup(byNested, rid)
	if lo == hi {
		return 0, false, malformed("nested type %v has no enclosing type", MakeToken(TableTypeDef, rid))
	}
	outer := m.raw(TableNestedClass, m.sorted[byNested].at(lo), 1)
	return outer, true, m.has(TableTypeDef, outer)
}

// TypeName returns the name of a TypeDef in metadata form:
// Namespace.Outer`1+Nested.
func (m *Metadata) TypeName(rid uint32) (string, error) {
	n, err := m.TypeDefName(rid)
	if err != nil {
		return "", err
	}
	return n.String(), nil
}

// TypeDefName is TypeName in parts.
func (m *Metadata) TypeDefName(rid uint32) (QualName, error) {
	var parts [maxNesting]string
	for i := len(parts) - 1; i >= 0; i-- {
		if err := m.has(TableTypeDef, rid); err != nil {
			return QualName{}, err
		}
		var err error
		if parts[i], err = m.stringAt(TableTypeDef, rid, 1); err != nil {
			return QualName{}, err
		}
		outer, ok, err := m.EnclosingType(rid)
		if err != nil {
			return QualName{}, err
		}
		if !ok {
			ns, err := m.stringAt(TableTypeDef, rid, 2)
			return qualName(ns, parts[i:]), err
		}
		rid = outer
	}
	return QualName{}, malformed("type %v is nested more than %d deep", MakeToken(TableTypeDef, rid), maxNesting)
}

// TypeRefName returns the name of a type of another module in the form of
// TypeName, without the scope that names the module.
func (m *Metadata) TypeRefName(rid uint32) (string, error) {
	n, err := m.typeRefName(rid)
	if err != nil {
		return "", err
	}
	return n.String(), nil
}

// typeRefName follows the resolution scope outwards while the scope is another
// TypeRef (II.22.38).
func (m *Metadata) typeRefName(rid uint32) (QualName, error) {
	var parts [maxNesting]string
	for i := len(parts) - 1; i >= 0; i-- {
		if err := m.has(TableTypeRef, rid); err != nil {
			return QualName{}, err
		}
		var err error
		if parts[i], err = m.stringAt(TableTypeRef, rid, 1); err != nil {
			return QualName{}, err
		}
		scope, err := decodeCoded(resolutionScope, m.raw(TableTypeRef, rid, 0))
		if err != nil {
			return QualName{}, err
		}
		if scope.Table() != TableTypeRef {
			ns, err := m.stringAt(TableTypeRef, rid, 2)
			return qualName(ns, parts[i:]), err
		}
		rid = scope.RID()
	}
	return QualName{}, malformed("type %v is nested more than %d deep", MakeToken(TableTypeRef, rid), maxNesting)
}

// TypeSpec returns the signature of a constructed type (II.22.39), for
// DecodeTypeSig.
func (m *Metadata) TypeSpec(rid uint32) ([]byte, error) {
	if err := m.has(TableTypeSpec, rid); err != nil {
		return nil, err
	}
	return m.Blob(m.raw(TableTypeSpec, rid, 0))
}

// Implements reports whether TypeDef rid itself lists the interface called
// name, in the form of TypeName, generic arguments aside (InterfaceImpl,
// II.22.23). Implements serves to distinguish async state machines from
// iterators: both have names of the same form.
func (m *Metadata) Implements(rid uint32, name string) (bool, error) {
	if err := m.has(TableTypeDef, rid); err != nil {
		return false, err
	}
	lo, hi := m.lookup(byInterface, rid)
	if hi-lo > 1024 {
		return false, malformed("%v has %d interfaces", MakeToken(TableTypeDef, rid), hi-lo)
	}
	for i := lo; i < hi; i++ {
		tok, err := decodeCoded(typeDefOrRef, m.raw(TableInterfaceImpl, m.sorted[byInterface].at(i), 1))
		if err != nil {
			return false, err
		}
		n, err := m.nameOf(tok)
		if err != nil {
			return false, err
		}
		if n.String() == name {
			return true, nil
		}
	}
	return false, nil
}

// nameOf returns the name behind a TypeDefOrRef token; for a TypeSpec, the name
// of the instantiated generic type.
func (m *Metadata) nameOf(tok Token) (QualName, error) {
	switch tok.Table() {
	case TableTypeDef:
		return m.TypeDefName(tok.RID())
	case TableTypeRef:
		return m.typeRefName(tok.RID())
	case TableTypeSpec:
		b, err := m.TypeSpec(tok.RID())
		if err != nil {
			return QualName{}, err
		}
		if t := specHead(b); t.RID() != 0 {
			return m.nameOf(t)
		}
	}
	return QualName{}, malformed("%v names no type", tok)
}

// specHead returns the class or value type at the head of a TypeSpec; RID 0: no
// head. A TypeSpec that stands for a TypeSpec counts as no head, since a circle
// of TypeSpecs would not end. The rest of the signature is not checked.
func specHead(b []byte) Token {
	d := newSigDecoder(b)
	k, err := d.byte()
	if err == nil && ElemType(k) == ElemGenericInst {
		k, err = d.byte()
	}
	if err != nil || ElemType(k) != ElemClass && ElemType(k) != ElemValueType {
		return 0
	}
	t, err := d.token()
	if err != nil || t.Table() == TableTypeSpec {
		return 0
	}
	return t
}
