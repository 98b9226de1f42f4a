// Package object reads managed objects: the class of an object, its fields by name, references, strings, arrays, and
// the word in front of it.
//
// Objects move, and change while they are read. So each answer is the content of memory at some moment, and the
// reader does not say when; target.Evidence is for callers that need proof. An address is believed to be an object
// only if it leads to a MethodTable whose class leads back to it.
//
// Sources (dotnet/runtime): docs/design/datacontracts/Object.md, src/coreclr/vm/object.h, field.h, class.h.
package object

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// ErrNoObject: there is no object at an address.
var ErrNoObject = errors.New("not an object")

// ErrLimit: too many objects make no sense, so no more are read in this snapshot.
var ErrLimit = errors.New("too much in the heap makes no sense")

// ErrNoField: a class has no field of a name.
var ErrNoField = errors.New("no such field")

const (
	maxBases   = 32
	maxClasses = 1 << 12
	maxFields  = 1 << 17 // of all classes that are kept
	maxRefused = 1 << 14 // MethodTables without a name, in one snapshot
	maxRead    = 1 << 16 // bytes of an object's fields
	maxLength  = 1 << 28 // of arrays and strings
	header     = 4       // distance of the word from the object (Object.md, SyncBlockValueToObjectOffset)
	aligned    = 8
	lowest     = 1 << 16 // no object lies below (vm.mmap_min_addr)
)

type layout struct {
	Untag uint64 `global:"ObjectToMethodTableUnmask"`

	Count uint32 `clr:"Array.m_NumComponents"`
	Items uint32 `clr:"Array.!"`
}

// Class is the class of an object.
type Class struct {
	Table arch.Addr // its MethodTable
	name.Class

	base   *Class  // nil: none
	depth  int     // how many bases there are
	fields []field // declared by the class itself, not by its bases
	read   bool    // fields are there
}

type field struct {
	name      string
	offset    uint32
	reference bool
}

// Reader reads objects of one runtime. It is not safe for concurrent use.
type Reader struct {
	mem     *target.Reader
	types   Types
	l       layout
	classes map[arch.Addr]*Class // of types that stay
	fields  int                  // of classes
	refused map[arch.Addr]error  // why a MethodTable is not believed, in this snapshot
	failed  map[*Class]error     // why fields cannot be read, in this snapshot
}

// Begin begins a snapshot: failed reads are tried again.
func (r *Reader) Begin() {
	clear(r.refused)
	clear(r.failed)
}

// New is NewOf for CoreCLR.
func New(mem target.Memory, d *contract.Descriptor, ts *types.System, ns *name.Namer) (*Reader, error) {
	return NewOf(mem, d, coreCLR{ts, ns})
}

// NewOf binds the objects of the runtime that d describes. Objects are read from mem.
func NewOf(mem target.Memory, d *contract.Descriptor, of Types) (*Reader, error) {
	r := &Reader{
		mem: target.NewReader(mem), types: of, classes: map[arch.Addr]*Class{},
		refused: map[arch.Addr]error{}, failed: map[*Class]error{},
	}
	return r, d.Bind(&r.l)
}

// Types returns the types of the runtime.
func (r *Reader) Types() Types { return r.types }

// Class returns the class of the object at an address.
func (r *Reader) Class(obj arch.Addr) (*Class, error) {
	if obj < lowest || obj%aligned != 0 || obj>>47 != 0 {
		return nil, fmt.Errorf("%w: %v", ErrNoObject, obj)
	}
	tagged, err := r.mem.Uint64(obj)
	if err != nil {
		return nil, err
	}
	return r.Table(r.Untagged(tagged))
}

// Untagged returns the MethodTable's address in the first word of an object.
func (r *Reader) Untagged(word uint64) arch.Addr { return arch.Addr(word &^ r.l.Untag) }

// Table returns the class of a MethodTable.
func (r *Reader) Table(mt arch.Addr) (*Class, error) {
	if c := r.classes[mt]; c != nil {
		return c, nil
	}
	return r.class(mt, maxBases)
}

func (r *Reader) class(mt arch.Addr, bases int) (*Class, error) {
	if mt < lowest || mt%aligned != 0 || mt>>47 != 0 || bases == 0 {
		return nil, fmt.Errorf("%w: no MethodTable at %v", ErrNoObject, mt)
	}
	if err := r.types.Check(mt); err != nil {
		return nil, err
	}
	if err := r.refused[mt]; err != nil {
		return nil, err
	}
	if len(r.refused) >= maxRefused {
		return nil, ErrLimit
	}
	c, err := r.read(mt, bases)
	if err != nil {
		if missing := (*target.ReadError)(nil); !errors.As(err, &missing) { // which may appear later
			r.refused[mt] = err
		}
		return nil, err
	}
	if !c.Collectible {
		if len(r.classes) >= maxClasses {
			r.forget()
		}
		r.classes[mt] = c
	}
	return c, nil
}

