package clrtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335/ecma335test"
)

// A Program is the made-up memory of a program: assemblies whose metadata the program has emitted, the MethodTables
// of their classes, and objects. The layout follows a runtime's descriptor, of .NET 9 or newer.
type Program struct {
	Words
	t    testing.TB
	d    *contract.Descriptor
	name string // of the descriptor
	next arch.Addr
}

// Descriptor is the name of the descriptor of the program's runtime.
func (p *Program) Descriptor() string { return p.name }

// Class is a class of a Program.
type Class struct {
	Name    string // with namespace and arity, Ns.Outer`1+Nested
	Base    *Class
	Value   bool   // a struct
	Size    uint32 // of the objects in bytes, the MethodTable included
	Fields  []Field
	Methods []string

	Table arch.Addr // the MethodTable, set by Program.Assembly
}

// Field is an instance field of a Class.
type Field struct {
	Name   string
	Offset uint32 // from the start of the object; in a struct as if the struct had a MethodTable in front
	Type   uint8  // CorElementType
}

// Types of fields (corhdr.h, CorElementType).
const (
	Int32     = 0x08
	Struct    = 0x11
	Reference = 0x12
)

const (
	programAt  = arch.Addr(0x6000_0000)
	structSize = 1024 // the runtime's structures are smaller
)

// NewProgram returns a Program without assemblies.
func NewProgram(t testing.TB, descriptor string) *Program {
	return &Program{Words: Words{}, t: t, d: Descriptor(t, descriptor), name: descriptor, next: programAt}
}

// Room makes n bytes readable and returns their address.
func (p *Program) Room(n int) arch.Addr {
	at := p.next
	p.Zero(at-8, n+16)
	p.next = (at + arch.Addr(n) + 64) &^ 15
	return at
}

// offset returns the offset of a field in a structure of the runtime.
func (p *Program) offset(typ, field string) arch.Addr {
	p.t.Helper()
	off, ok := p.d.Offset(typ, field)
	if !ok {
		p.t.Fatalf("the descriptor has no %s.%s", typ, field)
	}
	return arch.Addr(off)
}

// Assembly adds an assembly with classes, and sets the MethodTable of each class. Bases come before derived classes.
func (p *Program) Assembly(name string, classes ...*Class) {
	p.t.Helper()
	m := newMetadata(name)
	for _, c := range classes {
		m.class(c)
	}
	text := m.bytes()
	module, assembly, dynamic := p.Room(2*structSize), p.Room(structSize), p.Room(8+len(text))
	p.Words[module+p.offset("Module", "Assembly")] = uint64(assembly)
	p.Words[module+p.offset("Module", "DynamicMetadata")] = uint64(dynamic)
	p.Uint32(dynamic+p.offset("DynamicMetadata", "Size"), uint32(len(text)))
	data := dynamic + p.offset("DynamicMetadata", "Data")
	for i := 0; i+4 <= len(text); i += 4 {
		p.Uint32(data+arch.Addr(i), binary.LittleEndian.Uint32(text[i:]))
	}
	for _, c := range classes {
		p.table(c, module, m.rows[c])
	}
}

// Bits of MethodTable.MTFlags (methodtable.h).
const (
	flagInstantiated = 0x10
	flagValue        = 0x0004_0000
	flagArray        = 0x800a_0000 // one-dimensional and zero-based, with the size of the elements
)

// table lays out a MethodTable, its EEClass and its FieldDescs.
func (p *Program) table(c *Class, module arch.Addr, row rows) {
	p.t.Helper()
	c.Table = p.Room(structSize)
	if c.Value {
		p.Uint32(c.Table+p.offset("MethodTable", "MTFlags"), flagValue)
	}
	p.Uint32(c.Table+p.offset("MethodTable", "MTFlags2"), row.typ<<8)
	p.Uint32(c.Table+p.offset("MethodTable", "BaseSize"), c.Size+8)
	p.Words[c.Table+p.offset("MethodTable", "Module")] = uint64(module)
	if c.Base != nil {
		p.Words[c.Table+p.offset("MethodTable", "ParentMethodTable")] = uint64(c.Base.Table)
	}
	p.eeClass(c.Table)
	if len(c.Fields) == 0 {
		return
	}
	class := arch.Addr(p.Words[c.Table+p.offset("MethodTable", "EEClassOrCanonMT")])
	list := p.Room(16*len(c.Fields) + 16)
	p.Words[class+p.offset("EEClass", "FieldDescList")] = uint64(list)
	for i, f := range c.Fields {
		at := list + 16*arch.Addr(i)
		p.Words[at+p.offset("FieldDesc", "MTOfEnclosingClass")] = uint64(c.Table)
		p.Uint32(at+p.offset("FieldDesc", "DWord1"), row.field+uint32(i))
		p.Uint32(at+p.offset("FieldDesc", "DWord2"), f.Offset-8|uint32(f.Type)<<27)
	}
}

