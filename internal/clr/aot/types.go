package aot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/target"
)

// A MethodTable of a native AOT program has a head, the virtual methods, the interfaces, and then optional parts of
// four bytes: distances to the place of another structure. The first distance leads to the variable with the address
// of the TypeManager. So a MethodTable can be told from other memory.
//
// Sources (dotnet/runtime): src/coreclr/nativeaot/Common/src/Internal/Runtime/MethodTable.cs (GetFieldOffset,
// GenericDefinition, GenericArguments), src/coreclr/nativeaot/Runtime/inc/MethodTable.h.

// ErrUnnamed: the program's metadata does not name a type.
var ErrUnnamed = errors.New("the program does not name the type")

// Flags of a MethodTable. The lower half is the bytes of an element.
const (
	tableKind       = 0x3_0000
	kindDefinition  = 0x3_0000
	hasDispatchMap  = 0x4_0000
	isDynamic       = 0x8_0000 // made at run time, with addresses in place of distances
	hasFinalizer    = 0x10_0000
	hasReferences   = 0x100_0000
	hasSealedSlots  = 0x40_0000
	isGeneric       = 0x200_0000
	elementTypeAt   = 26
	elementTypeMask = 0x1f
	hasElements     = 0x8000_0000
)

// Element types (MethodTable.h, EETypeElementType). Structs and numbers have the first ones.
const (
	lastValue     = 0x12
	elementArray  = 0x17
	elementVector = 0x18
	elementByRef  = 0x19
	elementPtr    = 0x1a
	elementFnPtr  = 0x1b
)

// Bounds.
const (
	maxManagers  = 64
	maxKnown     = 1 << 16
	maxSlots     = 1 << 15 // of virtual methods
	lowestTable  = 1 << 16 // no memory lies below (vm.mmap_min_addr)
	maxTypeText  = 1 << 16 // of one type
	arrayBase    = 24      // BaseSize of an array, without bounds
	boundsSize   = 8       // of one dimension
	leastBase    = 24
	nearTables   = 64 << 10 // between a MethodTable of the compiler and the next
	inFront      = 8        // BaseSize counts the header in front of an object
	coreLib      = "System.Private.CoreLib"
	staticFields = "[static fields]"

	continuationClass = "System.Runtime.CompilerServices.Continuation"
)

type typeLayout struct {
	Flags      uint32 `clr:"MethodTable.Flags"`
	BaseSize   uint32 `clr:"MethodTable.BaseSize"`
	Related    uint32 `clr:"MethodTable.RelatedType"`
	Slots      uint32 `clr:"MethodTable.NumVtableSlots"`
	Interfaces uint32 `clr:"MethodTable.NumInterfaces"`
	VTable     uint32 `clr:"MethodTable.VTable"`

	Instance     arch.Addr `global:"RuntimeInstance"`
	TypeManagers uint32    `clr:"RuntimeInstance.TypeManagerList"`
	Next         uint32    `clr:"TypeManagerEntry.Next"`
	Manager      uint32    `clr:"TypeManagerEntry.TypeManager"`
}

// References returns the offsets of the references in objects of a class, in bytes from the start of an object. base
// is the BaseSize of the MethodTable.
type References func(mem *target.Reader, mt arch.Addr, base uint32) ([]uint32, error)

// Types are the types of a native AOT program, by their MethodTables. Types implements object.Types. Types is not safe
// for concurrent use.
type Types struct {
	mem        *target.Reader
	l          typeLayout
	names      *Names
	described  map[string]contract.Type
	references References
	low, high  arch.Addr // of the MethodTables that the compiler has made

	managers []arch.Addr
	known    map[arch.Addr]*known
	byName   map[string]arch.Addr // classes of CoreLib that are not generic; nil: not needed yet
}

// known is what has been read of a MethodTable.
type known struct {
	head
	class    name.Class
	full     string
	runtime  string // in the style of the runtime
	named    bool
	nameErr  error
	fields   []describedField
	fieldErr error
	hasRead  bool // fields
	places   []uint32
}

// describedField is a field of a described class.
type describedField struct {
	name      string
	offset    uint32
	reference bool
}

// head is the head of a MethodTable.
type head struct {
	flags, base uint32
	related     arch.Addr
	after       arch.Addr // of the optional parts

	// Classes that the compiler makes, with a few fields only: of the static fields of a class, and of the variables
	// that a method saves in a Continuation (GCStaticEETypeNode.cs, AsyncContinuationEETypeNode.cs). The latter has a
	// base class, and the name of the base class, as in CoreCLR.
	static, continues bool
}

