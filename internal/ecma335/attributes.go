package ecma335

import "slices"

// maxAttributes bounds the custom attributes of one type or method.
const maxAttributes = 1024

// HasAttribute reports whether a TypeDef or a MethodDef has a custom attribute of a class. The name
// of class has the form of TypeName (CustomAttribute, II.22.10).
func (m *Metadata) HasAttribute(of Token, class string) (bool, error) {
	tag := slices.Index(codedKinds[hasCustomAttribute].tables, of.Table())
	if tag < 0 {
		return false, malformed("%v has no attributes", of)
	}
	if err := m.has(of.Table(), of.RID()); err != nil {
		return false, err
	}
	lo, hi := m.lookup(byAttributed, of.RID()<<codedKinds[hasCustomAttribute].bits|uint32(tag))
	if hi-lo > maxAttributes {
		return false, malformed("%v has %d attributes", of, hi-lo)
	}
	for i := lo; i < hi; i++ {
		constructor, err := decodeCoded(customAttributeType,
			m.raw(TableCustomAttribute, m.sorted[byAttributed].at(i), 1))
		if err != nil {
			return false, err
		}
		n, err := m.ownerName(constructor)
		if err != nil {
			return false, err
		}
		if n.String() == class {
			return true, nil
		}
	}
	return false, nil
}

// ownerName names the class of a constructor.
func (m *Metadata) ownerName(constructor Token) (QualName, error) {
	if constructor.Table() == TableMethodDef {
		owner, err := m.MethodOwner(constructor.RID())
		if err != nil {
			return QualName{}, err
		}
		return m.TypeDefName(owner)
	}
	ref, err := m.MemberRef(constructor.RID())
	if err != nil {
		return QualName{}, err
	}
	return m.nameOf(ref.Class)
}
