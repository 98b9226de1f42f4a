package object

import (
	"fmt"

	"clrsnap/internal/arch"
)

// Direct returns the offset in a ThreadLocalData (thread.Store.LocalData) of a thread-static field that is no
// reference, in bytes. The class, by its name, is not generic, and is in the module that defines the type of the
// MethodTable in.
func (r *Reader) Direct(in arch.Addr, class, field string) (uint32, error) {
	mt, err := r.tableNamed(in, class)
	if err != nil {
		return 0, err
	}
	base, ok := r.types.DirectStatics(mt)
	if !ok {
		return 0, fmt.Errorf("%w: %s has no such static fields", ErrNoField, class)
	}
	rows, err := r.names.FieldNames(mt)
	if err != nil {
		return 0, err
	}
	fields, err := r.types.Fields(mt, rows)
	if err != nil {
		return 0, err
	}
	for i := range fields {
		if f := &fields[i]; f.Static && f.Local && !f.Reference() && !f.Boxed() && rows[f.RID] == field {
			return base + f.Offset, nil
		}
	}
	return 0, fmt.Errorf("%w: %s.%s", ErrNoField, class, field)
}

// Named returns a class by its name. The class is not generic, and is in the module that defines the type of the
// MethodTable in.
func (r *Reader) Named(in arch.Addr, class string) (*Class, error) {
	mt, err := r.tableNamed(in, class)
	if err != nil {
		return nil, err
	}
	return r.Table(mt)
}

func (r *Reader) tableNamed(in arch.Addr, class string) (arch.Addr, error) {
	module, err := r.types.Module(in)
	if err != nil {
		return 0, err
	}
	rid, err := r.names.TypeRow(module, class)
	if err != nil {
		return 0, err
	}
	mt := arch.Addr(0)
	if rid != 0 {
		if mt, err = r.types.Definition(module, rid); err != nil {
			return 0, err
		}
	}
	if mt == 0 {
		return 0, fmt.Errorf("%w: no class %s is loaded", ErrNoField, class)
	}
	return mt, nil
}
