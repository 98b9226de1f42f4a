package aot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/target"
)

// ErrFormat: the program has no names of methods, or names in an unknown form.
var ErrFormat = errors.New("no names of methods that can be read")

// Sections of the ReadyToRun header (inc/ModuleHeaders.h): readonly blobs have the numbers of ReflectionMapBlob
// (Common/src/Internal/Runtime/MetadataBlob.cs) from 300 on.
const (
	staticRegion     = 201
	packedData       = 207
	typeMap          = 300 + 1
	invokeMap        = 300 + 6
	commonFixups     = 300 + 8
	fieldMap         = 300 + 9
	contextMap       = 300 + 10
	embeddedMetadata = 300 + 13
	stackTraceMap    = 300 + 27
	lineNumbers      = 300 + 28
	documents        = 300 + 29

	headerSignature = 0x00525452 // "RTR\0"
	headerMajor     = 26         // of .NET 11
	headerSize      = 16         // u32 signature, u16 major, u16 minor, u32 flags, u16 sections, u8 size, u8 kind
	sectionSize     = 16         // u32 id, u32 length, pointer
	maxSections     = 1 << 10
	maxBlob         = 64 << 20
	maxMethods      = 1 << 20 // a small web service has 19,000
)

// Commands of the stack trace map (Common/src/Internal/Runtime/StackTraceData.cs): the fields that an entry has. The
// other fields have the values of the entry before.
const (
	newOwner = 1 << iota
	newName
	newSignature
	newGenericSignature
	hiddenInTraces
	knownCommands = 1<<iota - 1
)

// layout has the fields of the runtime's structures.
type layout struct {
	Instance     arch.Addr `global:"RuntimeInstance"`
	TypeManagers uint32    `clr:"RuntimeInstance.TypeManagerList"`
	Manager      uint32    `clr:"TypeManagerEntry.TypeManager"`
	Header       uint32    `clr:"TypeManager.Header"`
	CodeStart    uint32    `clr:"RuntimeInstance.ManagedCodeStartRange"`
	CodeSize     uint32    `clr:"RuntimeInstance.ManagedCodeRangeSize"`
}

// entry is one method of the map. Offsets are in the metadata.
type entry struct {
	start     arch.Addr
	owner     uint32 // a token
	name      uint32
	signature uint32
	arguments uint32 // names of the arguments of a generic method; 0: none
}

// Names are the methods of a program. Names is not safe for concurrent use.
type Names struct {
	metadata []byte
	entries  []entry              // by start; only methods with a name
	owners   map[arch.Addr]uint32 // tokens of the defined types, by MethodTable
	statics  section
	static   staticNames
	stubs    map[arch.Addr]StaticClass // by the variables of static fields; nil: not looked for
	packed   section
	lines    lineTable
	hidden   map[arch.Addr]bool // in stack traces of exceptions, by start
	known    map[arch.Addr]name.Method
	room     int // bytes left for known
}

// maxKept bounds the text of the kept names.
const maxKept = 32 << 20

// Open finds the names of the program of the runtime that d describes.
func Open(mem target.Memory, d *contract.Descriptor) (*Names, error) {
	var l layout
	if err := d.Bind(&l); err != nil {
		return nil, err
	}
	r := target.NewReader(mem)
	at := l.Instance
	for _, off := range []uint32{0, l.TypeManagers, l.Manager, l.Header} {
		next, err := r.Pointer(at + arch.Addr(off))
		if err != nil {
			return nil, err
		}
		if at = next; at == 0 {
			return nil, fmt.Errorf("%w: the runtime is only starting", ErrFormat)
		}
	}
	sections, err := readHeader(r, at)
	if err != nil {
		return nil, err
	}
	metadata, err := sections.read(r, embeddedMetadata)
	if err != nil {
		return nil, err
	}
	methods, err := sections.read(r, stackTraceMap)
	if err != nil {
		return nil, err
	}
	// A program without methods that reflection can call has none of these blobs.
	t := &tables{fixupsAt: sections[commonFixups].at}
	if err := t.readRange(r, &l); err != nil {
		return nil, err
	}
	for blob, id := range map[*[]byte]uint32{
		&t.invokeMap: invokeMap, &t.typeMap: typeMap, &t.fixups: commonFixups, &t.fieldMap: fieldMap,
		&t.contexts: contextMap,
	} {
		if *blob, err = sections.read(r, id); err != nil && !errors.Is(err, ErrFormat) {
			return nil, err
		}
	}
	n, err := parse(metadata, methods, sections[stackTraceMap].at, t)
	if err != nil {
		return nil, err
	}
	n.statics, n.packed = sections[staticRegion], sections[packedData]
	points, err1 := sections.read(r, lineNumbers)
	names, err2 := sections.read(r, documents)
	if err1 == nil && err2 == nil {
		n.lines = newLineTable(points, names, t)
	}
	return n, nil
}

