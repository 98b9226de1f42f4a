// Package ilmap finds the IL instruction that a native instruction was compiled from. It reads the debug info of the
// JIT and the ReadyToRun compiler.
//
// Sources (dotnet/runtime): docs/design/datacontracts/DebugInfo.md, src/coreclr/vm/debuginfostore.cpp,
// src/coreclr/inc/nibblestream.h, cordebuginfo.h and patchpointinfo.h.
//
// The map is a list of points. A point has the native offset at which the code of an IL offset begins. Optimised code
// can have several places for one IL offset, or none. Inlined callees have no points: their code belongs to the call.
//
// All memory is hostile: lists are bounded, and bytes that contradict each other are an error.
package ilmap

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Point is the beginning of the code of an IL offset.
type Point struct {
	Native     uint32 // bytes from the start of the method's code
	IL         uint32 // bytes from the start of the method's IL; or Prolog, Epilog or NoMapping
	Call       bool   // the instruction is a call
	StackEmpty bool   // IL's evaluation stack is empty there
	Async      bool   // the method is suspended or resumed there (.NET 11)
}

// Values in place of an IL offset (cordebuginfo.h, enum MappingTypes).
const (
	NoMapping = 0xffff_ffff
	Prolog    = 0xffff_fffe
	Epilog    = 0xffff_fffd
)

// Mapped reports whether the code of p belongs to an IL instruction.
func (p *Point) Mapped() bool { return p.IL < Epilog }

// Map has the points of one method, by ascending native offset.
type Map []Point

// IL returns the IL offset of the instruction at a native offset: the IL offset of the last point with an IL offset
// at or before the instruction. Code before the first such point, the prolog, is at IL offset 0. exact is false if
// the nearest point has no IL offset.
func (m Map) IL(native uint32) (il uint32, exact bool) {
	i, _ := slices.BinarySearchFunc(m, uint64(native)+1, func(p Point, at uint64) int {
		if uint64(p.Native) < at {
			return -1
		}
		return 1
	})
	for k := i - 1; k >= 0; k-- {
		if m[k].Mapped() {
			return m[k].IL, exactly(m[k+1 : i])
		}
	}
	return 0, exactly(m[:i])
}

// Statement returns the IL that the instruction at a native offset can belong to: the statement of the instruction's
// point, and the statements around it. A call can have moved into the next statement, which uses the call's result.
// If two statements begin at the same instruction, only one of them has a point there.
func (m Map) Statement(native uint32) (start, end uint32) {
	const all = ^uint32(0)
	il, exact := m.IL(native)
	if !exact {
		return 0, all
	}
	start, end = 0, all
	next := all
	for i := range m {
		switch p := &m[i]; {
		case !p.Mapped():
		case p.IL < il:
			start = max(start, p.IL)
		case p.IL > il && p.IL < next:
			next, end = p.IL, next
		case p.IL > next:
			end = min(end, p.IL)
		}
	}
	return start, end
}

// Next returns the first IL offset behind il with a point; NoMapping: there is none. The code of the IL offsets in
// between has no points, and is part of the code of il.
func (m Map) Next(il uint32) uint32 {
	next := uint32(NoMapping)
	for i := range m {
		if p := &m[i]; p.Mapped() && p.IL > il {
			next = min(next, p.IL)
		}
	}
	return next
}

// exactly reports whether points without an IL offset mark nothing but the end of the prolog, or the beginning of the
// epilog.
func exactly(points []Point) bool {
	return !slices.ContainsFunc(points, func(p Point) bool { return p.IL == NoMapping })
}

// Await returns the IL offset of the await at which a method is suspended, by the method's own native offset; false:
// no point for suspensions is at the offset.
func (m Map) Await(native uint32) (il uint32, ok bool) {
	for i := range m {
		if p := &m[i]; p.Native == native && p.Async && p.Mapped() {
			return p.IL, true
		}
	}
	return 0, false
}

// Reader reads the maps of one runtime.
type Reader struct {
	mem     *target.Reader
	code    *codemap.Map
	l       layout
	version contract.Version
}

type layout struct {
	PatchSize   uint32 `clr:"PatchpointInfo.!,optional"`
	PatchLocals uint32 `clr:"PatchpointInfo.LocalCount,optional"`
	Version     uint64 `global:"DebugInfoVersion,optional" has:"HasVersion"`
	HasVersion  bool
}

// The versions of the contract. The descriptors of .NET 8 to 10 do not name the contract: the global DebugInfoVersion
// is our addition, and is 0 for the form of .NET 8 and 9.
const (
	versionNibbles = "0"
	versionPacked  = "1"  // .NET 10
	versionFat     = "2"  // previews of .NET 11
	version11      = "c1" // .NET 11
)

// Contract is the contract of debug info, and Versions are the known versions.
const Contract = "DebugInfo"

var Versions = []contract.Version{versionNibbles, versionPacked, versionFat, version11}

// ErrUnknown: the form of the runtime's maps is not known.
var ErrUnknown = errors.New("the form of this runtime's debug info is not known: update clrsnap")

