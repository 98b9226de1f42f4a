// Package thread reads the runtime's record of its threads: the thread store, the head of each Thread object, and the
// chain of explicit Frames on each stack.
//
// Sources (dotnet/runtime): docs/design/datacontracts/Thread.md and StackWalk.md, src/coreclr/vm/threads.h (Thread,
// ThreadStore) and frames.h.
//
// Two words are easily mixed up. A frame is one call on a stack. A Frame, with a capital, is a record on the stack.
// The runtime makes a Frame on leaving managed code, to find the way back. Frames form a chain from the Thread object
// to the base of the stack.
package thread

import (
	"encoding/binary"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// maxHead bounds HeadLen.
const maxHead = 1024

// maxThreads bounds the thread store's list.
const maxThreads = 1 << 17

// Flags of Thread::m_State (threads.h, enum ThreadState).
const (
	StateDebugSuspend   = 0x00000008
	StateGCOnTransition = 0x00000010
	StateHijacked       = 0x00000080
	StateBackground     = 0x00000200
	StateUnstarted      = 0x00000400
	StateDead           = 0x00000800
	StateStarted        = 0x00001000 // the runtime started the thread (TS_WeOwn); else native code did
	StateThreadPool     = 0x01000000
	StateInterruptible  = 0x02000000 // until .NET 10: the thread is in a Sleep, Wait or Join (TS_Interruptible)
	StateDetached       = 0x80000000
)

// Thread is the head of one of the runtime's Thread objects.
type Thread struct {
	Address     arch.Addr // the ThreadID
	OSID        int       // as the runtime knows the thread: inside its own PID namespace
	ManagedID   int
	State       uint32
	Cooperative bool      // GC mode: the thread runs managed code, or touches the managed heap; else preemptive
	Frame       arch.Addr // the newest Frame
	Exception   arch.Addr // the newest ExInfo; 0: no exception is in flight
	Exposed     arch.Addr // handle of the managed Thread object (CoreCLR): see Store.ObjectIn
}

// Hijacked reports whether the runtime has replaced a return address on the
// thread's stack, to get control when the current method returns.
func (t *Thread) Hijacked() bool { return t.State&StateHijacked != 0 }

// Alive reports whether the thread has started and not ended. A native thread that has ended is detached, but not
// dead, until the finalizer clears the thread away.
func (t *Thread) Alive() bool {
	return t.State&(StateDead|StateDetached|StateUnstarted) == 0 && t.OSID != 0
}

type layout struct {
	Store      arch.Addr `global:"ThreadStore"`
	Finalizer  arch.Addr `global:"FinalizerThread"`
	StringType arch.Addr `global:"StringMethodTable"`

	First     uint32 `clr:"ThreadStore.FirstThreadLink"`
	ID        uint32 `clr:"Thread.Id"`
	OSID      uint32 `clr:"Thread.OSId"`
	State     uint32 `clr:"Thread.State"`
	GCMode    uint32 `clr:"Thread.PreemptiveGCDisabled"`
	Frame     uint32 `clr:"Thread.Frame"`
	Exception uint32 `clr:"Thread.ExceptionTracker"`
	Exposed   uint32 `clr:"Thread.GCHandle|Thread.ExposedObject"` // ExposedObject in .NET 11
	Link      uint32 `clr:"Thread.LinkNext"`

	Dispenser arch.Addr `global:"ThinlockThreadIdDispenser,optional"`
	ByID      uint32    `clr:"IdDispenser.IdToThread,optional"`

	ExObject     uint32 `clr:"ExceptionInfo.ThrownObject"`
	ExPrevious   uint32 `clr:"ExceptionInfo.PreviousNestedInfo,optional"`
	StringLength uint32 `clr:"String.m_StringLength"`
	StringChars  uint32 `clr:"String.m_FirstChar"`
	Untag        uint64 `global:"ObjectToMethodTableUnmask"`
}

// Store is the thread store of one runtime. A Store is not safe for concurrent use.
type Store struct {
	mem    *target.Reader
	l      layout
	thrown thrownLayout
	trace  traceLayout
	ex     exLayout
	direct bool // an ExInfo holds the exception object itself, not a handle
	linked bool // a link of the thread list is the address of a Thread, not the address of the Thread's link
	head   int  // see HeadLen
	needed int  // see Needed

	locals localsLayout

	trackers trackerUse
	tracker  trackerLayout

	ahead *ahead // nil: the runtime is CoreCLR
}

// NewStore binds the thread store of the runtime that d describes.
func NewStore(mem target.Memory, d *contract.Descriptor) (*Store, error) {
	s := &Store{mem: target.NewReader(mem)}
	if IsAhead(d) {
		return s, s.bindAhead(d)
	}
	if err := d.Bind(&s.l); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.thrown); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.trace); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.locals); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.ex); err != nil {
		return nil, err
	}
	if err := s.bindTracker(d); err != nil {
		return nil, err
	}
	s.direct = d.Contracts["Exception"] == "c1" // dotnet/runtime pull request 127300
	s.linked = d.Contracts["Thread"] == "c1"
	return s, s.bindHead(d, s.l.ID, s.l.OSID, s.l.State, s.l.GCMode, s.l.Frame, s.l.Exception, s.l.Exposed, s.l.Link)
}

