package contract

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Symbol is the exported name of the descriptor.
const Symbol = "DotNetRuntimeContractDescriptor"

// Bounds. The descriptor of .NET 10 has 10 KB of JSON and 24 pointers.
const (
	maxJSON     = 1 << 20
	maxPointers = 1 << 12
	maxOffset   = 1 << 20 // of a field, and size of a type: StressLogChunk is the largest with 32 KB
)

// ErrFormat: there is no descriptor at the descriptor's address, or no readable descriptor. Errors that wrap
// ErrFormat say what is wrong.
var ErrFormat = errors.New("unreadable data descriptor")

// Version is the version of a contract: "2" where the runtime gives an
// integer (.NET 9, 10), "c1" where it gives a string (.NET 11).
type Version string

// Type is one structure.
type Type struct {
	Size    uint32 // in bytes
	HasSize bool
	Fields  map[string]Field
}

// Field is one field of a structure.
type Field struct {
	Offset uint32 // in bytes
	Type   string // as the descriptor names it; mostly empty
}

// Global is one value.
type Global struct {
	Value    uint64 // an address for pointers
	Number   bool   // Value is meaningful
	Text     string // strings, and numbers in their written form where the value was a string
	Type     string // as the descriptor names it; may be empty
	Indirect bool   // Value came from the pointer data
}

// Descriptor is a parsed data descriptor.
type Descriptor struct {
	Types          map[string]Type
	Globals        map[string]Global
	Contracts      map[string]Version
	SubDescriptors map[string]Global

	// Runtime names the runtime in errors, for example "10.0.12"; a caller that
	// knows the version sets it.
	Runtime string
}

// header is struct DotNetRuntimeContractDescriptor (contract-descriptor.md): u64 magic, u32 flags, u32 size of the
// JSON, pointer to the JSON, u32 count of pointer data, u32 padding, pointer to the pointer data.
const (
	headerSize     = 40
	magic          = 0x00434144_43434e44 // "DNCCDAC\0" in little-endian order
	flagAlways     = 1                   // bit 0 is always set
	flagPointer32  = 2
	offFlags       = 8
	offJSONSize    = 12
	offJSON        = 16
	offPointers    = 24
	offPointerData = 32
)

// Parse reads the descriptor at addr, the address of Symbol.
func Parse(mem target.Memory, addr arch.Addr) (*Descriptor, error) {
	d, err := parse(mem, addr)
	if err != nil {
		return nil, fmt.Errorf("data descriptor at %v: %w", addr, err)
	}
	return d, nil
}

func parse(mem target.Memory, addr arch.Addr) (*Descriptor, error) {
	var h [headerSize]byte
	if err := mem.ReadMemory(h[:], addr); err != nil {
		return nil, err
	}
	if err := checkHeader(h[:]); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	text := make([]byte, le.Uint32(h[offJSONSize:]))
	if err := mem.ReadMemory(text, arch.Addr(le.Uint64(h[offJSON:]))); err != nil {
		return nil, fmt.Errorf("its JSON: %w", err)
	}
	pointers := make([]uint64, le.Uint32(h[offPointers:]))
	if len(pointers) > 0 {
		b := make([]byte, 8*len(pointers))
		if err := mem.ReadMemory(b, arch.Addr(le.Uint64(h[offPointerData:]))); err != nil {
			return nil, fmt.Errorf("its pointer data: %w", err)
		}
		for i := range pointers {
			pointers[i] = le.Uint64(b[8*i:])
		}
	}
	return FromJSON(text, pointers)
}

// Part reads the descriptor of a part of the runtime, an entry of SubDescriptors. The entry is the address of a
// variable. The variable holds the address of the part's descriptor as soon as the part has started. Until then, Part
// returns nil.
func (d *Descriptor) Part(mem target.Memory, name string) (*Descriptor, error) {
	g, ok := d.SubDescriptors[name]
	if !ok || !g.Indirect {
		return nil, fmt.Errorf("%w: there is no descriptor of the part %q", ErrFormat, name)
	}
	at, err := target.NewReader(mem).Pointer(arch.Addr(g.Value))
	if err != nil || at == 0 {
		return nil, err
	}
	part, err := Parse(mem, at)
	if err != nil {
		return nil, fmt.Errorf("the part %s: %w", name, err)
	}
	part.Runtime = d.Runtime
	return part, nil
}

func checkHeader(h []byte) error {
	le := binary.LittleEndian
	switch m := le.Uint64(h); {
	case m == magic:
	case binary.BigEndian.Uint64(h) == magic:
		return fmt.Errorf("%w: it is of a big-endian process, which is not supported", ErrFormat)
	default:
		return fmt.Errorf("%w: it begins with %q instead of \"DNCCDAC\\x00\"", ErrFormat, h[:8])
	}
	flags, size, count := le.Uint32(h[offFlags:]), le.Uint32(h[offJSONSize:]), le.Uint32(h[offPointers:])
	switch {
	case flags&flagAlways == 0:
		return fmt.Errorf("%w: flags %#x", ErrFormat, flags)
	case flags&flagPointer32 != 0:
		return fmt.Errorf("%w: it is of a 32-bit process, which is not supported", ErrFormat)
	case size == 0 || size > maxJSON:
		return fmt.Errorf("%w: %d bytes of JSON (at most %d are read)", ErrFormat, size, maxJSON)
	case count > maxPointers:
		return fmt.Errorf("%w: %d pointers (at most %d are read)", ErrFormat, count, maxPointers)
	}
	return nil
}

// Offset returns the offset in bytes of a field.
func (d *Descriptor) Offset(typ, field string) (uint32, bool) {
	f, ok := d.Types[typ].Fields[field]
	return f.Offset, ok
}

// Size returns the size in bytes of a type.
func (d *Descriptor) Size(typ string) (uint32, bool) {
	t := d.Types[typ]
	return t.Size, t.HasSize
}

// Global returns the numeric value of a global.
func (d *Descriptor) Global(name string) (uint64, bool) {
	g := d.Globals[name]
	return g.Value, g.Number
}

// GlobalString returns the text of a global such as "Architecture" ("x64").
// Do not rely on "OperatingSystem": .NET 10 has "1" there on Linux, because the
// compiler's macro «unix» is expanded in the descriptor.
func (d *Descriptor) GlobalString(name string) (string, bool) {
	g, ok := d.Globals[name]
	return g.Text, ok && !g.Indirect
}

// Allow reports an *UnknownVersionError if the runtime follows a version of a contract that the caller does not
// understand. Many runtimes do not name all their contracts; a missing contract is no error.
func (d *Descriptor) Allow(name string, understood ...Version) error {
	if v, ok := d.Contracts[name]; ok && !slices.Contains(understood, v) {
		return &UnknownVersionError{Contract: name, Found: v, Understood: understood, Runtime: d.Runtime}
	}
	return nil
}

// Require checks that the runtime has each of the contracts in one of the versions that the caller understands.
// Require reports the first problem in order of name: *MissingError or *UnknownVersionError.
func (d *Descriptor) Require(needs map[string][]Version) error {
	missing := &MissingError{Runtime: d.Runtime}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		v, ok := d.Contracts[name]
		switch {
		case !ok:
			missing.Missing = append(missing.Missing, "contract "+name)
		case !slices.Contains(needs[name], v):
			return &UnknownVersionError{Contract: name, Found: v, Understood: needs[name], Runtime: d.Runtime}
		}
	}
	if len(missing.Missing) > 0 {
		return missing
	}
	return nil
}