func (h *head) element() uint32 { return h.flags >> elementTypeAt & elementTypeMask }

// NewTypes binds the types of the program that d describes.
func NewTypes(mem target.Memory, d *contract.Descriptor, names *Names, references References) (*Types, error) {
	t := &Types{
		mem: target.NewReader(mem), names: names, described: d.Types, references: references,
		known: map[arch.Addr]*known{},
	}
	for mt := range names.owners {
		if t.low == 0 || mt < t.low {
			t.low = mt
		}
		t.high = max(t.high, mt)
	}
	if err := d.Bind(&t.l); err != nil {
		return nil, err
	}
	return t, t.readManagers()
}

// readManagers lists the TypeManagers: there is one for each program or library that was compiled together.
func (t *Types) readManagers() error {
	instance, err := t.mem.Pointer(t.l.Instance)
	if err != nil {
		return err
	}
	at, err := t.mem.Pointer(instance + arch.Addr(t.l.TypeManagers))
	for n := 0; err == nil && at != 0 && n < maxManagers; n++ {
		manager, failed := t.mem.Pointer(at + arch.Addr(t.l.Manager))
		if failed != nil {
			return failed
		}
		t.managers = append(t.managers, manager)
		at, err = t.mem.Pointer(at + arch.Addr(t.l.Next))
	}
	return err
}

// get returns what is known of the MethodTable at an address.
func (t *Types) get(mt arch.Addr) (*known, error) {
	if k := t.known[mt]; k != nil {
		return k, nil
	}
	h, err := t.readHead(mt)
	if err != nil {
		return nil, err
	}
	if len(t.known) >= maxKnown {
		clear(t.known)
	}
	k := &known{head: h}
	t.known[mt] = k
	return k, nil
}

func (t *Types) readHead(mt arch.Addr) (h head, err error) {
	if mt < lowestTable || mt%8 != 0 || mt>>47 != 0 {
		return h, fmt.Errorf("%w: %v", types.ErrCorrupt, mt)
	}
	if h.flags, err = t.mem.Uint32(mt + arch.Addr(t.l.Flags)); err != nil {
		return h, err
	}
	if h.base, err = t.mem.Uint32(mt + arch.Addr(t.l.BaseSize)); err != nil {
		return h, err
	}
	if h.related, err = t.mem.Pointer(mt + arch.Addr(t.l.Related)); err != nil {
		return h, err
	}
	if h.flags&^hasReferences == 0 && h.base%8 == 0 && h.base >= leastBase && t.isNear(mt) {
		if base, err := t.Named(0, continuationClass); err == nil && base == h.related {
			h.continues = true
			return h, nil
		}
		h.static, h.related = true, 0 // there is nothing behind the size
		return h, nil
	}
	slots, err1 := t.mem.Uint16(mt + arch.Addr(t.l.Slots))
	interfaces, err2 := t.mem.Uint16(mt + arch.Addr(t.l.Interfaces))
	if err := errors.Join(err1, err2); err != nil {
		return h, err
	}
	if slots > maxSlots || interfaces > maxSlots {
		return h, fmt.Errorf("%w: %v has %d methods and %d interfaces", types.ErrCorrupt, mt, slots, interfaces)
	}
	h.after = mt + arch.Addr(t.l.VTable) + 8*arch.Addr(slots) + 8*arch.Addr(interfaces)
	variable, err := t.part(&h, 0)
	if err != nil {
		return h, err
	}
	manager, err := t.mem.Pointer(variable)
	if err != nil {
		return h, err
	}
	for _, m := range t.managers {
		if m == manager && m != 0 {
			return h, nil
		}
	}
	return h, fmt.Errorf("%w: %v belongs to no program", types.ErrCorrupt, mt)
}

// isNear reports whether an address is among the MethodTables that the compiler has made.
func (t *Types) isNear(mt arch.Addr) bool {
	return mt.In(t.low-min(t.low, nearTables), t.high+nearTables)
}

// part follows the optional part of a number.
func (t *Types) part(h *head, number int) (arch.Addr, error) {
	if h.flags&isDynamic != 0 {
		return t.mem.Pointer(h.after + 8*arch.Addr(number))
	}
	return t.distance(h.after + 4*arch.Addr(number))
}

