package session

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

// An async method that has an event may have ended when the event is read. So the agent copies, inside the event, the
// words of the objects that lead to what awaits the method. Which words these are it is told here; what they mean is
// read as if they were the memory of the heap, and nothing else of the heap were there.

// CopiedAwaits reads what awaits async methods from words that were copied at one moment.
type CopiedAwaits struct {
	p       *Process
	words   copiedWords
	objects *object.Reader
	reader  *async.Reader
	lacks   []ContextWord
}

// ContextWord is a word that was not copied, and that tells the instantiation of shared generic code.
type ContextWord struct {
	Table  arch.Addr // the MethodTable of a Continuation
	Offset uint32    // in it, in bytes
	Object bool      // it is an object whose class tells it
}

// CopiedAwaits returns what reads chains of copied words.
func (p *Process) CopiedAwaits() (*CopiedAwaits, error) {
	c := &CopiedAwaits{p: p, words: copiedWords{}}
	var err error
	if c.objects, err = object.New(c.words, p.Engine.Layout, p.Runtime.Types, p.Runtime.Names); err != nil {
		return nil, err
	}
	if c.reader, err = async.New(p.Engine.Layout, c.objects, p.Runtime.Names); err == nil {
		c.reader.ResumeInfoBy(p.Runtime.Objects.Word) // it lies with the code
		c.reader.ContextsBy(c.savedContext)
	}
	return c, err
}

// Begin begins another moment: what could not be read of classes is read again.
func (c *CopiedAwaits) Begin() { c.objects.Begin() }

// Clear forgets all words.
func (c *CopiedAwaits) Clear() {
	clear(c.words)
	c.lacks = c.lacks[:0]
}

// Lacks are the words that would have told more of methods that were read since the last Clear.
func (c *CopiedAwaits) Lacks() []ContextWord { return c.lacks }

// savedContext is Process.savedContext of copied words. Code that was compiled ahead of time does not say which word is
// to be copied, so all are that the method has saved. What can be unloaded may be something else by now.
func (c *CopiedAwaits) savedContext(m *async.Resumption) arch.Addr {
	code, err := c.p.Runtime.Code.Lookup(m.IP)
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
	known, err := c.p.methodOf(&code)
	if err != nil || context == 0 {
		return 0
	}
	x, err := c.p.Runtime.Generic.Exact(&known.method, s.kind, context)
	if err != nil {
		return 0
	}
	if passing, err := c.p.Runtime.Generic.Collectible(&x); err != nil || passing {
		return 0
	}
	return context
}

// mostContextWords bounds the words of a Continuation that are copied to find a context among them: the agent has no
// room for more in a rule.
const mostContextWords = 8

// mostWhole bounds the words of an event among which all are that should be: of one with more, the agent has left out
// which classes objects are of (agent/chain.c, copy_head).
const mostWhole = 384

// lowest is the lowest address that an object can have: Linux has nothing below it (vm.mmap_min_addr).
const lowest = 1 << 16

// has reports whether some words of a Continuation were copied, and the first words of objects to which they may lead.
// Those that were not are noted.
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

// Awaiting reads what awaits the async method of a site.
func (c *CopiedAwaits) Awaiting(site *AsyncSite) (AsyncChain, error) {
	chain, err := c.awaiting(site)
	if err != nil {
		return AsyncChain{}, err
	}
	chain.Steps = c.p.programSteps(chain.Steps)
	return chain, nil
}

// awaiting reads what awaits the method of a site, with its helpers.
func (c *CopiedAwaits) awaiting(site *AsyncSite) (chain AsyncChain, err error) {
	if site.resumes == nil {
		_, chain, err = site.awaiting(c.reader)
		return chain, err
	}
	d, err := c.reader.DispatchingAt(site.Argument, c.p.dispatcher.layout)
	if err != nil {
		return chain, err
	}
	return c.reader.Resuming(d)
}

// Table is the MethodTable that the first word of an object leads to.
func (c *CopiedAwaits) Table(word uint64) arch.Addr { return c.p.Runtime.Objects.Untagged(word) }

// Words says what is to be copied of the objects of a class, by its MethodTable, and of those classes that it is or
// derives from whose objects all have the same words. Of a class that can be unloaded nothing is.
func (c *CopiedAwaits) Words(table arch.Addr) (w async.Words, all map[arch.Addr]async.Words, err error) {
	return c.reader.Words(table)
}

// AsyncArgument is where a frame that runs an async method has its first argument, and what is to be copied from there.
type AsyncArgument struct {
	Place  ilmap.Variable
	Object bool // it is an object, of which Words says the words
	Words  async.Words
	// Resumes: the frame resumes methods, and its argument is a structure in it. Place.Offset is where in a thread its
	// static data is, and Field where in that the address of the newest structure is. The first word of Words is the
	// address of the structure before.
	Resumes bool
	Field   uint16
}

// Argument says what is to be copied where a frame has some code. False: nothing leads from there.
//
// The runtime's own walk does not restore the registers that a callee of a native caller has saved, but hands out what
// they have nearer to the leaf. A state machine leads to its box and the box back to it, so another one's is noticed;
// a box alone proves nothing.
func (c *CopiedAwaits) Argument(code *AsyncCode) (a AsyncArgument, ok bool) {
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

// stackPointer is the number of a register in debug info (AMD64).
const stackPointer = 4

// resuming is Argument of a frame that resumes methods.
func (c *CopiedAwaits) resuming() (a AsyncArgument, ok bool) {
	data, ok := c.p.Runtime.Threads.LocalDataAt()
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

// Layout says where in the target the collector's count of reasons is why references may be wrong, and where in a
// MethodTable the one of the base class is. False: that is not known.
func (c *CopiedAwaits) Layout() (moving arch.Addr, base uint32, ok bool) {
	moving, ok = c.p.Runtime.Heap.Moving()
	base, known := c.p.Engine.Layout.Offset("MethodTable", "ParentMethodTable")
	return moving, base, ok && known
}

// copiedWords is memory of which only some words are there.
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