func (p *Program) eeClass(table arch.Addr) {
	p.t.Helper()
	class := p.Room(structSize)
	p.Words[table+p.offset("MethodTable", "EEClassOrCanonMT")] = uint64(class)
	p.Words[class+p.offset("EEClass", "MethodTable")] = uint64(table)
}

// Instance returns an instance of a generic class with type arguments. The instance shares code with the class.
func (p *Program) Instance(c *Class, args ...arch.Addr) *Class {
	p.t.Helper()
	out := *c
	out.Table = p.Room(structSize)
	for off := arch.Addr(0); off < structSize; off += 8 {
		p.Words[out.Table+off] = p.Words[c.Table+off]
	}
	p.Words[out.Table+p.offset("MethodTable", "EEClassOrCanonMT")] = uint64(c.Table) | 1
	flags := out.Table + p.offset("MethodTable", "MTFlags")
	p.Uint32(flags, uint32(p.Words[flags])|flagInstantiated)
	dict := p.Room(8 * len(args))
	for i, a := range args {
		p.Words[dict+8*arch.Addr(i)] = uint64(a)
	}
	per := p.Room(24) + 8 // the counts lie in front (methodtable.h, GenericsDictInfo)
	p.Words[per-8] = 1<<32 | uint64(len(args))<<48
	p.Words[per] = uint64(dict)
	p.Words[out.Table+p.offset("MethodTable", "PerInstInfo")] = uint64(per)
	return &out
}

// Continuation returns a class, derived from base, that the runtime has made for the Continuations of a method that
// the runtime suspends: the class has no metadata, and shares its EEClass with others. Only .NET 11 has such classes.
func (p *Program) Continuation(base *Class) *Class {
	p.t.Helper()
	at, ok := p.d.Global("ContinuationMethodTable")
	if !ok {
		p.t.Fatal("the descriptor has no ContinuationMethodTable")
	}
	p.Words[arch.Addr(at)] = uint64(base.Table)
	first := p.Room(structSize) // owner of the EEClass
	p.eeClass(first)
	out := Class{Base: base, Size: base.Size + 16, Table: p.Room(structSize)}
	p.Words[out.Table+p.offset("MethodTable", "ParentMethodTable")] = uint64(base.Table)
	class := p.offset("MethodTable", "EEClassOrCanonMT")
	p.Words[out.Table+class] = p.Words[first+class]
	if at, ok := p.d.Global("ContinuationSingletonEEClass"); ok {
		p.Words[arch.Addr(at)] = p.Words[first+class]
	}
	p.Uint32(out.Table+p.offset("MethodTable", "BaseSize"), out.Size+8)
	return &out
}

// ArrayOf returns the MethodTable of arrays of references to objects of a class.
func (p *Program) ArrayOf(c *Class) arch.Addr {
	p.t.Helper()
	mt := p.Room(structSize)
	p.Uint32(mt+p.offset("MethodTable", "MTFlags"), flagArray|8)
	p.Uint32(mt+p.offset("MethodTable", "BaseSize"), 24)
	p.Words[mt+p.offset("MethodTable", "PerInstInfo")] = uint64(c.Table)
	p.Words[mt+p.offset("MethodTable", "Module")] = p.Words[c.Table+p.offset("MethodTable", "Module")]
	p.eeClass(mt)
	return mt
}

// Object adds an object of a class, with 0 in all fields.
func (p *Program) Object(c *Class) arch.Addr {
	at := p.Room(int(c.Size))
	p.Words[at] = uint64(c.Table)
	return at
}