// distance follows a distance at an address.
func (t *Types) distance(at arch.Addr) (arch.Addr, error) {
	d, err := t.mem.Uint32(at)
	return at + arch.Addr(int64(int32(d))), err
}

// generic returns the number of the optional part with the generic definition; the next part has the arguments.
func (h *head) generic() int {
	number := 2 // the TypeManager, and data that can be written
	for _, flag := range []uint32{hasDispatchMap, hasFinalizer, hasSealedSlots} {
		if h.flags&flag != 0 {
			number++
		}
	}
	return number
}

// Check implements object.Types.
func (t *Types) Check(mt arch.Addr) error {
	_, err := t.get(mt)
	return err
}

// Read implements object.Types.
func (t *Types) Read(mt arch.Addr) (types.Type, error) {
	k, err := t.get(mt)
	if err != nil {
		return types.Type{}, err
	}
	switch k.element() {
	case elementVector:
		return types.Type{Kind: types.SZArray, Elem: k.related}, nil
	case elementArray:
		rank := (int(k.base) - arrayBase) / boundsSize
		return types.Type{Kind: types.Array, Elem: k.related, Rank: max(rank, 1)}, nil
	case elementByRef:
		return types.Type{Kind: types.ByRef, Elem: k.related}, nil
	case elementPtr:
		return types.Type{Kind: types.Pointer, Elem: k.related}, nil
	case elementFnPtr:
		return types.Type{Kind: types.FnPtr}, nil
	}
	out := types.Type{Kind: types.Class}
	if k.flags&isGeneric == 0 || k.flags&tableKind == kindDefinition {
		return out, nil
	}
	out.Generic = true
	_, out.Args, err = t.instance(&k.head)
	return out, err
}

// instance returns the definition and the arguments of a generic type.
func (t *Types) instance(h *head) (of arch.Addr, args []arch.Addr, err error) {
	number := h.generic()
	if of, err = t.part(h, number); err != nil {
		return 0, nil, err
	}
	definition, err := t.get(of)
	if err != nil {
		return 0, nil, err
	}
	arity := int(definition.base) // a definition has no objects
	if definition.flags&tableKind != kindDefinition || arity == 0 || arity > types.MaxArgs {
		return 0, nil, fmt.Errorf("%w: %v is no generic definition", types.ErrCorrupt, of)
	}
	first, err := t.part(h, number+1)
	if err != nil {
		return 0, nil, err
	}
	if arity == 1 {
		return of, []arch.Addr{first}, nil
	}
	for i := range arity {
		at := first + 4*arch.Addr(i)
		arg, err := t.distance(at)
		if h.flags&isDynamic != 0 {
			arg, err = t.mem.Pointer(first + 8*arch.Addr(i))
		}
		if err != nil {
			return 0, nil, err
		}
		args = append(args, arg)
	}
	return of, args, nil
}

// HasStatics reports whether a MethodTable is of objects with static fields, of a class or of a thread.
func (t *Types) HasStatics(mt arch.Addr) bool {
	k, err := t.get(mt)
	return err == nil && k.static
}

// Base implements object.Types.
func (t *Types) Base(mt arch.Addr) (arch.Addr, error) {
	k, err := t.get(mt)
	if err != nil || k.static {
		return 0, err
	}
	switch k.element() {
	case elementVector, elementArray:
		return t.Named(0, "System.Array")
	case elementByRef, elementPtr, elementFnPtr:
		return 0, nil
	}
	return k.related, nil
}

// BaseSize implements object.Types.
func (t *Types) BaseSize(mt arch.Addr) (uint32, error) {
	k, err := t.get(mt)
	if err != nil {
		return 0, err
	}
	return k.base, nil
}

// ComponentSize implements object.Types.
func (t *Types) ComponentSize(mt arch.Addr) (uint32, error) {
	k, err := t.get(mt)
	if err != nil || k.flags&hasElements == 0 {
		return 0, err
	}
	return k.flags & 0xffff, nil
}

// IsValueType implements object.Types.
func (t *Types) IsValueType(mt arch.Addr) (bool, error) {
	k, err := t.get(mt)
	return err == nil && k.element() >= 1 && k.element() <= lastValue, err
}

// Class implements object.Types.
func (t *Types) Class(mt arch.Addr) (name.Class, error) {
	k, err := t.name(mt)
	if err != nil {
		return name.Class{}, err
	}
	return k.class, nil
}