// ErrCorrupt: the bytes of a map contradict each other.
var ErrCorrupt = errors.New("the debug info of a method is inconsistent")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// New binds a reader to the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor, code *codemap.Map) (*Reader, error) {
	r := &Reader{mem: target.NewReader(mem), code: code, version: d.Contracts[Contract]}
	if err := d.Bind(&r.l); err != nil {
		return nil, err
	}
	if r.version == "" && r.l.HasVersion {
		r.version = contract.Version(strconv.FormatUint(r.l.Version, 10))
	}
	return r, nil
}

// Of reads the map of c's method. The map is empty for a method without a map, such as a stub.
func (r *Reader) Of(c *codemap.Code) (Map, error) {
	info, err := r.code.DebugInfo(c)
	if err != nil || info.At == 0 {
		return nil, err
	}
	form, err := r.formOf(&info)
	if err != nil {
		return nil, err
	}
	at, err := r.headerAt(info.At, form)
	if err != nil {
		return nil, err
	}
	return r.bounds(at, form)
}

// headerAt returns the address of the header of debug info.
func (r *Reader) headerAt(at arch.Addr, f form) (arch.Addr, error) {
	if !f.extra {
		return at, nil
	}
	e, err := r.extra(at)
	return e.header, err
}

// form is the encoding of a method's debug info.
type form struct {
	extra  bool // a byte of flags comes first, and then the parts that the flags name
	fat    bool // the header can be a fat header
	packed uint // bits of the flags of a packed point; 0: points are in nibbles
}

// The first versions of the ReadyToRun format (readytorun.h) with packed points, and with 3 flags.
const (
	majorPacked = 16
	majorAsync  = 17
)

func (r *Reader) formOf(info *codemap.DebugInfo) (form, error) {
	switch {
	case info.Major != 0 && info.Major < majorPacked:
		return form{}, nil
	case info.Major != 0 && info.Major < majorAsync:
		return form{packed: 2}, nil
	case info.Major != 0 && (r.version == versionFat || r.version == version11):
		return form{packed: 3, fat: true}, nil
	case info.Major != 0: // the runtime only reads images with the form of its own code
	case r.version == versionNibbles:
		return form{extra: true}, nil
	case r.version == versionPacked:
		return form{extra: true, packed: 2}, nil
	case r.version == versionFat || r.version == version11:
		return form{packed: 3, fat: true}, nil
	}
	return form{}, fmt.Errorf("%w (contract DebugInfo %q)", ErrUnknown, r.version)
}

// Parts before the header (debuginfostore.cpp, enum EXTRA_DEBUG_INFO_FLAGS).
const (
	hasPatchpoints = 1
	hasRich        = 2

	maxLocals = 1 << 16
	maxRich   = 1 << 24 // bytes
)

// extra has the parts before the header.
type extra struct {
	rich     arch.Addr // the tree of inlined methods
	richSize uint32    // in bytes; 0: there is none
	header   arch.Addr
}

// extra finds the parts before the header.
func (r *Reader) extra(at arch.Addr) (e extra, err error) {
	flags, err := r.mem.Uint8(at)
	if err != nil {
		return e, err
	}
	if flags&^(hasPatchpoints|hasRich) != 0 {
		return e, corrupt("flags %#x at %v", flags, at)
	}
	at++
	if flags&hasPatchpoints != 0 {
		if r.l.PatchSize == contract.Absent || r.l.PatchLocals == contract.Absent {
			return e, ErrUnknown
		}
		n, err := r.mem.Uint32(at + arch.Addr(r.l.PatchLocals))
		if err != nil {
			return e, err
		}
		if n > maxLocals {
			return e, corrupt("patchpoints with %d locals at %v", n, at)
		}
		at += arch.Addr(r.l.PatchSize) + arch.Addr(n)*4
	}
	if flags&hasRich != 0 {
		n, err := r.mem.Uint32(at)
		if err != nil {
			return e, err
		}
		if n > maxRich {
			return e, corrupt("%d bytes of rich debug info at %v", n, at)
		}
		e.rich, e.richSize = at+4, n
		at += 4 + arch.Addr(n)
	}
	e.header = at
	return e, nil
}

const (
	maxHeader = (7*maxEncoded + 1) / 2 // bytes: seven numbers
	maxBounds = 1 << 20                // bytes of points
)

// header reads the header at an address. header reads the next page only if it must: the header can end with its
// page.
func (r *Reader) header(at arch.Addr, f form) (header, error) {
	const page = 4096
	if left := page - int(at%page); left < maxHeader {
		b, err := r.mem.Bytes(at, left)
		if err != nil {
			return header{}, err
		}
		if h, err := readHeader(b, f); err == nil {
			return h, nil
		}
	}
	b, err := r.mem.Bytes(at, maxHeader)
	if err != nil {
		return header{}, err
	}
	return readHeader(b, f)
}

// bounds reads the points behind the header at an address.
func (r *Reader) bounds(at arch.Addr, f form) (Map, error) {
	h, err := r.header(at, f)
	if err != nil {
		return nil, err
	}
	if h.size == 0 {
		return nil, nil
	}
	if h.size > maxBounds {
		return nil, corrupt("%d bytes of points at %v", h.size, at)
	}
	b, err := r.mem.Bytes(at+arch.Addr(h.at), int(h.size))
	if err != nil {
		return nil, err
	}
	return decode(b, f)
}
