// Package lock reads the runtime's locks: monitors (every object has a monitor) and the monitor that a thread waits
// for.
//
// A held monitor without waiters is a thin lock: a few bits of the word in front of the object. A monitor with
// waiters has a SyncBlock. Each SyncBlock has an entry in the sync table. The entry names the object, the object's
// word has the entry's number, and the SyncBlock has the number, too. So entry, word and SyncBlock confirm each
// other. If they disagree, the result is ErrChanging.
//
// Sources (dotnet/runtime): src/coreclr/vm/syncblk.h (AwareLock, SyncBlock, SyncTableEntry, and the bits of the
// word), src/coreclr/vm/threaddebugblockinginfo.h, docs/design/datacontracts/SyncBlock.md. This layout holds for .NET
// 8 to 10; in .NET 11 the monitor is managed code: managedmonitor.go.
package lock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// ErrChanging: parts of a lock contradict each other. The lock has changed during the read, or the memory is no lock.
var ErrChanging = errors.New("the lock changes while it is read")

// Monitor is the state of a monitor.
type Monitor struct {
	Object    arch.Addr
	Owner     int       // thread id of the holder, as the runtime has the id: see ByManagedID; 0: no holder
	Recursion int       // number of times that the holder has entered
	Waiters   int       // threads that want to enter
	Waiting   int       // threads in Monitor.Wait
	Block     arch.Addr // the SyncBlock, which does not move; 0: none
	Lock      arch.Addr // the System.Threading.Lock in place of the monitor (.NET 11); 0: none
	Thin      bool      // a thin lock, without a SyncBlock

	// ByManagedID: Owner is a managed thread id, as in all thin locks; else Owner is the operating system's thread
	// id, in the target's PID namespace.
	ByManagedID bool

	// Orphan: the monitor is held, but by no thread of the operating system. The reason can be a holder that ended
	// before any thread waited. A lock that is just being taken is an orphan, too, for a moment: see Holder.
	Orphan bool

	// holder is the holder's Thread object (.NET 8 and 9) or managed thread id.
	holder uint64
	byID   bool // holder is a managed thread id
}

// Holder returns the lock's other record of the holder, beside Owner: the address of the Thread object or the managed
// thread id. One result is 0.
func (m *Monitor) Holder() (thread arch.Addr, managedID int) {
	if m.byID {
		return 0, int(m.holder)
	}
	return arch.Addr(m.holder), 0
}

// HeldBy reports whether a thread holds the monitor, by the address of its Thread object and its ids.
func (m *Monitor) HeldBy(thread arch.Addr, osID, managedID int) bool {
	switch {
	case m.Owner == 0:
		return false
	case m.ByManagedID:
		return m.Owner == managedID
	}
	return m.Owner == osID && (m.holder == 0 || m.holder == uint64(thread) || m.holder == uint64(managedID))
}

// tableLayout is the layout of the sync table. Sizes and offsets are in bytes.
type tableLayout struct {
	Table  arch.Addr `global:"SyncTableEntries"`
	Entry  uint32    `clr:"SyncTableEntry.!"`
	Block  uint32    `clr:"SyncTableEntry.SyncBlock"`
	Object uint32    `clr:"SyncTableEntry.Object"`
	Cache  arch.Addr `global:"SyncBlockCache,optional"` // the address of the variable with the SyncBlockCache's address
	Free   uint32    `clr:"SyncBlockCache.FreeSyncTableIndex,optional"`
}

// blockLayout is the layout of sync blocks (.NET 8 to 10).
type blockLayout struct {
	State     uint32 `clr:"AwareLock.LockState"`
	Recursion uint32 `clr:"AwareLock.RecursionLevel"`
	Holder    uint32 `clr:"AwareLock.HoldingThread,optional"`   // the address of a Thread object (.NET 8 and 9)
	HolderID  uint32 `clr:"AwareLock.HoldingThreadId,optional"` // four bytes (.NET 10)
	OSID      uint32 `clr:"AwareLock.HoldingOSThreadId"`
	Index     uint32 `clr:"AwareLock.SyncIndex"`
	Link      uint32 `clr:"SyncBlock.Link"`
	Monitor   uint32 `clr:"SyncBlock.Monitor"`
	Blocking  uint32 `clr:"Thread.DebugBlockingInfo"`
}

type layout struct {
	tableLayout
	blockLayout
}

// Bits of AwareLock.LockState (syncblk.h, AwareLock::LockState) and of the AwareLock's sync index.
const (
	stateLocked  = 1
	waiterShift  = 6
	indexMask    = 1<<26 - 1
	entryFree    = 1 // in SyncTableEntry.Object
	maxWaiting   = 1 << 12
	maxRecursion = 1 << 30
)

