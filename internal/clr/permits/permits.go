// Package permits says which permits of semaphores a method holds at its current place, and which tasks the method is
// going to complete.
//
// A SemaphoreSlim does not know the holders of its permits: any waiter may go on, and anybody may release the
// semaphore. But code tells. A method between a Wait or WaitAsync and the Release of the same object, in the order of
// the IL, most likely holds a permit, whether the method is on a stack or suspended at an await. So does a method
// between a waiting call and a releasing call; and a method with an object to dispose of, if the object's Dispose
// releases (using). A method in front of a call of TaskCompletionSource.SetResult will most likely complete the
// source.
//
// The IL also tells the object: fields and properties lead from an argument, a variable or a static field to the
// object. The references are followed in memory.
//
// None of these facts is a proof. A permit may be handed over, a Wait with a timeout may have failed, a Release may
// lie behind an untaken branch, and IL replaced by a profiler is not seen. Results of this package are called likely.
//
// Sources: the public interface of System.Threading.SemaphoreSlim and System.Threading.Tasks.TaskCompletionSource;
// compilers' names of state machines and closures (dotnet/roslyn, GeneratedNames.cs); ECMA-335 for IL.
package permits

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// The classes of this package.
const (
	coreLib    = "System.Private.CoreLib"
	Semaphore  = "System.Threading.SemaphoreSlim"
	Completion = "System.Threading.Tasks.TaskCompletionSource"
)

const (
	maxCodes = 1 << 14 // methods whose code is kept
	maxIL    = 4 << 20 // bytes of IL read for a method
)

// Reader reads the permits and promises of the methods of a runtime. A Reader is not safe for concurrent use.
type Reader struct {
	names   *name.Namer
	types   *types.System
	objects *object.Reader
	codes   map[codeKey]*Code
	modules map[arch.Addr]*module
	uses    map[useKey]*Use
	room    int // bytes of IL still allowed
}

type codeKey struct {
	module arch.Addr
	rid    uint32
	depth  int
}

// New returns a Reader of code, by names, and of objects.
func New(objects *object.Reader, names *name.Namer, ts *types.System) *Reader {
	return &Reader{
		names: names, types: ts, objects: objects, codes: map[codeKey]*Code{}, modules: map[arch.Addr]*module{},
		uses: map[useKey]*Use{},
	}
}

// Code is a method's use of semaphores and TaskCompletionSources.
type Code struct {
	Sections []Section
	Promises []Promise

	takes []taking
	gives []*ecma335.Value // permits released and not taken by the method
	async bool

	completes bool // the method, or a method that it calls, completes a TaskCompletionSource
}

// taking is where a method takes a permit that the method does not release itself.
type taking struct {
	from   uint32 // behind this offset, the permit is held
	object *ecma335.Value
}

// Section is a part of a method's IL in which the method holds a permit.
type Section struct {
	From, To uint32         // the permit is held behind the instruction From, until the instruction To
	Object   *ecma335.Value // the semaphore; with Closes the object of the Dispose at To
	Closes   bool
	Type     ecma335.Token // of the object of a Dispose, if the object is a struct; RID 0: no struct
}

// Promise is where a method completes a TaskCompletionSource.
type Promise struct {
	At     uint32
	Object *ecma335.Value
}

// Empty reports whether a method uses neither semaphores nor TaskCompletionSources.
func (c *Code) Empty() bool { return c == nil || len(c.Sections) == 0 && len(c.Promises) == 0 }

// At returns the held permits and the promises of a method at an instruction between two offsets.
func (c *Code) At(from, to uint32) (held []Section, promised []Promise) {
	for _, s := range c.Sections {
		if s.From < from && to <= s.To {
			held = append(held, s)
		}
	}
	for _, p := range c.Promises {
		if p.At >= to {
			promised = append(promised, p)
		}
	}
	return held, promised
}

// From returns the permits that a method holds behind the await of a permit at an offset, until the method's own
// release.
func (c *Code) From(at uint32) (out []Section) {
	for _, s := range c.Sections {
		if s.From == at && !s.Closes {
			out = append(out, s)
		}
	}
	return out
}

