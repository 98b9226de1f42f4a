package awaits

import (
	"encoding/binary"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target"
)

// An async method in an event may have ended by the time we read the event. So the agent copies
// into the event the words of the objects that lead to the awaiting methods. The code here tells
// the agent the words to copy. Later the copied words are read like memory of the heap, as if the
// heap had no other words.

// CopiedAwaits reads the methods that await async methods, from words copied at one moment.
type CopiedAwaits struct {
	p       *Program
	words   copiedWords
	objects *object.Reader
	reader  *async.Reader
	lacks   []ContextWord
}

// ContextWord is a word that was not copied. The word would identify the instantiation of shared
// generic code.
type ContextWord struct {
	Table  arch.Addr // MethodTable of a Continuation
	Offset uint32    // in the Continuation, in bytes
	Object bool      // the word refers to an object, and the object's class identifies the instantiation
}

// CopiedAwaits returns a reader of chains in copied words.
func (p *Program) CopiedAwaits() (*CopiedAwaits, error) {
	c := &CopiedAwaits{p: p, words: copiedWords{}}
	var err error
	if c.objects, err = object.New(c.words, p.engine.Layout, p.runtime.Types, p.runtime.Names); err != nil {
		return nil, err
	}
	if c.reader, err = async.New(p.engine.Layout, c.objects, p.runtime.Names); err == nil {
		c.reader.ResumeInfoBy(p.managed.Objects.Word) // resume data lies with the code
		c.reader.ContextsBy(c.savedContext)
	}
	return c, err
}

// Begin begins another moment: classes that could not be read are read again.
func (c *CopiedAwaits) Begin() { c.objects.Begin() }

// Clear forgets all words.
func (c *CopiedAwaits) Clear() {
	clear(c.words)
	c.lacks = c.lacks[:0]
}

// Lacks returns the missing words that would have told more about the methods read since the last
// Clear.
func (c *CopiedAwaits) Lacks() []ContextWord { return c.lacks }

// savedContext is Process.savedContext of copied words. Code compiled ahead of time does not tell
// the word to copy, so the agent copies all words that the method has saved. Collectible code may
// be something else by now.
func (c *CopiedAwaits) savedContext(m *async.Resumption) arch.Addr {
	code, err := c.p.runtime.Code.Lookup(m.IP)
	if err != nil || code.MethodDesc == 0 || code.Collectible {
		return 0
	}
	s := c.p.savingOf(&code, m)
	if s.kind == gcinfo.NoContext {
		return 0
	}
	from, to := s.offset, s.offset+wordSize
	if s.offset == 0 {
		if from, to, err = c.reader.SavedIn(m); err != nil || to-from > mostContextWords*wordSize {
			return 0
		}
	}
	if !c.has(m, from, to, s.kind) {
		return 0
	}
	var context arch.Addr
	if s.offset == 0 {
		context = c.p.contextAmong(c.reader, c.objects, &code, m, s)
	} else if word, err := c.objects.Word(m.Object + arch.Addr(from)); err == nil {
		context = contextOf(c.objects, word, s.kind)
	}
	known, err := c.p.MethodOf(&code)
	if err != nil || context == 0 {
		return 0
	}
	x, err := c.p.runtime.Generic.Exact(&known.Method, s.kind, context)
	if err != nil {
		return 0
	}
	if passing, err := c.p.runtime.Generic.Collectible(&x); err != nil || passing {
		return 0
	}
	return context
}

// mostContextWords bounds the words of a Continuation that are copied to find a context: a rule of
// the agent has no room for more.
const mostContextWords = 8

// mostWhole bounds the words of a complete event: from an event with more words, the agent has left
// out the classes of objects (agent/chain.c, copy_head).
const mostWhole = 384

// lowest is the lowest possible address of an object: Linux has nothing below (vm.mmap_min_addr).
const lowest = 1 << 16

// has reports whether a range of words of a Continuation was copied, with the first words of the
// objects that the range may refer to. Missing words are added to lacks.
func (c *CopiedAwaits) has(m *async.Resumption, from, to uint32, kind gcinfo.Context) bool {
	class, err := c.objects.Class(m.Object)
	if err != nil {
		return false
	}
	all := len(c.words) < mostWhole
	for at := from; at < to; at += wordSize {
		word, err := c.objects.Word(m.Object + arch.Addr(at))
		if err == nil && kind == gcinfo.This && word >= lowest && word%wordSize == 0 {
			_, err = c.objects.Word(word)
		}
		if err != nil {
			c.lacks = append(c.lacks, ContextWord{class.Table, at, kind == gcinfo.This})
			all = false
		}
	}
	return all
}