// section is a section of the header.
type section struct {
	at     arch.Addr
	length uint32
}

type sections map[uint32]section

// readHeader reads the ReadyToRun header of the program.
func readHeader(r *target.Reader, at arch.Addr) (sections, error) {
	le := binary.LittleEndian
	h, err := r.Bytes(at, headerSize)
	if err != nil {
		return nil, err
	}
	count := int(le.Uint16(h[12:]))
	if le.Uint32(h) != headerSignature || le.Uint16(h[4:]) != headerMajor || h[14] != sectionSize ||
		count > maxSections {
		return nil, fmt.Errorf("%w: the header at %v is not of .NET 11", ErrFormat, at)
	}
	b, err := r.Bytes(at+headerSize, count*sectionSize)
	if err != nil {
		return nil, err
	}
	out := sections{}
	for ; len(b) > 0; b = b[sectionSize:] {
		out[le.Uint32(b)] = section{arch.Addr(le.Uint64(b[8:])), le.Uint32(b[4:])}
	}
	return out, nil
}

func (s sections) read(r *target.Reader, id uint32) ([]byte, error) {
	at, ok := s[id]
	if !ok || at.length < 4 || at.length > maxBlob {
		return nil, fmt.Errorf("%w: section %d has %d bytes", ErrFormat, id, at.length)
	}
	return r.Pieces(at.at, int(at.length))
}

// parse reads the stack trace map at an address, and the invoke map.
func parse(metadata, methods []byte, at arch.Addr, t *tables) (*Names, error) {
	if len(metadata) < 4 || binary.LittleEndian.Uint32(metadata) != metadataSignature {
		return nil, fmt.Errorf("%w: the metadata does not begin as such", ErrFormat)
	}
	n := &Names{
		metadata: metadata, known: map[arch.Addr]name.Method{}, room: maxKept, hidden: map[arch.Addr]bool{},
	}
	r := reader{b: methods}
	count := r.u32()
	if count > maxMethods {
		return nil, fmt.Errorf("%w: the map has %d methods", ErrFormat, count)
	}
	var e entry
	for range count {
		command := r.u8()
		if command&^knownCommands != 0 {
			return nil, fmt.Errorf("%w: command %#x of the map", ErrFormat, command)
		}
		if command&newOwner != 0 {
			e.owner = r.u32()
		}
		if command&newName != 0 {
			e.name = r.unsigned()
		}
		if command&newSignature != 0 {
			e.signature, e.arguments = r.unsigned(), 0
		}
		if command&newGenericSignature != 0 {
			e.signature, e.arguments = r.unsigned(), r.unsigned()
		}
		from := at + arch.Addr(r.pos)
		e.start = from + arch.Addr(int64(int32(r.u32())))
		if r.bad {
			return nil, fmt.Errorf("%w: the map has fewer than its %d methods", ErrFormat, count)
		}
		if command&hiddenInTraces != 0 {
			n.hidden[e.start] = true
		}
		if e.owner != 0 && e.name != 0 {
			n.entries = append(n.entries, e)
		}
	}
	n.owners = t.readOwners()
	n.addInvoked(t)
	n.readStaticNames(t)
	slices.SortFunc(n.entries, func(a, b entry) int { return cmp.Compare(a.start, b.start) })
	return n, nil
}