// bindHead sets the part of a Thread that is copied. fields are offsets in the Thread.
func (s *Store) bindHead(d *contract.Descriptor, fields ...uint32) error {
	last := slices.Max(fields)
	if last > maxHead-8 {
		return fmt.Errorf("a field of Thread lies at offset %d, beyond the %d bytes that are copied", last, maxHead)
	}
	s.needed = int(last) + 8
	s.head = s.needed
	for _, f := range d.Types["Thread"].Fields {
		s.head = max(s.head, min(int(f.Offset)+8, maxHead))
	}
	return nil
}

// List returns the runtime's threads in the order of the store. A running program may free a Thread just before List
// follows the Thread's link. The list may then lead in a circle; List notices the circle within three rounds.
func (s *Store) List() ([]Thread, error) {
	store, err := s.mem.Pointer(s.l.Store)
	if err != nil {
		return nil, err
	}
	if store == 0 {
		return nil, nil // the runtime has not started yet
	}
	link, err := s.mem.Pointer(store + arch.Addr(s.l.First))
	if err != nil {
		return nil, err
	}
	before := s.before(link)
	var out []Thread
	head := make([]byte, s.head)
	seen, next := arch.Addr(0), 1 // an earlier link, and the number of links at which seen is replaced
	for link != 0 {
		switch {
		case link == seen:
			return out, fmt.Errorf("the runtime's thread list is cyclic: %v comes again", link)
		case len(out) == maxThreads:
			return out, fmt.Errorf("the runtime's thread list has more than %d entries", maxThreads)
		case len(out) == next:
			seen, next = link, 2*next
		}
		at := link - before
		if at < store+arch.Addr(s.l.First)+8 && store < at+arch.Addr(s.Needed()) {
			return out, fmt.Errorf("the runtime's thread list is corrupt: it leads back into the thread store, at %v",
				store)
		}
		if err := s.readHead(head, at); err != nil {
			return out, err
		}
		t := s.Parse(head, at)
		out = append(out, t)
		if link, err = s.mem.Pointer(at + arch.Addr(s.l.Link)); err != nil {
			return out, err
		}
	}
	if s.ahead != nil {
		s.learn(out)
	}
	return out, nil
}