// read reads a class and its bases.
func (r *Reader) read(mt arch.Addr, bases int) (c *Class, err error) {
	c = &Class{Table: mt}
	if c.Class, err = r.types.Class(mt); err != nil {
		return nil, err
	}
	base, err := r.types.Base(mt)
	if err != nil || base == 0 {
		return c, err
	}
	if c.base = r.classes[base]; c.base == nil {
		if c.base, err = r.class(base, bases-1); err != nil {
			return nil, err
		}
	}
	if c.depth = c.base.depth + 1; c.depth >= maxBases {
		return nil, fmt.Errorf("%w: the class at %v has more than %d bases", ErrNoObject, mt, maxBases)
	}
	return c, nil
}

// forget makes room for other classes.
func (r *Reader) forget() {
	clear(r.classes)
	r.fields = 0
}

// Is reports whether a class, or a base of the class, has an assembly and a name (with its namespace, without type
// arguments).
func (c *Class) Is(assembly, name string) bool {
	for ; c != nil; c = c.base {
		if c.Assembly == assembly && plain(c.Display) == name {
			return true
		}
	}
	return false
}

// Plain is the name of a class without its type arguments.
func (c *Class) Plain() string { return plain(c.Display) }

func plain(display string) string {
	for i, b := range []byte(display) {
		if b == '<' {
			return display[:i]
		}
	}
	return display
}

// own returns the fields that a class itself declares. Where only the fields of some classes are known, in a native
// AOT program, any other class counts as a class without fields of its own.
func (r *Reader) own(c *Class) ([]field, error) {
	if c.read {
		return c.fields, nil
	}
	if err := r.failed[c]; err != nil {
		return nil, err
	}
	var fields []field
	err := r.types.EachField(c.Table, func(name string, offset uint32, reference bool) {
		fields = append(fields, field{name, offset, reference})
	})
	if err != nil && !errors.Is(err, types.ErrFields) {
		r.failed[c] = err
		return nil, err
	}
	if r.fields += len(fields); r.fields > maxFields {
		r.forget()
	}
	c.fields, c.read = fields, true
	return fields, nil
}

