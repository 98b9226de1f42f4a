package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// FieldNames returns the names of the fields that a class declares, by the fields' rows in the Field table of the
// class's module.
func (n *Namer) FieldNames(mt arch.Addr) (map[uint32]string, error) {
	_, fields, err := n.fieldsOf(mt)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]string, len(fields))
	for _, f := range fields {
		out[f.RID] = f.Name
	}
	return out, nil
}

// StructFields returns the names of the fields that a type declares with a struct as their type. The struct's name is
// in metadata form.
func (n *Namer) StructFields(mt arch.Addr, of string) (names []string, err error) {
	a, fields, err := n.fieldsOf(mt)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if is, err := a.md.FieldStruct(f.RID); err == nil && is == of {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// TypeRow returns the row in a module's TypeDef table of the type with a name, in metadata form; 0: there is none.
func (n *Namer) TypeRow(module arch.Addr, name string) (uint32, error) {
	a, err := n.assembly(module)
	if err != nil {
		return 0, err
	}
	for rid := uint32(1); rid <= a.md.Rows(ecma335.TableTypeDef); rid++ {
		if of, err := a.md.TypeName(rid); err == nil && of == name {
			return rid, nil
		}
	}
	return 0, nil
}

// FieldsOfClass returns the names of the fields that the class at mt declares with the type named class.
func (n *Namer) FieldsOfClass(mt arch.Addr, class string) (out []string, err error) {
	a, fields, err := n.fieldsOf(mt)
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

// fieldsOf returns the fields that a class declares, and the assembly with the fields' names.
func (n *Namer) fieldsOf(mt arch.Addr) (*assembly, []ecma335.Field, error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return nil, nil, err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return nil, nil, err
	}
	fields, err := a.md.Fields(t.RID)
	return a, fields, err
}