// Bits of the word in front of an object (syncblk.h, BIT_SBLK_… and SBLK_…).
const (
	wordHashOrIndex  = 1 << 27
	wordHash         = 1 << 26
	wordSpin         = 1 << 28
	thinThread       = 1<<16 - 1
	thinRecursion    = 1<<6 - 1
	thinRecursionAt  = 16
	blockLen         = 80 // bytes of a SyncBlock to read, at most
	maxEntry         = 64 // bytes of an entry of the sync table
	largestSyncIndex = 1<<26 - 1
	noThread         = 1<<64 - 1 // in place of the holder's operating system id
)

// Store reads the locks of one runtime. A Store is not safe for concurrent use.
type Store struct {
	mem     *target.Reader
	table   *target.Reader // for looks through the whole table
	objects *object.Reader
	l       layout
	m       *managedLayout // nil: monitors are native
	ahead   *ahead         // of a native AOT program; else nil
	lists   lister
	index   monitorIndex
	events  eventIndex
	infoAt  uint32              // in a ThreadLocalData, of ThreadBlockingInfo.t_first; 0: not known yet
	queues  map[arch.Addr]queue // by SyncBlock: the threads in Monitor.Wait, as last listed
}

const maxQueues = 1 << 10

// Contract is the contract of locks, and Versions are the known versions.
const Contract = "SyncBlock"

var Versions = []contract.Version{"1", "c1"}

// New binds the locks of the runtime that d describes. Reads of a lock use mem; searches for locks use whole.
func New(mem, whole target.Memory, d *contract.Descriptor, objects *object.Reader) (*Store, error) {
	s := &Store{mem: target.NewReader(mem), table: target.NewReader(whole), objects: objects,
		queues: map[arch.Addr]queue{}}
	var ok bool
	if s.lists, ok = mem.(lister); !ok {
		s.lists = target.NewEvidence(mem)
	}
	if err := d.Allow(Contract, Versions...); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.l.tableLayout); err != nil {
		return nil, err
	}
	if err := s.l.tableLayout.check(); err != nil {
		return nil, err
	}
	if _, managed := d.Offset("SyncBlock", "Lock"); managed {
		return s, s.bindManaged(d)
	}
	if err := d.Bind(&s.l.blockLayout); err != nil {
		return nil, err
	}
	if s.l.Holder == contract.Absent && s.l.HolderID == contract.Absent {
		return nil, &contract.MissingError{Runtime: d.Runtime, Missing: []string{"field AwareLock.HoldingThread"}}
	}
	return s, s.l.blockLayout.check()
}

// check reports whether all fields lie within the bytes that are read.
func (l *blockLayout) check() error {
	if l.Monitor > blockLen-8 || l.Link > blockLen-8 {
		return fmt.Errorf("%w: a monitor at %d of a sync block, and a link at %d", contract.ErrFormat,
			l.Monitor, l.Link)
	}
	for _, off := range []uint32{l.State, l.Recursion, l.Holder, l.HolderID, l.OSID, l.Index} {
		if off != contract.Absent && off > blockLen-8-l.Monitor {
			return fmt.Errorf("%w: a field of a monitor at %d", contract.ErrFormat, off)
		}
	}
	return nil
}

func (l *tableLayout) check() error {
	if l.Entry < 8 || l.Entry > maxEntry || l.Block > l.Entry-8 || l.Object > l.Entry-8 {
		return fmt.Errorf("%w: entries of %d bytes in the sync table", contract.ErrFormat, l.Entry)
	}
	return nil
}

// Of returns the state of an object's monitor.
func (s *Store) Of(obj arch.Addr) (Monitor, error) {
	word, err := s.objects.Header(obj)
	if err != nil {
		return Monitor{}, err
	}
	if word&wordHashOrIndex == 0 {
		m := Monitor{Object: obj, Thin: true, ByManagedID: true, Owner: int(word & thinThread)}
		if m.Owner != 0 {
			m.Recursion = int(word>>thinRecursionAt&thinRecursion) + 1
		}
		return m, nil
	}
	if word&wordHash != 0 {
		return Monitor{Object: obj}, nil // a hash code: the monitor has no holder, and never had a waiter
	}
	if s.ahead != nil {
		return s.aheadMonitor(int(word&indexMask), obj)
	}
	block, owner, err := s.entry(int(word & indexMask))
	if err != nil {
		return Monitor{}, err
	}
	if owner != obj || block == 0 {
		return Monitor{}, ErrChanging
	}
	if s.Managed() {
		return s.managed(block, obj)
	}
	m, _, err := s.block(block)
	return m, err
}