// Add adds a word, at an address that is a multiple of 8.
func (c *CopiedAwaits) Add(at arch.Addr, word uint64) { c.words[at] = word }

// Awaiting reads the methods that await the async method of a site.
func (c *CopiedAwaits) Awaiting(site *Site) (Chain, error) {
	chain, err := c.awaiting(site)
	if err != nil {
		return Chain{}, err
	}
	chain.Steps = c.p.ProgramSteps(chain.Steps)
	return chain, nil
}

// awaiting is Awaiting with the runtime's helper methods.
func (c *CopiedAwaits) awaiting(site *Site) (chain Chain, err error) {
	if site.resumes == nil {
		_, chain, err = site.Awaiting(c.reader)
		return chain, err
	}
	d, err := c.reader.DispatchingAt(site.Argument, c.p.dispatcher.layout)
	if err != nil {
		return chain, err
	}
	return c.reader.Resuming(d)
}

// Table returns the MethodTable in the first word of an object.
func (c *CopiedAwaits) Table(word uint64) arch.Addr { return c.p.managed.Objects.Untagged(word) }

// Words returns the words to copy of the objects of a class. table is the MethodTable of the class.
// all has the class and base classes whose objects all have the same words. For a collectible class
// there are no words.
func (c *CopiedAwaits) Words(table arch.Addr) (w async.Words, all map[arch.Addr]async.Words, err error) {
	return c.reader.Words(table)
}

// AsyncArgument is the location of the first argument in a frame that runs an async method, with
// the words to copy from there.
type AsyncArgument struct {
	Place  ilmap.Variable
	Object bool // the argument is an object, and the method Words gives the words
	Words  async.Words
	// Resumes: the frame resumes methods, and the argument is a structure in the frame.
	// Place.Offset is the offset of a thread's static data. Field is the offset of the newest
	// structure's address in the static data. The first word of Words is the address of the
	// previous structure.
	Resumes bool
	Field   uint16
}

// Argument returns the argument to copy from a frame with some code. False: nothing leads on from
// the frame.
//
// The runtime's own walk does not restore the registers saved by a callee of a native caller. The
// walk hands out the registers' values nearer to the leaf. A state machine leads to the box and the
// box back to the state machine, so the state machine of another frame is noticed; a box alone
// proves nothing.
func (c *CopiedAwaits) Argument(code *Code) (a AsyncArgument, ok bool) {
	if code.resume {
		return c.resuming()
	}
	if !code.known || code.box && !code.place.OnStack {
		return a, false
	}
	a = AsyncArgument{Place: code.place, Object: code.box}
	if !code.box {
		a.Words, a.Object, ok = c.reader.ArgumentWords(code.table)
		return a, ok
	}
	return a, true
}

// stackPointer is the register number of the stack pointer in debug info (AMD64).
const stackPointer = 4

// resuming is Argument of a frame that resumes methods.
func (c *CopiedAwaits) resuming() (a AsyncArgument, ok bool) {
	data, ok := c.p.managed.Threads.LocalDataAt()
	d := c.p.dispatcher
	if !ok || d == nil || d.field > math.MaxUint16 || data > math.MaxInt32 {
		return a, false
	}
	a = AsyncArgument{
		Place: ilmap.Variable{Register: stackPointer, Offset: int32(data)}, Resumes: true, Field: uint16(d.field),
	}
	a.Words = d.layout.Words()
	return a, true
}

// Layout returns where the target has the collector's count of reasons for wrong references, and
// the offset of the base class in a MethodTable. False: unknown.
func (c *CopiedAwaits) Layout() (moving arch.Addr, base uint32, ok bool) {
	moving, ok = c.p.managed.Heap.Moving()
	base, known := c.p.engine.Layout.Offset("MethodTable", "ParentMethodTable")
	return moving, base, ok && known
}

// copiedWords is memory with only some words present.
type copiedWords map[arch.Addr]uint64

// ReadMemory fills p from addr.
func (m copiedWords) ReadMemory(p []byte, addr arch.Addr) error {
	const size = 8
	for i := 0; i < len(p); {
		at := addr + arch.Addr(i)
		word, ok := m[at&^(size-1)]
		if !ok {
			return &target.ReadError{Addr: addr, Len: len(p)}
		}
		var b [size]byte
		binary.LittleEndian.PutUint64(b[:], word)
		i += copy(p[i:], b[at%size:])
	}
	return nil
}