// Completes reports whether a method, or a method of its module that the method calls, completes some
// TaskCompletionSource.
func (c *Code) Completes() bool { return c != nil && c.completes }

// Takes returns the semaphores whose permits a method takes at the await at an offset, for another method to
// release.
func (c *Code) Takes(at uint32) (out []*ecma335.Value) {
	if c == nil {
		return nil
	}
	for _, t := range c.takes {
		if t.from == at {
			out = append(out, t.object)
		}
	}
	return out
}

// TakesWithin returns the offset at which a method takes a permit for another method to release, between two offsets;
// false: there is none.
func (c *Code) TakesWithin(from, to uint32) (at uint32, ok bool) {
	if c == nil {
		return 0, false
	}
	i := slices.IndexFunc(c.takes, func(t taking) bool { return t.from >= from && t.from < to })
	if i < 0 {
		return 0, false
	}
	return c.takes[i].from, true
}

// module is a module with the relevant references.
type module struct {
	name.Assembly
	tokens map[ecma335.Token]verb // of its MemberRefs
}

// verb is the action of a framework method.
type verb uint8

const (
	nothing verb = iota
	waits        // for a permit
	begins       // to wait for a permit, and returns a task
	releases
	completes
)

// verbOf returns the action of a method.
func verbOf(f *ecma335.Member) verb {
	switch f.Owner {
	case Semaphore:
		switch f.Name {
		case "Wait":
			return waits
		case "WaitAsync":
			return begins
		case "Release":
			return releases
		}
	case Completion, Completion + "`1":
		if strings.HasPrefix(f.Name, "Set") || strings.HasPrefix(f.Name, "TrySet") {
			return completes
		}
	}
	return nothing
}

// module returns a module with its references; nil: the module names neither class.
func (r *Reader) module(at arch.Addr) (*module, error) {
	if m, ok := r.modules[at]; ok {
		return m, nil
	}
	a, err := r.names.Assembly(at)
	if err != nil {
		return nil, err
	}
	m := &module{Assembly: a, tokens: map[ecma335.Token]verb{}}
	if a.Name == coreLib || a.Base == 0 {
		m = nil
	} else {
		m.find()
	}
	if m != nil && len(m.tokens) == 0 {
		m = nil
	}
	if len(r.modules) >= maxCodes {
		clear(r.modules)
	}
	r.modules[at] = m
	return m, nil
}

// Matters reports whether a module has relevant calls.
func (r *Reader) Matters(at arch.Addr) bool {
	m, err := r.module(at)
	return m != nil && err == nil
}

// find finds the references to the relevant methods.
func (m *module) find() {
	md := m.Metadata
	for rid := uint32(1); rid <= md.Rows(ecma335.TableMemberRef); rid++ {
		ref, err := md.MemberRef(rid)
		if err != nil {
			continue
		}
		switch ref.Name {
		case "Wait", "WaitAsync", "Release":
		default:
			if !strings.HasPrefix(ref.Name, "Set") && !strings.HasPrefix(ref.Name, "TrySet") {
				continue
			}
		}
		tok := ecma335.MakeToken(ecma335.TableMemberRef, rid)
		f, err := md.Member(tok)
		if err != nil {
			continue
		}
		if v := verbOf(f); v != nothing {
			m.tokens[tok] = v
		}
	}
}

// maxDepth bounds the depth of followed calls: a callee may wait, or release.
const maxDepth = 2

// Code returns the Code of a method of a module, by the method's row in the MethodDef table.
func (r *Reader) Code(at arch.Addr, rid uint32) (*Code, error) {
	r.room = maxIL
	return r.code(at, rid, 0)
}

func (r *Reader) code(at arch.Addr, rid uint32, depth int) (*Code, error) {
	m, err := r.module(at)
	if m == nil || err != nil {
		return nil, err
	}
	key := codeKey{at, rid, depth}
	if c, ok := r.codes[key]; ok {
		return c, nil
	}
	b := builder{r: r, m: m, module: at, depth: depth}
	c, err := b.build(rid)
	if err != nil && (depth > 0 || r.room >= 0) {
		return nil, err
	}
	if len(r.codes) >= maxCodes {
		clear(r.codes)
	}
	r.codes[key] = c // nil as well, if the search takes too much
	return c, err
}
