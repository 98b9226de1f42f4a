package name

import "clrsnap/internal/arch"

// FieldNames returns the names of the fields that a class declares, by their rows in the Field table of the
// module that defines it.
func (n *Namer) FieldNames(mt arch.Addr) (map[uint32]string, error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return nil, err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return nil, err
	}
	fields, err := a.md.Fields(t.RID)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]string, len(fields))
	for _, f := range fields {
		out[f.RID] = f.Name
	}
	return out, nil
}

// FieldsOfClass returns the names of the fields that a class declares with another class, by the other's name.
func (n *Namer) FieldsOfClass(mt arch.Addr, class string) (out []string, err error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return nil, err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return nil, err
	}
	fields, err := a.md.Fields(t.RID)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		of, err := a.md.FieldClass(f.RID)
		if err != nil {
			return nil, err
		}
		if of == class {
			out = append(out, f.Name)
		}
	}
	return out, nil
}