// RuntimeName implements object.Types.
func (t *Types) RuntimeName(mt arch.Addr) (string, error) {
	k, err := t.name(mt)
	if err != nil {
		return "", err
	}
	return k.runtime, nil
}

// FullName implements object.Types.
func (t *Types) FullName(mt arch.Addr) (string, error) {
	k, err := t.name(mt)
	if err != nil {
		return "", err
	}
	return k.full, nil
}

// name names a type, once.
func (t *Types) name(mt arch.Addr) (*known, error) {
	k, err := t.get(mt)
	if err != nil || k.named {
		return k, errors.Join(err, k.errOf())
	}
	w := typeName{t: t, nodes: maxRecords, text: maxTypeText}
	full, assembly, err := w.of(mt, 0)
	if err == nil {
		k.full, k.class.Assembly = full.metadata, assembly
		k.class.Display, k.class.Short = full.texts[ecma335.Full], full.texts[ecma335.Short]
		k.runtime = full.texts[ecma335.Runtime]
	}
	k.named, k.nameErr = true, err
	return k, err
}

func (k *known) errOf() error {
	if k == nil {
		return nil
	}
	return k.nameErr
}

// styles is the number of styles of names.
const styles = int(ecma335.Runtime) + 1

// typeText is a type's name: as in the metadata, and in all styles.
type typeText struct {
	metadata string
	texts    [styles]string
}

// sameText is a name that is the same in all styles.
func sameText(s string) typeText { return typeText{s, [styles]string{s, s, s}} }

// typeName is the work on the name of one type, within bounds.
type typeName struct {
	t           *Types
	nodes, text int
}

func (w *typeName) of(mt arch.Addr, depth int) (out typeText, assembly string, err error) {
	if w.nodes--; w.nodes < 0 || depth > maxDepth || w.text < 0 {
		return out, "", fmt.Errorf("%w: it is too large", ErrUnnamed)
	}
	k, err := w.t.get(mt)
	if err != nil {
		return out, "", err
	}
	switch {
	case k.static:
		return sameText(staticFields), "", nil
	case k.continues:
		return w.of(k.related, depth+1)
	}
	typ, err := w.t.Read(mt)
	if err != nil {
		return out, "", err
	}
	switch typ.Kind {
	case types.Class:
		return w.class(mt, k, depth)
	case types.FnPtr:
		return sameText("delegate*"), "", nil
	case types.Pointer, types.ByRef:
		inner, assembly, err := w.of(typ.Elem, depth+1)
		for i, s := range inner.texts {
			if out.texts[i] = s + "*"; typ.Kind == types.ByRef {
				out.texts[i] = "ref " + s
			}
		}
		out.metadata = out.texts[ecma335.Full]
		return out, assembly, err
	}
	return w.array(mt, depth)
}

// array names an array type. An array of arrays has the ranks from the outside in.
func (w *typeName) array(mt arch.Addr, depth int) (out typeText, assembly string, err error) {
	var ranks strings.Builder
	for ; depth <= maxDepth; depth++ {
		typ, err := w.t.Read(mt)
		if err != nil {
			return out, "", err
		}
		switch {
		case typ.Kind == types.SZArray:
			ranks.WriteString("[]")
		case typ.Kind != types.Array:
			inner, assembly, err := w.of(mt, depth)
			for i, s := range inner.texts {
				out.texts[i] = s + ranks.String()
				w.text -= len(out.texts[i])
			}
			out.metadata = out.texts[ecma335.Full]
			return out, assembly, err
		case typ.Rank <= 1:
			ranks.WriteString("[*]")
		default:
			ranks.WriteString("[" + strings.Repeat(",", min(typ.Rank, maxRank)-1) + "]")
		}
		mt = typ.Elem
	}
	return out, "", fmt.Errorf("%w: it is too large", ErrUnnamed)
}

const maxRank = 32

