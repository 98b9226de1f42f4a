package aot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/target"
)

// The names of static fields are in the program for the fields that reflection can reach, in the field map: flags, the
// MethodTable of the class, the record of the field, and for a reference the variable of the class and the place in
// the object (src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/DependencyAnalysis/ReflectionFieldMapNode.cs; the
// flags are FieldTableFlags of MappingTableFlags.cs).
//
// Of other fields the class is known if the class has a static constructor that runs late. The compiler makes a stub
// for each such class, with the variable of the class and the state of the constructor
// (Target_X64/X64ReadyToRunHelperNode.cs, GetGCStaticBase). Two facts lead from the state to the class:
//
//   - The context map has the MethodTable and the state, for classes with a MethodTable
//     (ClassConstructorContextMap.cs).
//   - The state begins as the address of the constructor. Later the state is zero, but the packed data has the
//     beginning: commands that the runtime executes at the start (src/coreclr/tools/Common/Internal/Runtime/
//     DehydratedData.cs, StartupCodeHelpers.cs, RehydrateData).

// Flags of the field map.
const (
	fieldStorage = 3
	gcStatic     = 2
	fieldDirect  = 4 // of a generic class: without the variable
)

// Bounds.
const (
	maxStaticNames = 1 << 18
	maxCode        = 256 << 20
	codePiece      = 1 << 20
)

// StaticFields is an object with the static fields of a class.
type StaticFields struct {
	Object arch.Addr
	StaticClass
	Names map[uint32]string // of the fields by their offsets in Object, as far as the program has the names
}

// StaticClass is a class with static fields.
type StaticClass struct {
	Table arch.Addr // the MethodTable; 0: not known
	Name  string    // for an unknown Table, without the arguments of a generic class; "": not known
}

// staticNames is what the program says of static fields.
type staticNames struct {
	classes map[arch.Addr]arch.Addr // MethodTables by the state of the static constructor
	fields  map[arch.Addr]namedFields
}

// namedFields are the fields of the class with a variable.
type namedFields struct {
	class arch.Addr
	names map[uint32]string
}

// readStaticNames reads the field map and the context map.
func (n *Names) readStaticNames(t *tables) {
	n.static = staticNames{classes: map[arch.Addr]arch.Addr{}, fields: map[arch.Addr]namedFields{}}
	const state = 8 // bytes of a static constructor's state
	eachEntry(t.contexts, func(r *reader) {
		class, known := t.address(r.unsigned())
		base, ok := t.address(r.unsigned())
		if known && ok && !r.bad {
			n.static.classes[base-state] = class
		}
	})
	left := maxStaticNames
	eachEntry(t.fieldMap, func(r *reader) {
		if flags := r.unsigned(); flags&fieldStorage != gcStatic || flags&fieldDirect != 0 {
			return
		}
		class, known := t.address(r.unsigned())
		record := reader{b: n.metadata, pos: int(r.unsigned())}
		variable, ok := t.address(r.unsigned())
		offset := r.unsigned()
		record.unsigned() // flags
		w := newNaming(n.metadata)
		name := w.string(record.unsigned())
		if !known || !ok || r.bad || record.bad || w.failed || name == "" || left <= 0 {
			return
		}
		left--
		f, again := n.static.fields[variable]
		switch {
		case !again:
			f = namedFields{class, map[uint32]string{}}
			n.static.fields[variable] = f
		case f.class != class:
			return // a variable belongs to one class
		}
		f.names[offset] = name
	})
}

// StaticFields returns the objects with static fields, and the classes as far as known. The code of the program lies
// from low to high.
func (n *Names) StaticFields(mem target.Memory, low, high arch.Addr) (out []StaticFields, err error) {
	if n.stubs == nil {
		n.stubs = n.findStubs(mem, low, high)
	}
	err = n.eachVariable(mem, func(variable, obj arch.Addr) {
		class, f := n.stubs[variable], n.static.fields[variable]
		if class.Table != 0 && f.class != class.Table {
			f.names = nil
		} else if f.class != 0 {
			class = StaticClass{Table: f.class}
		}
		out = append(out, StaticFields{obj, class, f.names})
	})
	return out, err
}