// Rests returns the memory that a list of threads rests on, with the contents that the list was read from: the links,
// the operating system id of each thread, and the words that lead to the managed Thread objects. objects has the object
// of each listed thread; 0: none. As long as all contents are the same, and no object is moved, the runtime has the
// same threads, with the same objects.
func (s *Store) Rests(list []Thread, objects []arch.Addr) ([]target.Region, error) {
	store, err := s.mem.Pointer(s.l.Store)
	if err != nil || store == 0 || len(list) == 0 {
		return nil, err
	}
	first := store + arch.Addr(s.l.First)
	link, err := s.mem.Pointer(first)
	if err != nil {
		return nil, err
	}
	before := link - list[0].Address // other contents by now do no harm: the memory differs later, too
	out := make([]target.Region, 0, 1+3*len(list))
	buf := make([]byte, 0, (8+4+8)*len(list)+8)
	add := func(at arch.Addr, word arch.Addr, size int) {
		from := len(buf)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(word))[:from+size]
		out = append(out, target.Region{Base: at, Data: buf[from:len(buf):len(buf)]})
	}
	add(first, link, 8)
	for i := range list {
		next := arch.Addr(0)
		if i+1 < len(list) {
			next = list[i+1].Address + before
		}
		add(list[i].Address+arch.Addr(s.l.Link), next, 8)
		add(list[i].Address+arch.Addr(s.l.OSID), arch.Addr(list[i].OSID), 4)
		word, to, err := s.objectWord(&list[i], objects[i])
		if err != nil {
			return nil, err
		}
		add(word, to, 8)
	}
	return out, nil
}

// objectWord returns the address, and the contents, of the word that changes when a thread gets another managed Thread
// object.
func (s *Store) objectWord(t *Thread, obj arch.Addr) (at, to arch.Addr, err error) {
	switch {
	case s.ahead != nil:
		return s.ahead.objectWord(s.mem, t, obj)
	case t.Exposed != 0:
		return t.Exposed, obj, nil
	}
	return t.Address + arch.Addr(s.l.Exposed), 0, nil
}

// before returns the distance in bytes from a Thread's beginning to the target of a thread list's link: 0, or the
// offset of the Thread's link. The contract Thread c1 has meant both: docs/design/datacontracts/Thread.md says the
// link's offset, .NET 11.0 has 0 (vm/threads.h, ThreadStore::m_ThreadList). So the runtime's table of managed ids
// decides, because each Thread has a place in the table (vm/threads.h, IdDispenser::m_idToThread).
func (s *Store) before(link arch.Addr) arch.Addr {
	if s.ahead != nil {
		return 0
	}
	ways := []arch.Addr{arch.Addr(s.l.Link), 0}
	if s.linked {
		slices.Reverse(ways)
	}
	for _, before := range ways {
		if s.hasID(link - before) {
			return before
		}
	}
	return ways[0]
}

// hasID reports whether the table of managed ids leads to a Thread at an address.
func (s *Store) hasID(at arch.Addr) bool {
	id, err := s.mem.Uint32(at + arch.Addr(s.l.ID))
	return err == nil && id <= maxThreads && s.withID(int(id)) == at
}

// withID returns the entry for an id in the table of managed ids; 0: none.
func (s *Store) withID(id int) arch.Addr {
	if _, ok := s.ByID(); !ok || id <= 0 || id > maxThreads {
		return 0
	}
	at := s.l.Dispenser
	for _, offset := range []arch.Addr{0, arch.Addr(s.l.ByID), 8 * arch.Addr(id)} {
		var err error
		if at, err = s.mem.Pointer(at + offset); err != nil {
			return 0
		}
	}
	return at
}

// Read decodes the Thread object at an address.
func (s *Store) Read(at arch.Addr) (Thread, error) {
	head := make([]byte, s.head)
	if err := s.readHead(head, at); err != nil {
		return Thread{}, err
	}
	return s.Parse(head, at), nil
}

// readHead fills head from a Thread object. The object may be shorter than head, and lie at the end of readable
// memory.
func (s *Store) readHead(head []byte, at arch.Addr) error {
	clear(head)
	need := s.Needed()
	if err := s.mem.ReadMemory(head, at); err == nil {
		return nil
	}
	return s.mem.ReadMemory(head[:need], at)
}

// LinkOffset returns the offset in a Thread object of the link to the next Thread.
func (s *Store) LinkOffset() int { return int(s.l.Link) }

// HeadLen returns the number of bytes of a Thread object that a capture copies: up to the last known field. Memory
// may end behind a Thread object (musl puts a Thread at the end of a mapping). The fields of a hijack, which no
// descriptor names, lie before the last known field.
func (s *Store) HeadLen() int { return s.head }

// Needed returns the number of bytes of a Thread object that Parse looks at.
func (s *Store) Needed() int { return s.needed }