// class names a class, a struct or an interface.
func (w *typeName) class(mt arch.Addr, k *known, depth int) (out typeText, assembly string, err error) {
	definition, args := mt, []arch.Addr(nil)
	if k.flags&isGeneric != 0 && k.flags&tableKind != kindDefinition {
		if definition, args, err = w.t.instance(&k.head); err != nil {
			return out, "", err
		}
	}
	if out.metadata, assembly, err = w.t.definition(definition); err != nil {
		return out, "", err
	}
	var texts [styles][]string
	for _, a := range args {
		arg, _, err := w.of(a, depth+1)
		if err != nil {
			return out, "", err
		}
		for style := range texts {
			texts[style] = append(texts[style], arg.texts[style])
		}
	}
	parsed := ecma335.ParseTypeName(out.metadata)
	for style := range texts {
		out.texts[style] = parsed.Format(texts[style], ecma335.Style(style))
		w.text -= len(out.texts[style])
	}
	return out, assembly, nil
}

// definition returns the metadata name of a defined type, and the assembly.
func (t *Types) definition(mt arch.Addr) (full, assembly string, err error) {
	token, ok := t.names.owners[mt]
	if !ok {
		return "", "", fmt.Errorf("%w at %v", ErrUnnamed, mt)
	}
	w := newNaming(t.names.metadata)
	full, assembly = w.qualified(tokenHandle(token), 0)
	if w.failed || full == "" {
		return "", "", fmt.Errorf("%w at %v", ErrUnnamed, mt)
	}
	return full, assembly, nil
}

// Named implements object.Types: in is ignored, and the class is one of System.Private.CoreLib.
func (t *Types) Named(_ arch.Addr, class string) (arch.Addr, error) {
	if t.byName == nil {
		t.byName = map[string]arch.Addr{}
		for mt := range t.names.owners {
			if full, assembly, err := t.definition(mt); err == nil && assembly == coreLib {
				t.byName[full] = mt
			}
		}
	}
	if mt := t.byName[class]; mt != 0 {
		return mt, nil
	}
	return 0, fmt.Errorf("%w: there is no class %s", ErrUnnamed, class)
}

// Direct implements object.Types: the places of thread-static fields are not known by name.
func (t *Types) Direct(_ arch.Addr, class, field string) (uint32, error) {
	return 0, fmt.Errorf("%w: %s.%s", types.ErrFields, class, field)
}

// EachField implements object.Types. Only the fields of described classes are known. A description is believed if the
// class has the described size, and the collector finds references exactly in the described fields.
func (t *Types) EachField(mt arch.Addr, visit func(name string, offset uint32, reference bool)) error {
	k, err := t.get(mt)
	if err != nil {
		return err
	}
	if !k.hasRead {
		k.fields, k.fieldErr = t.readFields(mt, k)
		k.hasRead = true
	}
	for _, f := range k.fields {
		visit(f.name, f.offset, f.reference)
	}
	return k.fieldErr
}

// Places returns the offsets of the references in objects of a class, without those in elements, in bytes from the
// start of an object.
func (t *Types) Places(mt arch.Addr) ([]uint32, error) {
	k, err := t.get(mt)
	if err != nil || k.flags&hasReferences == 0 {
		return nil, err
	}
	if k.places == nil {
		k.places, err = t.references(t.mem, mt, k.base)
	}
	return k.places, err
}

// isReference is the type of a described field that is a reference.
const isReference = "object"

func (t *Types) readFields(mt arch.Addr, k *known) ([]describedField, error) {
	full, err := t.FullName(mt)
	if err != nil {
		return nil, err
	}
	key := full
	if k.class.Assembly != coreLib {
		key = k.class.Assembly + "!" + full
	}
	class, ok := t.described[key]
	if !ok {
		return nil, fmt.Errorf("%w: of %s", types.ErrFields, k.class.Display)
	}
	if class.HasSize && class.Size+inFront != k.base {
		return nil, fmt.Errorf("%w: objects of %s have %d bytes", types.ErrFields, k.class.Display, k.base)
	}
	list, err := t.Places(mt)
	if err != nil {
		return nil, err
	}
	isRef := map[uint32]bool{}
	for _, off := range list {
		isRef[off] = true
	}
	var out []describedField
	for name, f := range class.Fields {
		if reference := f.Type == isReference; f.Type == anyType || reference == isRef[f.Offset] {
			out = append(out, describedField{name, f.Offset, isRef[f.Offset]})
			continue
		}
		return nil, fmt.Errorf("%w: %s.%s is not as described", types.ErrFields, k.class.Display, name)
	}
	slices.SortFunc(out, func(a, b describedField) int { return cmp.Compare(a.offset, b.offset) })
	return out, nil
}

// anyType is the type of a described field whose type is a parameter of a generic class.
const anyType = "any"