// Array adds an array with references to objects.
func (p *Program) Array(mt arch.Addr, refs ...arch.Addr) arch.Addr {
	at := p.Room(16 + 8*len(refs))
	p.Words[at], p.Words[at+8] = uint64(mt), uint64(len(refs))
	for i, r := range refs {
		p.Words[at+16+8*arch.Addr(i)] = uint64(r)
	}
	return at
}

// Set sets a field of an object of a class.
func (p *Program) Set(obj arch.Addr, c *Class, field string, value uint64) {
	p.t.Helper()
	for ; c != nil; c = c.Base {
		i := slices.IndexFunc(c.Fields, func(f Field) bool { return f.Name == field })
		if i < 0 {
			continue
		}
		at := obj + arch.Addr(c.Fields[i].Offset)
		if c.Fields[i].Type == Int32 {
			p.Uint32(at, uint32(value))
		} else {
			p.Words[at] = value
		}
		return
	}
	p.t.Fatalf("no field %s", field)
}

// metadata makes the metadata of an assembly (ECMA-335 II.22).
type metadata struct {
	ecma335test.Tables
	strings []byte
	blobs   []byte
	types   map[string]uint32 // rows, by the types' names
	rows    map[*Class]rows
	fields  uint32
	methods uint32
}

// rows are the first rows of a class in the tables.
type rows struct{ typ, field uint32 }

// The tables (II.22) and the width in bytes of cells with four bytes.
const (
	tableTypeDef   = 0x02
	tableField     = 0x04
	tableMethodDef = 0x06
	tableAssembly  = 0x20
	tableNested    = 0x29

	cellsTypeDef, cellsMethodDef = 6, 6
	publicNested                 = 2
)

func newMetadata(assembly string) *metadata {
	m := &metadata{
		strings: []byte{0}, blobs: []byte{0, 3, 0x20, 0, 1}, // the signature of a method without parameters
		types: map[string]uint32{}, rows: map[*Class]rows{},
	}
	m.Wide = func(table, i int) bool {
		switch table {
		case tableTypeDef:
			return i%cellsTypeDef == 0
		case tableMethodDef:
			return i%cellsMethodDef == 0
		case tableAssembly:
			return i == 0 || i == 5
		}
		return false
	}
	m.Row(tableAssembly, 0, 1, 0, 0, 0, 0, 0, m.str(assembly), 0)
	return m
}

func (m *metadata) str(s string) uint32 {
	at := len(m.strings)
	m.strings = append(append(m.strings, s...), 0)
	return uint32(at)
}

func (m *metadata) class(c *Class) {
	row := m.typeDef(c.Name)
	m.rows[c] = rows{row, m.fields + 1}
	for _, f := range c.Fields {
		m.Row(tableField, 0, m.str(f.Name), 0)
		m.fields++
	}
	for _, name := range c.Methods {
		m.Row(tableMethodDef, 0, 0, 0, m.str(name), 1, 1)
		m.methods++
	}
}

// typeDef adds a type, and before it the missing types around it.
func (m *metadata) typeDef(name string) uint32 {
	outer, own, nested := name, name, false
	if i := strings.LastIndexByte(name, '+'); i >= 0 {
		outer, own, nested = name[:i], name[i+1:], true
	}
	around, flags, space := uint32(0), uint32(0), ""
	if nested {
		if around = m.types[outer]; around == 0 {
			around = m.typeDef(outer)
		}
		flags = publicNested
	} else if i := strings.LastIndexByte(name, '.'); i >= 0 {
		space, own = name[:i], name[i+1:]
	}
	m.Row(tableTypeDef, flags, m.str(own), m.str(space), 0, m.fields+1, m.methods+1)
	row := m.Counts[tableTypeDef]
	if nested {
		m.Row(tableNested, row, around)
	}
	if m.types[name] != 0 {
		panic(fmt.Sprintf("%s is there twice", name))
	}
	m.types[name] = row
	return row
}

func (m *metadata) bytes() []byte {
	text := ecma335test.Container(
		ecma335test.Assembly, []string{"#~", "#Strings", "#Blob"}, [][]byte{m.Bytes(), m.strings, m.blobs})
	return append(text, make([]byte, -len(text)&3)...)
}
