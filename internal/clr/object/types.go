package object

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/types"
)

// Types knows the types of a runtime, by their MethodTables. CoreCLR has metadata and descriptions of all fields. The
// types of a native AOT program have names, and the fields of some are known (package aot).
type Types interface {
	// Check returns an error if an address is no MethodTable.
	Check(mt arch.Addr) error
	// Read returns the kind of a type, and the types that the type is made of.
	Read(mt arch.Addr) (types.Type, error)
	// Class returns the names of a type.
	Class(mt arch.Addr) (name.Class, error)
	// FullName returns the metadata name of a class, such as System.Collections.Generic.List`1.
	FullName(mt arch.Addr) (string, error)
	// RuntimeName returns the name of a type as the runtime's debuggers spell it.
	RuntimeName(mt arch.Addr) (string, error)
	// Base returns the base class; 0: there is none.
	Base(mt arch.Addr) (arch.Addr, error)
	// BaseSize returns the size of the class's objects in bytes, with the header in front of an object, and without
	// elements.
	BaseSize(mt arch.Addr) (uint32, error)
	// ComponentSize returns the bytes of one element of an array.
	ComponentSize(mt arch.Addr) (uint32, error)
	// IsValueType reports whether a type is a struct.
	IsValueType(mt arch.Addr) (bool, error)
	// EachField visits the instance fields that a class itself declares. Offsets are in bytes from the start of an
	// object.
	EachField(mt arch.Addr, visit func(name string, offset uint32, reference bool)) error
	// Named returns a class by its name. The class is not generic, and is in the assembly of the type in.
	Named(in arch.Addr, class string) (arch.Addr, error)
	// Direct returns the offset in a ThreadLocalData of a thread-static field that is no reference.
	Direct(in arch.Addr, class, field string) (uint32, error)
}

// coreCLR has the types of CoreCLR.
type coreCLR struct {
	*types.System
	names *name.Namer
}

func (c coreCLR) Class(mt arch.Addr) (name.Class, error) { return c.names.Class(mt) }

func (c coreCLR) FullName(mt arch.Addr) (string, error) {
	t, err := c.Read(mt)
	if err != nil {
		return "", err
	}
	return c.names.TypeName(&t)
}

func (c coreCLR) RuntimeName(mt arch.Addr) (string, error) { return c.names.RuntimeName(mt) }

func (c coreCLR) EachField(mt arch.Addr, visit func(name string, offset uint32, reference bool)) error {
	rows, err := c.names.FieldNames(mt)
	if err != nil {
		return err
	}
	list, err := c.Fields(mt, rows)
	if err != nil {
		return err
	}
	for i := range list {
		if f := &list[i]; !f.Static {
			visit(rows[f.RID], f.Offset, f.Reference())
		}
	}
	return nil
}

func (c coreCLR) Direct(in arch.Addr, class, field string) (uint32, error) {
	mt, err := c.Named(in, class)
	if err != nil {
		return 0, err
	}
	base, ok := c.DirectStatics(mt)
	if !ok {
		return 0, fmt.Errorf("%w: %s has no such static fields", ErrNoField, class)
	}
	rows, err := c.names.FieldNames(mt)
	if err != nil {
		return 0, err
	}
	fields, err := c.Fields(mt, rows)
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

func (c coreCLR) Named(in arch.Addr, class string) (arch.Addr, error) {
	module, err := c.Module(in)
	if err != nil {
		return 0, err
	}
	rid, err := c.names.TypeRow(module, class)
	if err != nil {
		return 0, err
	}
	mt := arch.Addr(0)
	if rid != 0 {
		if mt, err = c.Definition(module, rid); err != nil {
			return 0, err
		}
	}
	if mt == 0 {
		return 0, fmt.Errorf("%w: no class %s is loaded", ErrNoField, class)
	}
	return mt, nil
}