// named returns the instance field of a name. Of equal names, the field of the most derived class counts.
func (r *Reader) named(c *Class, name string) (*field, error) {
	for b := c; b != nil; b = b.base {
		fields, err := r.own(b)
		if err != nil {
			return nil, err
		}
		for i := range fields {
			if fields[i].name == name {
				return &fields[i], nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %s.%s", ErrNoField, c.Display, name)
}

// Offset returns the offset of an instance field in objects of a class, in bytes from their start. Of equal names,
// the field of the most derived class counts.
func (r *Reader) Offset(c *Class, name string) (uint32, error) {
	f, err := r.named(c, name)
	if err != nil {
		return 0, err
	}
	return f.offset, nil
}

// Uint32 reads a field of four bytes.
func (r *Reader) Uint32(obj arch.Addr, c *Class, name string) (uint32, error) {
	off, err := r.Offset(c, name)
	if err != nil {
		return 0, err
	}
	return r.mem.Uint32(obj + arch.Addr(off))
}

// Pointer reads a field of eight bytes: a reference, 0 for null, or a number.
func (r *Reader) Pointer(obj arch.Addr, c *Class, name string) (arch.Addr, error) {
	off, err := r.Offset(c, name)
	if err != nil {
		return 0, err
	}
	return r.mem.Pointer(obj + arch.Addr(off))
}

// Generic returns the address and the class of a struct in an object's field. The class is the last type argument of
// the object's class. If the argument is a reference type, Generic returns the object in the field. Offset, Uint32
// and Pointer read the fields of both.
func (r *Reader) Generic(obj arch.Addr, c *Class, name string) (at arch.Addr, inner *Class, err error) {
	t, err := r.types.Read(c.Table)
	if err != nil || len(t.Args) == 0 {
		return 0, nil, fmt.Errorf("%w: %s has no type arguments (%v)", ErrNoField, c.Display, err)
	}
	if inner, err = r.Table(t.Args[len(t.Args)-1]); err != nil {
		return 0, nil, err
	}
	f, err := r.named(c, name)
	if err != nil {
		return 0, nil, err
	}
	if f.reference {
		at, err = r.mem.Pointer(obj + arch.Addr(f.offset))
		return at, inner, err
	}
	return obj + arch.Addr(f.offset) - aligned, inner, nil // a struct has no MethodTable in front
}

// RefersTo returns the field in which an object refers to another; "": none.
func (r *Reader) RefersTo(obj arch.Addr, c *Class, other arch.Addr) (string, error) {
	l, err := r.LinkTo(obj, c, other)
	return l.Name, err
}

// OnlyField returns the name of the field whose object is of a class, by its MethodTable; "": there is none, or there
// are several.
func (r *Reader) OnlyField(obj arch.Addr, c *Class, table arch.Addr) (name string, err error) {
	fields, err := r.FieldsOf(c)
	if err != nil {
		return "", err
	}
	for _, f := range fields {
		if !f.Reference {
			continue
		}
		to, err := r.Word(obj + arch.Addr(f.Offset))
		if err != nil {
			return "", err
		}
		if class, err := r.Class(to); err != nil || class.Table != table {
			continue
		}
		if name != "" {
			return "", nil
		}
		name = f.Name
	}
	return name, nil
}

// Link is a field by which an object refers to another.
type Link struct {
	Class *Class // the declaring class: the object's, or a base of it
	Name  string
	At    arch.Addr // of the field
}

// LinkTo returns the field by which an object refers to another; without a name: there is none.
func (r *Reader) LinkTo(obj arch.Addr, c *Class, other arch.Addr) (Link, error) {
	first, last := uint32(maxRead), uint32(0)
	for b := c; b != nil; b = b.base {
		fields, err := r.own(b)
		if err != nil {
			return Link{}, err
		}
		for i := range fields {
			if f := &fields[i]; f.reference && f.offset <= maxRead-8 {
				first, last = min(first, f.offset), max(last, f.offset+8)
			}
		}
	}
	if first >= last {
		return Link{}, nil
	}
	b, err := r.mem.Bytes(obj+arch.Addr(first), int(last-first))
	if err != nil {
		return Link{}, err
	}
	for ; c != nil; c = c.base {
		for i := range c.fields {
			f := &c.fields[i]
			if !f.reference || f.offset > maxRead-8 {
				continue
			}
			if arch.Addr(binary.LittleEndian.Uint64(b[f.offset-first:])) == other {
				return Link{c, f.name, obj + arch.Addr(f.offset)}, nil
			}
		}
	}
	return Link{}, nil
}

// Header reads the word in front of an object.
func (r *Reader) Header(obj arch.Addr) (uint32, error) { return r.mem.Uint32(obj - header) }

func (r *Reader) length(at arch.Addr) (int, error) {
	n, err := r.mem.Uint32(at)
	if err == nil && n > maxLength {
		err = fmt.Errorf("%w: %d elements", ErrNoObject, n)
	}
	return int(n), err
}

// ArrayWords returns the offsets of the length and of the first element in arrays of references, in bytes.
func (r *Reader) ArrayWords() (length, items uint32) { return r.l.Count, r.l.Items }

// References reads an array of references, but no more than most.
func (r *Reader) References(obj arch.Addr, most int) ([]arch.Addr, error) {
	c, err := r.Class(obj)
	if err != nil {
		return nil, err
	}
	if t, err := r.types.Read(c.Table); err != nil || t.Kind != types.SZArray {
		return nil, fmt.Errorf("%w: %v is no array (%v)", ErrNoObject, obj, err)
	}
	if size, err := r.types.ComponentSize(c.Table); err != nil || size != aligned {
		return nil, fmt.Errorf("%w: %v has elements of %d bytes (%v)", ErrNoObject, obj, size, err)
	}
	n, err := r.length(obj + arch.Addr(r.l.Count))
	if err != nil {
		return nil, err
	}
	b, err := r.mem.Bytes(obj+arch.Addr(r.l.Items), 8*min(n, most))
	if err != nil {
		return nil, err
	}
	out := make([]arch.Addr, len(b)/8)
	for i := range out {
		out[i] = arch.Addr(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out, nil
}

// Argument returns the name of the last type argument of a class; "": there is none.
func (r *Reader) Argument(c *Class) string {
	t, err := r.types.Read(c.Table)
	if err != nil || len(t.Args) == 0 {
		return ""
	}
	a, err := r.types.Class(t.Args[len(t.Args)-1])
	if err != nil {
		return ""
	}
	return a.Display
}
