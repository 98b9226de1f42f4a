package object

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
)

// Field is an instance field of a class or of a base of the class.
type Field struct {
	Name      string
	Offset    uint32 // from the start of the object, in bytes; of a struct as if it had a MethodTable in front of it
	Reference bool   // a reference to an object; otherwise a number or a struct
}

// FieldsOf returns the instance fields of a class, the fields of its bases first.
func (r *Reader) FieldsOf(c *Class) ([]Field, error) {
	var chain []*Class
	for ; c != nil; c = c.base {
		chain = append(chain, c)
	}
	var out []Field
	for i := len(chain) - 1; i >= 0; i-- {
		own, err := r.own(chain[i])
		if err != nil {
			return nil, err
		}
		for i := range own {
			f := &own[i]
			out = append(out, Field{f.name, f.offset, f.reference})
		}
	}
	return out, nil
}

// placer knows only the places of references in objects, not the fields of all classes.
type placer interface {
	// Places returns the offsets of the references in objects of a class, without those in elements, in bytes from the
	// start of an object.
	Places(mt arch.Addr) ([]uint32, error)
}

// Hides reports whether the runtime knows only the fields of some classes. Of all others Places knows the references.
func (r *Reader) Hides() bool {
	_, ok := r.types.(placer)
	return ok
}

// Places returns the references in an object from an offset on, without those in elements.
func (r *Reader) Places(obj arch.Addr, c *Class, from uint32) ([]arch.Addr, error) {
	p, ok := r.types.(placer)
	if !ok {
		return nil, fmt.Errorf("%w: %s", types.ErrFields, c.Display)
	}
	offsets, err := p.Places(c.Table)
	if err != nil {
		return nil, err
	}
	var out []arch.Addr
	for _, off := range offsets {
		if off < from {
			continue
		}
		at, err := r.mem.Pointer(obj + arch.Addr(off))
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	return out, nil
}

// Arguments returns the type arguments of a class; none: the class is not generic.
func (r *Reader) Arguments(c *Class) ([]arch.Addr, error) {
	t, err := r.types.Read(c.Table)
	return t.Args, err
}

// IsValue reports whether a type is a struct.
func (r *Reader) IsValue(mt arch.Addr) (bool, error) { return r.types.IsValueType(mt) }

// BaseSize of a MethodTable counts the header in front of an object: four bytes and four bytes of alignment
// (methodtable.h, object.h).
const (
	inFront = 8
	maxSize = 1 << 26 // bytes
)

// Size returns the size of the objects of a class in bytes, without the header in front of the MethodTable and
// without elements; for a struct the size of its boxes. 0: not known.
func (r *Reader) Size(mt arch.Addr) (uint32, error) {
	size, err := r.types.BaseSize(mt)
	if err != nil || size < inFront || size > maxSize {
		return 0, err
	}
	return size - inFront, nil
}

// Word reads a field, or an element, of eight bytes at an address.
func (r *Reader) Word(at arch.Addr) (arch.Addr, error) { return r.mem.Pointer(at) }

// Int32 reads a number of four bytes at an address.
func (r *Reader) Int32(at arch.Addr) (int32, error) {
	v, err := r.mem.Uint32(at)
	return int32(v), err
}

// FullName returns the assembly and the metadata name of a class, such as System.Collections.Generic.List`1. For an
// array it returns an error.
func (r *Reader) FullName(c *Class) (assembly, full string, err error) {
	t, err := r.types.Read(c.Table)
	if err != nil {
		return "", "", err
	}
	if t.Kind != types.Class {
		return "", "", fmt.Errorf("%w: %s is an array", ErrNoObject, c.Display)
	}
	full, err = r.types.FullName(c.Table)
	return c.Assembly, full, err
}

// Bases returns a class and the classes that it derives from.
func (c *Class) Bases(yield func(*Class) bool) {
	for ; c != nil; c = c.base {
		if !yield(c) {
			return
		}
	}
}

// ElementClass returns the class of the elements of a one-dimensional array.
func (r *Reader) ElementClass(obj arch.Addr) (*Class, error) {
	c, err := r.Class(obj)
	if err != nil {
		return nil, err
	}
	t, err := r.types.Read(c.Table)
	if err != nil || t.Kind != types.SZArray {
		return nil, fmt.Errorf("%w: %v is no array (%v)", ErrNoObject, obj, err)
	}
	return r.Table(t.Elem)
}

// Elements returns the address of an array's elements, their number, and the size of each in bytes.
func (r *Reader) Elements(obj arch.Addr) (at arch.Addr, count int, size uint32, err error) {
	c, err := r.Class(obj)
	if err != nil {
		return 0, 0, 0, err
	}
	if t, err := r.types.Read(c.Table); err != nil || t.Kind != types.SZArray {
		return 0, 0, 0, fmt.Errorf("%w: %v is no array (%v)", ErrNoObject, obj, err)
	}
	if size, err = r.types.ComponentSize(c.Table); err != nil {
		return 0, 0, 0, err
	}
	count, err = r.length(obj + arch.Addr(r.l.Count))
	return obj + arch.Addr(r.l.Items), count, size, err
}
