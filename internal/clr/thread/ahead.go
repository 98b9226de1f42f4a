package thread

import (
	"encoding/binary"
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// The runtime of a native AOT program (.NET 11) has a list of threads, too. But a Thread there has neither the
// managed id nor the managed Thread object. Both are static fields of the thread, which lie together in one object:
// the block. The Thread leads to the block.
//
// No description names the fields of the block, and their places depend on the program. So the block is searched for
// two references that confirm each other: the managed Thread object of the thread refers to the ManagedThreadId that
// the block refers to, too. Each thread has a ManagedThreadId of its own.
//
// Sources (dotnet/runtime): src/coreclr/nativeaot/Runtime/thread.h (RuntimeThreadLocals, InlinedThreadStaticRoot);
// System.Private.CoreLib: Thread.NativeAot.cs, ManagedThreadId.cs, ThreadStatics.cs.

// versionAhead is the version of the contract Thread of a native AOT program.
const versionAhead contract.Version = "n1"

// IsAhead reports whether a runtime is that of a native AOT program.
func IsAhead(d *contract.Descriptor) bool { return d.Contracts["Thread"] == versionAhead }

// Flags of a Thread (thread.h, Thread::ThreadStateFlags).
const (
	aheadAttached  = 1 << 0
	aheadDetached  = 1 << 1
	aheadFinalizer = 1 << 3 // TSF_SuppressGcStress: only the finalizer has the flag
)

// Flags of the managed Thread object (Thread.NativeAot.cs, _threadState; ThreadState.cs).
const (
	managedBackground = 1 << 2
	managedThreadPool = 1 << 12
)

// The words in front of the limit of a Thread's stack: the array with static fields of other code, the list of the
// roots of blocks, and another list.
const (
	listBeforeLimit  = 24
	rootsBeforeLimit = 16
)

// The words of a root: the block, the next root.
const rootNext = 8

// The only field of a ManagedThreadId, in bytes from the start of the object: four bytes.
const idInObject = 8

// Bounds.
const (
	maxRoots    = 16
	maxSearches = 64       // of one List
	maxBlock    = 64 << 10 // bytes of a block
	minTable    = 1 << 16  // no memory lies below (vm.mmap_min_addr)
	idBase      = 24       // BaseSize of a ManagedThreadId: the least of all
	beside      = 8        // BaseSize counts the word in front of an object
)

// The BaseSize of strings, and the bytes of one character. Only strings have both (MethodTable.h, STRING_BASE_SIZE).
const (
	stringBase  = 22
	stringUnit  = 2
	hasElements = 1 << 31 // a flag of a MethodTable: the lower half of the flags is the bytes of one element
)

type aheadLayout struct {
	Store      arch.Addr `global:"ThreadStore"`
	First      uint32    `clr:"ThreadStore.FirstThreadLink"`
	OSID       uint32    `clr:"Thread.OSId"`
	State      uint32    `clr:"Thread.State"`
	Link       uint32    `clr:"Thread.LinkNext"`
	Transition uint32    `clr:"Thread.TransitionFrame"`
	Limit      uint32    `clr:"Thread.CachedStackLimit"`
	Base       uint32    `clr:"Thread.CachedStackBase"`
	Flags      uint32    `clr:"MethodTable.Flags"`
	BaseSize   uint32    `clr:"MethodTable.BaseSize"`
	Untag      uint64    `global:"ObjectToMethodTableUnmask"`

	Exception uint32 `clr:"Thread.ExceptionTracker,optional"`
	Thrown    uint32 `clr:"ExInfo.ThrownObject,optional"`
	Previous  uint32 `clr:"ExInfo.PreviousNestedInfo,optional"`

	ID   uint32 `clr:"System.Threading.Thread._managedThreadId"` // a reference
	Name uint32 `clr:"System.Threading.Thread._name"`

	// The managed Thread object, by our description.
	Managed uint32 `clr:"System.Threading.Thread._threadState,optional"`
	Size    uint32 `clr:"size:System.Threading.Thread,optional"`
}

// ahead is the part of a Store for a native AOT program.
type ahead struct {
	l         aheadLayout
	block     arch.Addr // the MethodTable of blocks; 0: not known yet
	threadAt  uint32    // in a block: the managed Thread object
	idAt      uint32    // in a block: the ManagedThreadId
	strings   arch.Addr // the MethodTable of strings; 0: not known yet
	finalizer arch.Addr
	facts     map[arch.Addr]fact // by Thread
	unsure    bool
	searches  int // by the present List
}

// fact is knowledge about a thread that the Thread itself lacks.
type fact struct {
	osID, id int
	state    uint32    // flags of the managed Thread object, as those of Thread.State
	root     arch.Addr // the root whose block has the static fields; 0: not known
}

// bindAhead binds the threads of a native AOT program.
func (s *Store) bindAhead(d *contract.Descriptor) error {
	a := &ahead{facts: map[arch.Addr]fact{}}
	if err := d.Bind(&a.l); err != nil {
		return err
	}
	l := &a.l
	s.ahead = a
	s.l = layout{
		Store: l.Store, First: l.First, OSID: l.OSID, State: l.State, Link: l.Link, Untag: l.Untag,
		StringLength: stringLengthAhead, StringChars: stringCharsAhead,
	}
	s.locals = localsLayout{Data: contract.Absent, Array: contract.Absent}
	s.ex = exLayout{contract.Absent, contract.Absent, contract.Absent, contract.Absent}
	fields := []uint32{l.OSID, l.State, l.Link, l.Transition, l.Limit}
	if a.knowsExceptions() {
		// An ExInfo lies on the thread's stack, and has the exception object itself.
		s.l.Exception, s.l.ExObject, s.l.ExPrevious, s.direct = l.Exception, l.Thrown, l.Previous, true
		fields = append(fields, l.Exception)
	}
	return s.bindHead(d, fields...)
}

// knowsExceptions reports whether the exceptions in flight can be found.
func (a *ahead) knowsExceptions() bool {
	return max(a.l.Exception, a.l.Thrown, a.l.Previous) <= maxOffset
}

// The length and the characters of a string, in bytes from the start of the object (System.Private.CoreLib:
// String.cs).
const (
	stringLengthAhead = 8
	stringCharsAhead  = 12
)

// parse decodes the head of a Thread.
func (a *ahead) parse(head []byte, at arch.Addr) Thread {
	u32 := func(off uint32) uint32 { return binary.LittleEndian.Uint32(head[off:]) }
	t := Thread{Address: at, OSID: int(u32(a.l.OSID))}
	if a.knowsExceptions() {
		t.Exception = arch.Addr(binary.LittleEndian.Uint64(head[a.l.Exception:]))
	}
	t.Cooperative = binary.LittleEndian.Uint64(head[a.l.Transition:]) == 0
	switch flags := u32(a.l.State); {
	case flags&aheadDetached != 0:
		t.State = StateDetached
	case flags&aheadAttached == 0:
		t.State = StateUnstarted
	}
	f, known := a.facts[at]
	if known = known && f.osID == t.OSID; known {
		t.ManagedID = f.id
		t.State |= f.state
	} else {
		t.State |= StateBackground // as long as the thread has no managed Thread object
	}
	return t
}

// learn finds the managed facts of listed threads.
func (s *Store) learn(list []Thread) {
	a := s.ahead
	before := a.facts
	a.facts, a.unsure, a.finalizer, a.searches = make(map[arch.Addr]fact, len(list)), false, 0, 0
	finalizers := 0
	for i := range list {
		t := &list[i]
		if flags, err := s.mem.Uint32(t.Address + arch.Addr(a.l.State)); err == nil && flags&aheadFinalizer != 0 {
			a.finalizer = t.Address
			finalizers++
		}
		f := fact{osID: t.OSID, state: StateBackground}
		if old, ok := before[t.Address]; ok && old.osID == t.OSID && old.id != 0 {
			f = old // the id of a thread does not change
		}
		if t.Alive() {
			s.complete(t.Address, &f)
		}
		a.facts[t.Address] = f
		t.ManagedID, t.State = f.id, t.State&^StateBackground|f.state
	}
	if finalizers > 1 {
		a.finalizer = 0
	}
	dropTwice(a.facts, list)
}

// dropTwice forgets managed ids that several threads have: a thread has just ended, or the memory makes no sense.
func dropTwice(facts map[arch.Addr]fact, list []Thread) {
	first := map[int]int{}
	for i := range list {
		id := list[i].ManagedID
		if id == 0 {
			continue
		}
		other, twice := first[id]
		if first[id] = i; !twice {
			continue
		}
		for _, j := range []int{i, other} {
			list[j].ManagedID = 0
			delete(facts, list[j].Address)
		}
	}
}

// complete adds what is known of a thread by the thread's block.
func (s *Store) complete(thread arch.Addr, f *fact) {
	a := s.ahead
	root, block := s.blockOf(thread)
	if block == 0 {
		return // the thread has no static fields yet
	}
	f.root = root
	id, err := s.mem.Pointer(block + arch.Addr(a.idAt))
	if err != nil || id == 0 {
		a.unsure = a.unsure || err != nil
		return
	}
	number, ok := s.idOf(id)
	if !ok {
		a.unsure = true
		return
	}
	obj, err := s.mem.Pointer(block + arch.Addr(a.threadAt))
	if err == nil && obj == 0 {
		f.id = number
		return
	}
	if err != nil || !s.confirms(obj, id) {
		a.unsure = true
		return
	}
	f.id, f.state = number, StateStarted
	if state, known := s.managedState(obj); known {
		f.state |= state
	}
}

// confirms reports whether an object is the managed Thread object with a ManagedThreadId.
func (s *Store) confirms(obj, id arch.Addr) bool {
	back, err := s.mem.Pointer(obj + arch.Addr(s.ahead.l.ID))
	return err == nil && back == id
}

// managedState returns the flags of a managed Thread object as flags of a Thread; false: the object is not as
// described.
func (s *Store) managedState(obj arch.Addr) (uint32, bool) {
	l := &s.ahead.l
	base, _, ok := s.table(obj)
	if l.Managed == contract.Absent || l.Size == contract.Absent || !ok || base != l.Size+beside {
		return 0, false
	}
	flags, err := s.mem.Uint32(obj + arch.Addr(l.Managed))
	if err != nil {
		return 0, false
	}
	var state uint32
	if flags&managedBackground != 0 {
		state |= StateBackground
	}
	if flags&managedThreadPool != 0 {
		state |= StateThreadPool
	}
	return state, true
}

// table returns the size and the flags of an object's class.
func (s *Store) table(obj arch.Addr) (base, flags uint32, ok bool) {
	mt, ok := s.tableAt(obj)
	if !ok {
		return 0, 0, false
	}
	flags, err1 := s.mem.Uint32(mt + arch.Addr(s.ahead.l.Flags))
	base, err2 := s.mem.Uint32(mt + arch.Addr(s.ahead.l.BaseSize))
	return base, flags, err1 == nil && err2 == nil
}

// tableAt returns the address of an object's class.
func (s *Store) tableAt(obj arch.Addr) (arch.Addr, bool) {
	if obj < minTable || obj%8 != 0 || obj>>47 != 0 {
		return 0, false
	}
	word, err := s.mem.Uint64(obj)
	mt := arch.Addr(word &^ s.ahead.l.Untag)
	return mt, err == nil && mt >= minTable && mt>>47 == 0
}

// idOf reads a ManagedThreadId.
func (s *Store) idOf(obj arch.Addr) (int, bool) {
	base, _, ok := s.table(obj)
	if !ok || base != idBase {
		return 0, false
	}
	id, err := s.mem.Uint32(obj + idInObject)
	return int(id), err == nil && id != 0 && id>>31 == 0
}

// blockOf returns the block of a thread with the managed Thread object, and the root of the block; 0: there is none,
// or the block is not known.
func (s *Store) blockOf(thread arch.Addr) (root, block arch.Addr) {
	a := s.ahead
	root, err := s.mem.Pointer(thread + arch.Addr(a.l.Limit) - rootsBeforeLimit)
	for n := 0; err == nil && root != 0 && n < maxRoots; n++ {
		block, failed := s.mem.Pointer(root)
		if failed == nil && block != 0 {
			mt, ok := s.tableAt(block)
			if ok && (a.block == mt || a.block == 0 && s.search(block, mt)) {
				return root, block
			}
		}
		root, err = s.mem.Pointer(root + rootNext)
	}
	return 0, 0
}

// search finds the places in a block, and reports whether the block has them.
func (s *Store) search(block, mt arch.Addr) bool {
	a := s.ahead
	if a.searches++; a.searches > maxSearches {
		return false
	}
	base, flags, ok := s.table(block)
	if !ok || flags&hasElements != 0 || base < idBase || base > maxBlock {
		return false
	}
	b, err := s.mem.Bytes(block, int(base-beside))
	if err != nil {
		return false
	}
	var words []arch.Addr
	for ; len(b) >= 8; b = b[8:] {
		words = append(words, arch.Addr(binary.LittleEndian.Uint64(b)))
	}
	for i, obj := range words {
		if i == 0 || obj < minTable || obj%8 != 0 || obj>>47 != 0 || obj == block {
			continue
		}
		id, err := s.mem.Pointer(obj + arch.Addr(a.l.ID))
		if err != nil || id == 0 || id == obj {
			continue
		}
		j := slices.Index(words, id)
		if j <= 0 {
			continue
		}
		if _, ok := s.idOf(id); ok {
			a.block, a.threadAt, a.idAt = mt, uint32(8*i), uint32(8*j)
			return true
		}
	}
	return false
}

// objectAhead returns the managed Thread object of a thread, according to mem; 0: there is none, or the object is not
// known.
func (s *Store) objectAhead(mem *target.Reader, t *Thread) (arch.Addr, error) {
	a := s.ahead
	f, ok := a.facts[t.Address]
	if !ok || f.osID != t.OSID || f.root == 0 {
		return 0, nil
	}
	block, err := mem.Pointer(f.root)
	if err != nil || block == 0 {
		return 0, err
	}
	id, err := mem.Pointer(block + arch.Addr(a.idAt))
	if err != nil {
		return 0, err
	}
	obj, err := mem.Pointer(block + arch.Addr(a.threadAt))
	if err != nil || obj == 0 {
		return 0, err
	}
	back, err := mem.Pointer(obj + arch.Addr(a.l.ID))
	if err != nil {
		return 0, err
	}
	if back != id {
		return 0, errMoving
	}
	return obj, nil
}

// objectWord is Store.objectWord. A thread gets its first block, and then the object in the block.
func (a *ahead) objectWord(mem *target.Reader, t *Thread, obj arch.Addr) (at, to arch.Addr, err error) {
	at = t.Address + arch.Addr(a.l.Limit) - rootsBeforeLimit
	if root := a.facts[t.Address].root; root != 0 {
		block, err := mem.Pointer(root)
		if err != nil || block != 0 {
			return block + arch.Addr(a.threadAt), obj, err
		}
		at = root
	}
	to, err = mem.Pointer(at)
	return at, to, err
}

// errMoving: the static fields of a thread contradict each other.
var errMoving = errors.New("the managed objects of the thread are being moved")

// sameAhead is Same.
func (s *Store) sameAhead(r *target.Reader, t *Thread) bool {
	osID, err1 := r.Uint32(t.Address + arch.Addr(s.ahead.l.OSID))
	flags, err2 := r.Uint32(t.Address + arch.Addr(s.ahead.l.State))
	return err1 == nil && err2 == nil && int(osID) == t.OSID && flags&(aheadAttached|aheadDetached) == aheadAttached
}

// nameAhead returns the managed name of a thread, as Store.Name does.
func (s *Store) nameAhead(t *Thread) (name string, known bool) {
	obj, err := s.objectAhead(s.mem, t)
	if err != nil || obj == 0 {
		return "", err == nil
	}
	str, err := s.mem.Pointer(obj + arch.Addr(s.ahead.l.Name))
	if err != nil || str == 0 {
		return "", err == nil
	}
	if s.ahead.strings == 0 {
		base, flags, ok := s.table(str)
		if mt, _ := s.tableAt(str); ok && base == stringBase && flags&hasElements != 0 && flags&0xffff == stringUnit {
			s.ahead.strings = mt
		}
	}
	return s.str(str, maxName)
}

// Block is the object with the static fields of a thread. The object moves.
type Block struct {
	At        arch.Addr
	Size      uint32    // in bytes
	Low, High arch.Addr // of the thread's stack
}

// Block returns the block of a thread of a native AOT program; false: there is none, or the block is not known.
func (s *Store) Block(thread arch.Addr) (b Block, ok bool) {
	if s.ahead == nil {
		return b, false
	}
	if _, b.At = s.blockOf(thread); b.At == 0 {
		return b, false
	}
	base, _, ok := s.table(b.At)
	low, err1 := s.mem.Pointer(thread + arch.Addr(s.ahead.l.Limit))
	high, err2 := s.mem.Pointer(thread + arch.Addr(s.ahead.l.Base))
	b.Size, b.Low, b.High = base-beside, low, high
	return b, ok && err1 == nil && err2 == nil && base >= idBase && base <= maxBlock
}

// Blocks returns the objects with the static fields of a thread of a native AOT program. The fields of code that was
// compiled with the program lie in the block; a list leads to the fields of other code. The objects move.
func (s *Store) Blocks(thread arch.Addr) (out []arch.Addr) {
	if s.ahead == nil {
		return nil
	}
	limit := thread + arch.Addr(s.ahead.l.Limit)
	if obj, err := s.mem.Pointer(limit - listBeforeLimit); err == nil && obj != 0 {
		out = append(out, obj)
	}
	root, err := s.mem.Pointer(limit - rootsBeforeLimit)
	for n := 0; err == nil && root != 0 && n < maxRoots; n++ {
		if block, err := s.mem.Pointer(root); err == nil && block != 0 {
			out = append(out, block)
		}
		root, err = s.mem.Pointer(root + rootNext)
	}
	return out
}

// Ahead reports whether the runtime is that of a native AOT program.
func (s *Store) Ahead() bool { return s.ahead != nil }

// Unsure reports whether the last List has met a thread whose managed facts contradicted each other, because objects
// are being moved, for example. Another List may find them.
func (s *Store) Unsure() bool { return s.ahead != nil && s.ahead.unsure }