// Same reports whether a thread, according to mem, is still the thread that was read: alive, with the same ids.
func (s *Store) Same(mem target.Memory, t *Thread) bool {
	r := target.NewReader(mem)
	if s.ahead != nil {
		return s.sameAhead(r, t)
	}
	id, err1 := r.Uint32(t.Address + arch.Addr(s.l.ID))
	osID, err2 := r.Uint32(t.Address + arch.Addr(s.l.OSID))
	state, err3 := r.Uint32(t.Address + arch.Addr(s.l.State))
	if err1 != nil || err2 != nil || err3 != nil {
		return false
	}
	now := Thread{OSID: int(osID), ManagedID: int(id), State: state}
	return now.Alive() && now.OSID == t.OSID && now.ManagedID == t.ManagedID
}

// Parse decodes the head of a Thread object: HeadLen bytes or more, read at address at.
func (s *Store) Parse(head []byte, at arch.Addr) Thread {
	if s.ahead != nil {
		return s.ahead.parse(head, at)
	}
	u32 := func(off uint32) uint32 { return binary.LittleEndian.Uint32(head[off:]) }
	u64 := func(off uint32) uint64 { return binary.LittleEndian.Uint64(head[off:]) }
	return Thread{
		Address:     at,
		OSID:        int(u32(s.l.OSID)),
		ManagedID:   int(u32(s.l.ID)),
		State:       u32(s.l.State),
		Cooperative: u32(s.l.GCMode) != 0,
		Frame:       arch.Addr(u64(s.l.Frame)),
		Exception:   arch.Addr(u64(s.l.Exception)),
		Exposed:     arch.Addr(u64(s.l.Exposed)),
	}
}

// ExceptionOffsets returns offsets that lead to an exception in flight, in bytes. Thread is the offset in a Thread
// object of the address of the newest ExInfo. In the ExInfo, Object is the offset of the exception object's handle or
// address, and Previous of the previous ExInfo's address. In the exception object, Trace is the offset of the stack
// trace.
func (s *Store) ExceptionOffsets() ExceptionOffsets {
	o := ExceptionOffsets{Thread: s.l.Exception, Object: s.l.ExObject, Direct: s.direct}
	if s.l.ExPrevious != contract.Absent && s.thrown.Trace != contract.Absent {
		o.Previous, o.Trace = s.l.ExPrevious, s.thrown.Trace
	}
	return o
}

// ExceptionOffsets has the places of exceptions in flight: see Store.ExceptionOffsets.
type ExceptionOffsets struct {
	Thread, Object, Previous, Trace uint32
	Direct                          bool // an ExInfo has the address of the exception object, not a handle
}

// ByID has the place of the runtime's threads by managed id. Dispenser is the address of the variable with the
// address of the IdDispenser. The offsets are in bytes: Threads in the IdDispenser, of the table's address; ID and
// OSID in a Thread, of its ids.
type ByID struct {
	Dispenser         arch.Addr
	Threads, ID, OSID uint32
}

// ByID returns the place of the threads by managed id; false: not known.
func (s *Store) ByID() (ByID, bool) {
	return ByID{s.l.Dispenser, s.l.ByID, s.l.ID, s.l.OSID}, s.l.Dispenser != 0 && s.l.ByID != contract.Absent
}

// WithID returns the thread with a managed id, from the runtime's table of managed ids; false: there is none, or the
// table is not known.
func (s *Store) WithID(id int) (Thread, bool) {
	at := s.withID(id)
	if at == 0 {
		return Thread{}, false
	}
	t, err := s.Read(at)
	return t, err == nil && t.ManagedID == id
}

// Finalizer returns the address of the finalizer's Thread object; 0: there is none yet.
func (s *Store) Finalizer() (arch.Addr, error) {
	if s.ahead != nil {
		return s.ahead.finalizer, nil // as of the last List
	}
	return s.mem.Pointer(s.l.Finalizer)
}

// StringType returns the MethodTable of strings; 0: the MethodTable cannot be read.
func (s *Store) StringType() arch.Addr {
	if s.ahead != nil {
		return s.ahead.strings
	}
	p, err := s.mem.Pointer(s.l.StringType)
	if err != nil {
		return 0
	}
	return p
}