// At returns the state of the monitor of the AwareLock at an address. Managed monitors have no AwareLock.
func (s *Store) At(awareLock arch.Addr) (Monitor, error) {
	m, _, err := s.block(awareLock - arch.Addr(s.l.Monitor))
	return m, err
}

// entry reads an entry of the sync table.
func (s *Store) entry(index int) (block, obj arch.Addr, err error) {
	if index <= 0 || index > largestSyncIndex {
		return 0, 0, ErrChanging
	}
	if s.ahead != nil {
		e, err := s.aheadEntry(index)
		return e.block, e.object, err
	}
	table, err := s.mem.Pointer(s.l.Table)
	if err != nil {
		return 0, 0, err
	}
	at := table + arch.Addr(index)*arch.Addr(s.l.Entry)
	if block, err = s.mem.Pointer(at + arch.Addr(s.l.Block)); err != nil {
		return 0, 0, err
	}
	if obj, err = s.mem.Pointer(at + arch.Addr(s.l.Object)); err != nil {
		return 0, 0, err
	}
	if obj&entryFree != 0 || obj == 0 {
		return 0, 0, ErrChanging
	}
	return block, obj, nil
}

// block reads a SyncBlock, the SyncBlock's entry and the word of the object.
func (s *Store) block(at arch.Addr) (m Monitor, index int, err error) {
	b, err := s.mem.Bytes(at, blockLen)
	if err != nil {
		return m, 0, err
	}
	m, index, err = s.parse(b)
	if err != nil {
		return m, 0, err
	}
	back, obj, err := s.entry(index)
	if err != nil {
		return m, 0, err
	}
	word, err := s.objects.Header(obj)
	if err != nil {
		return m, 0, err
	}
	if back != at || word&(wordHashOrIndex|wordHash) != wordHashOrIndex || int(word&indexMask) != index {
		return m, 0, ErrChanging
	}
	m.Object, m.Block = obj, at
	m.Waiting, err = s.waiting(at, arch.Addr(binary.LittleEndian.Uint64(b[s.l.Link:])))
	return m, index, err
}

// parse decodes the first blockLen bytes of a SyncBlock.
func (s *Store) parse(b []byte) (m Monitor, index int, err error) {
	lock := b[s.l.Monitor:]
	u32 := func(off uint32) uint32 { return binary.LittleEndian.Uint32(lock[off:]) }
	u64 := func(off uint32) uint64 { return binary.LittleEndian.Uint64(lock[off:]) }
	state, often, osID := u32(s.l.State), u32(s.l.Recursion), u64(s.l.OSID)
	m = Monitor{Recursion: int(often), Waiters: int(state >> waiterShift)}
	if s.l.HolderID != contract.Absent {
		m.holder, m.byID = uint64(u32(s.l.HolderID)), true
	} else {
		m.holder = u64(s.l.Holder)
	}
	held := state&stateLocked != 0
	if m.Orphan = held && (osID == 0 || osID == noThread); m.Orphan {
		osID = 0
	}
	if held != (often != 0) || held != (m.holder != 0) || held != (osID != 0 || m.Orphan) || osID>>31 != 0 ||
		often > maxRecursion {
		return m, 0, ErrChanging
	}
	m.Owner = int(osID)
	return m, int(u32(s.l.Index) & indexMask), nil
}

// lister follows lists.
type lister interface {
	Links(first arch.Addr, list []arch.Addr, most int) ([]arch.Addr, error)
}

// queue is the threads in Monitor.Wait for one monitor.
type queue struct {
	list []arch.Addr
	read time.Time     // when the reading began
	took time.Duration // of the reading
}

// Each of a thousand threads in Monitor.Wait for one monitor asks for the same queue. A queue longer than shortQueue is
// read again only once queuePause times the time of the last reading have passed.
const (
	shortQueue = 32
	queuePause = 20
)

// waiting counts the threads in Monitor.Wait: a list that goes through their stacks. The count of a long list with the
// same beginning may be some milliseconds old.
func (s *Store) waiting(block, link arch.Addr) (int, error) {
	if link == 0 {
		return 0, nil
	}
	q := s.queues[block]
	if n := len(q.list); n > shortQueue && q.list[0] == link && time.Since(q.read) < queuePause*q.took {
		return n, nil
	}
	begin := time.Now()
	list, err := s.lists.Links(link, q.list, maxWaiting)
	if err != nil {
		return 0, err
	}
	if list == nil {
		return 0, ErrChanging
	}
	if len(s.queues) >= maxQueues {
		clear(s.queues)
	}
	s.queues[block] = queue{list, begin, time.Since(begin)}
	return len(list), nil
}