// MethodStart returns the start of the code of the method with a part at start: an exception handler, for example, is
// a function of its own. data is the address of the language-specific data in the unwind information of the part
// (UnixNativeCodeManager.cpp): a byte of flags and, for a part, the distance to the main function's data and the
// distance from the method's start.
func MethodStart(mem target.Memory, start, data arch.Addr) (arch.Addr, error) {
	const partKinds = 3
	r := target.NewReader(mem)
	flags, err := r.Uint8(data)
	if err != nil || flags&partKinds == 0 {
		return start, err
	}
	distance, err := r.Uint32(data + 1 + 4)
	return start - arch.Addr(distance), err
}

// Hidden reports whether .NET leaves a method out of stack traces of exceptions, by the start of the code.
func (n *Names) Hidden(start arch.Addr) bool { return n.hidden[start] }

// Len returns the number of methods with a name.
func (n *Names) Len() int { return len(n.entries) }

// Method returns the method whose code starts at an address; false: the name is not known.
func (n *Names) Method(start arch.Addr) (name.Method, bool) {
	if m, ok := n.known[start]; ok {
		return m, m.Exact != ""
	}
	i, ok := slices.BinarySearchFunc(n.entries, start, func(e entry, at arch.Addr) int {
		return cmp.Compare(e.start, at)
	})
	if !ok {
		return name.Method{}, false
	}
	m, ok := n.name(&n.entries[i])
	if !ok {
		m = name.Method{}
	}
	if n.room -= len(m.Exact) + len(m.Display) + len(m.Short) + len(m.Signature) + len(m.Assembly); n.room < 0 {
		clear(n.known)
		n.room = maxKept
	}
	n.known[start] = m
	return m, ok
}

// name names a method as package name does. Only the signature may be missing; the parts of the method's own name are
// required.
func (n *Names) name(e *entry) (m name.Method, ok bool) {
	w := newNaming(n.metadata)
	owner := tokenHandle(e.owner)
	var typeArgs [2][]string
	if owner.kind == typeSpecification {
		owner, typeArgs = w.instance(owner)
	}
	typeName, assembly := w.qualified(owner, 0)
	method := w.string(e.name)
	if w.failed || typeName == "" || method == "" {
		return m, false
	}
	hint := name.NoHint
	if w.isStruct(owner) {
		hint = name.Async // only state machines of async methods can be structs
	}
	if e.arguments != 0 {
		w.methodArgs = w.strings(e.arguments)
	}
	if w.failed {
		return m, false
	}
	f := name.FriendlyName(typeName, method, hint)
	m = name.Method{Exact: typeName + "." + method, Assembly: assembly}
	m.Display = f.Text(typeArgs[ecma335.Full], w.arguments(ecma335.Full), ecma335.Full)
	m.Short = f.Text(typeArgs[ecma335.Short], w.arguments(ecma335.Short), ecma335.Short)
	if f.Kind != name.StateMachine && e.signature != 0 && e.signature <= math.MaxInt32 {
		m.Signature = w.signature(e.signature)
	}
	return m, true
}

// instance returns the generic type of an instantiated type, and the arguments in both styles.
func (n *naming) instance(h handle) (of handle, args [2][]string) {
	r := n.record(h.at, 0)
	signature := r.handle()
	if r.bad || signature.kind != typeInstantiationSignature {
		n.failed = true
		return of, args
	}
	for style := range args {
		r := n.record(signature.at, 0)
		of = r.handle()
		args[style] = n.types(r, ecma335.Style(style), 1)
	}
	return of, args
}

// arguments returns the arguments of a generic method.
func (n *naming) arguments(style ecma335.Style) []string {
	var out []string
	for _, a := range n.methodArgs {
		out = append(out, ecma335.ParseTypeName(a).Format(nil, style))
	}
	return out
}
