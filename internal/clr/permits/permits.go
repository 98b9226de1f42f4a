// Package permits says which permits of semaphores a method holds where it is, and which tasks it is going to complete.
//
// A SemaphoreSlim does not know who has its permits: whoever has waited for it may go on, and anybody may release it.
// But code says it. A method that is between a Wait or WaitAsync and the Release of the same object, in the order of
// its IL, most likely holds a permit, whether it is on a stack or suspended at an await. So does one that is between
// two calls of which the first waits, and the second releases; or that has something to dispose of, whose Dispose
// releases (using). A method with a call of TaskCompletionSource.SetResult behind the place where it is will most
// likely complete that.
//
// Which object that is, the IL says too: fields and properties, from an argument, a variable or a static field on. They
// are followed in memory.
//
// None of it is a proof. A permit may be handed over, a Wait with a timeout may have failed, a Release may lie behind a
// branch that is not taken, and IL that was replaced by a profiler is not seen. What is found here is called likely.
//
// Sources: the public interface of System.Threading.SemaphoreSlim and System.Threading.Tasks.TaskCompletionSource; the
// names that compilers give to state machines and closures (dotnet/roslyn, GeneratedNames.cs); ECMA-335 for IL.
package permits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// The classes that this is about.
const (
	coreLib    = "System.Private.CoreLib"
	Semaphore  = "System.Threading.SemaphoreSlim"
	Completion = "System.Threading.Tasks.TaskCompletionSource"
)

const (
	maxCodes = 1 << 14 // methods of which is kept what they do
	maxIL    = 4 << 20 // bytes of IL that are looked through for one method
)

// Reader reads what methods of one runtime hold. It is not safe for concurrent use.
type Reader struct {
	names   *name.Namer
	types   *types.System
	objects *object.Reader
	codes   map[codeKey]*Code
	modules map[arch.Addr]*module
	uses    map[useKey]*Use
	room    int // bytes of IL that may still be looked through
}

type codeKey struct {
	module arch.Addr
	rid    uint32
	depth  int
}

// New returns what reads code by names, and objects.
func New(objects *object.Reader, names *name.Namer, ts *types.System) *Reader {
	return &Reader{
		names: names, types: ts, objects: objects, codes: map[codeKey]*Code{}, modules: map[arch.Addr]*module{},
		uses: map[useKey]*Use{},
	}
}

// Code is what a method does with semaphores and TaskCompletionSources.
type Code struct {
	Sections []Section
	Promises []Promise

	takes, gives []*ecma335.Value // permits that it takes and does not release, and the other way round
	async        bool
}

// Section is a part of a method's IL in which it holds a permit.
type Section struct {
	From, To uint32         // it is held behind the instruction From, until the one To
	Object   *ecma335.Value // the semaphore; with Closes what is disposed of at To
	Closes   bool
	Type     ecma335.Token // of what is disposed of, if it is a struct; RID 0: it is none
}

// Promise is where a method completes a TaskCompletionSource.
type Promise struct {
	At     uint32
	Object *ecma335.Value
}

// Empty reports whether a method has nothing to do with either.
func (c *Code) Empty() bool { return c == nil || len(c.Sections) == 0 && len(c.Promises) == 0 }

// At returns what a method holds, and is going to complete, while it is at an instruction from one offset to another.
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

// From returns what a method holds behind the await of a permit at an offset, until it releases that by itself.
func (c *Code) From(at uint32) (out []Section) {
	for _, s := range c.Sections {
		if s.From == at && !s.Closes {
			out = append(out, s)
		}
	}
	return out
}

// module is what is known of a module.
type module struct {
	name.Assembly
	tokens map[ecma335.Token]verb // of its MemberRefs
}

// verb is what a method of the framework does.
type verb uint8

const (
	nothing verb = iota
	waits        // for a permit
	begins       // to wait for a permit: it returns a task
	releases
	completes
)

// verbOf returns what a method does.
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

// module returns what is known of a module; nil: it does not name either class.
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

// Matters reports whether a module has calls that count.
func (r *Reader) Matters(at arch.Addr) bool {
	m, err := r.module(at)
	return m != nil && err == nil
}

// find finds the references to the methods that count.
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

// maxDepth is how deep calls are followed: a method may call one that waits, or releases.
const maxDepth = 2

// Code returns what a method of a module does, by its row in the MethodDef table.
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
	r.codes[key] = c // nil as well, if it takes too much to find that out
	return c, err
}