// findStubs finds the stubs that run static constructors, and returns the classes by their variables. A variable with
// two states is left out.
func (n *Names) findStubs(mem target.Memory, low, high arch.Addr) map[arch.Addr]StaticClass {
	out := map[arch.Addr]StaticClass{}
	if low >= high || high-low > maxCode {
		return out
	}
	r := target.NewReader(mem)
	states := map[arch.Addr]arch.Addr{}
	for at := low; at < high; at += codePiece {
		code, err := r.Bytes(at, int(min(codePiece+stubSize-1, high-at)))
		if err != nil {
			continue // a gap, or memory that a core dump lacks
		}
		eachStub(code, at, func(variable, state arch.Addr) {
			if other, ok := states[variable]; ok && other != state {
				state = 0
			}
			states[variable] = state
		})
	}
	names := map[arch.Addr]string{}
	for _, state := range states {
		names[state] = ""
	}
	n.nameStates(r, names)
	for variable, state := range states {
		if class := (StaticClass{n.static.classes[state], names[state]}); class != (StaticClass{}) && state != 0 {
			out[variable] = class
		}
	}
	return out
}

// nameStates names the classes by the states of their static constructors, as the packed data has the states.
func (n *Names) nameStates(r *target.Reader, names map[arch.Addr]string) {
	if n.packed.length == 0 || n.packed.length > maxBlob {
		return
	}
	b, err := r.Pieces(n.packed.at, int(n.packed.length))
	if err != nil {
		return
	}
	eachPacked(b, n.packed.at, func(at, to arch.Addr) {
		if _, ok := names[at]; ok {
			names[at] = n.constructed(to)
		}
	})
}

// constructed returns the name of the class whose static constructor begins at an address; "": not known.
func (n *Names) constructed(start arch.Addr) string {
	i, ok := slices.BinarySearchFunc(n.entries, start, func(e entry, at arch.Addr) int {
		return cmp.Compare(e.start, at)
	})
	if !ok || i+1 < len(n.entries) && n.entries[i+1].start == start {
		return "" // several methods share the code
	}
	w := newNaming(n.metadata)
	owner := tokenHandle(n.entries[i].owner)
	if owner.kind == typeSpecification {
		owner, _ = w.instance(owner)
	}
	class, _ := w.qualified(owner, 0)
	if w.string(n.entries[i].name) != staticConstructor || w.failed {
		return ""
	}
	return ecma335.ParseTypeName(class).Format(nil, ecma335.Full)
}

const staticConstructor = ".cctor"

// The stub: lea rax,[variable]; mov rsi,[rax]; lea rdi,[state]; jmp.
var (
	stubVariable = []byte{0x48, 0x8d, 0x05}
	stubState    = []byte{0x48, 0x8b, 0x30, 0x48, 0x8d, 0x3d}
)

const (
	stubStateAt = 7
	stubJumpAt  = 17
	stubJump    = 0xe9
	stubSize    = 22
)

// eachStub visits the stubs in code at an address.
func eachStub(code []byte, at arch.Addr, visit func(variable, state arch.Addr)) {
	distance := func(end int) arch.Addr { // of the operand that ends there
		d := int32(binary.LittleEndian.Uint32(code[end-4:]))
		return at + arch.Addr(end) + arch.Addr(int64(d))
	}
	for i := 0; ; i++ {
		next := bytes.Index(code[i:], stubVariable)
		if next < 0 || i+next+stubSize > len(code) {
			return
		}
		i += next
		if bytes.HasPrefix(code[i+stubStateAt:], stubState) && code[i+stubJumpAt] == stubJump {
			visit(distance(i+stubStateAt), distance(i+stubJumpAt))
		}
	}
}
