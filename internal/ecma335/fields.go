package ecma335

// Field is a row of the Field table (II.22.15).
type Field struct {
	RID  uint32
	Name string
}

// Fields returns the fields that a type declares, including fields without storage (constants).
func (m *Metadata) Fields(typeRID uint32) ([]Field, error) {
	if err := m.has(TableTypeDef, typeRID); err != nil {
		return nil, err
	}
	const fieldList, name = 4, 1
	lo, hi, err := m.run(TableTypeDef, typeRID, fieldList, TableField)
	if err != nil {
		return nil, err
	}
	out := make([]Field, 0, hi-lo)
	for i := lo; i < hi; i++ {
		f := Field{}
		if f.RID, err = m.listed(TableField, i); err != nil {
			return nil, err
		}
		if f.Name, err = m.stringAt(TableField, f.RID, name); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// FieldClass returns the name of the class in a field's declaration, in the form of TypeName; "": the declared type is
// of another kind, or an instance of a generic class.
func (m *Metadata) FieldClass(rid uint32) (string, error) { return m.fieldOf(rid, ElemClass) }

// FieldStruct is FieldClass for structs.
func (m *Metadata) FieldStruct(rid uint32) (string, error) { return m.fieldOf(rid, ElemValueType) }

func (m *Metadata) fieldOf(rid uint32, kind ElemType) (string, error) {
	const signature = 2
	at, err := m.Cell(TableField, rid, signature)
	if err != nil {
		return "", err
	}
	sig, err := m.Blob(at)
	if err != nil || len(sig) == 0 || sig[0] != fieldSignature {
		return "", err
	}
	t, err := DecodeTypeSig(sig[1:])
	if err != nil || t.Kind != kind {
		return "", err
	}
	n, err := m.nameOf(t.Token)
	return n.String(), err
}
