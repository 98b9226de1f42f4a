// Package pal reads the objects of the platform adaptation layer (PAL), the runtime's own interface of an operating
// system: the event, semaphore, mutex or thread that a thread waits for.
//
// A handle is an index of a table of objects. An object has a state: how often it is signalled, its owner, and its
// waiters. A thread has a record of its wait, with a node for each object. The node is in the list of the object's
// waiters, too.
//
// No descriptor has these structures. So a structure is believed only if its neighbours confirm it: a thread's record
// refers back to the thread, a node to the record and to the thread's id, the state to its nodes and to its owner's
// list of owned objects. Without confirmation there is no result: ErrChanging, or false.
//
// Sources (dotnet/runtime, src/coreclr/pal/src): synchmgr/synchmanager.hpp (CSynchData, WaitingThreadsListNode,
// OwnedObjectsListNode), include/pal/synchobjects.hpp (ThreadWaitInfo, CThreadSynchronizationInfo),
// include/pal/thread.hpp (CPalThread), include/pal/corunix.hpp (PalObjectTypeId), objmgr/palobjbase.hpp and
// shmobject.hpp (CPalObjectBase), include/pal/handlemgr.hpp (CSimpleHandleManager). The offsets are those of x86-64,
// read in processes of .NET 8 to 10.
package pal

import (
	"encoding/binary"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrChanging: parts of an object contradict each other. The object has changed during the read, or there is no
// object.
var ErrChanging = errors.New("the object changes while it is read")

// Kind is a kind of object (PalObjectTypeId).
type Kind uint32

// The kinds of object that threads wait for here.
const (
	AutoResetEvent   Kind = 0
	ManualResetEvent Kind = 1
	Mutex            Kind = 2
	Semaphore        Kind = 4
	Process          Kind = 8
	Thread           Kind = 9

	kinds Kind = 11
)

// Object is the state of an object.
type Object struct {
	At        arch.Addr // address of the state; the state does not move
	Kind      Kind
	Owner     int // of a mutex: id of the owning thread, in the target's PID namespace; 0: none
	Recursion int // how often the owner owns the mutex
	Waiters   int
	Ends      int // of a Thread that is the only object of a wait: the thread's id; 0: not known

	owner, node arch.Addr // of an owned mutex
}

// Wait is a thread's wait.
type Wait struct {
	All     bool     // for all objects
	Objects []Object // in the order of the wait call
}

// shape has the offsets of the structures, in bytes.
type shape struct {
	// Of a CPalThread. The record of its wait is a ThreadWaitInfo.
	threadObject, threadID, owned, record int
	// Of that record: the number of objects, the thread, the nodes.
	count, thread, nodes int
	// Of a node: the thread's id, the state of the node's object, the record.
	nodeID, nodeData, nodeRecord int
	// Of a CSynchData. The list of its nodes comes first.
	waiters, kind, often, ownerID, owner, ownedNode, dataLen int
	// Of an object: its state, its data of a thread, and the pointer to the lists of all objects. The table of
	// handles lies behind the lists: its length, and its address.
	data, local, lists, tableLen, table int
}

const (
	localOfObject  = 24
	maxObjects     = 64 // objects of one wait
	maxWords       = 512
	maxOwned       = 64
	maxHandles     = 1 << 24
	maxOften       = 1 << 30
	waitAll        = 2 // WaitType: for all objects
	handleShift    = 2
	ownedData      = 16 // of a node of the list of a thread's owned objects
	listNext       = 0
	listPrevious   = 8
	entryLen       = 16
	entryAllocated = 8
)

// shapes are the shapes of .NET 8 and 9, and of .NET 10. .NET 8 and 9 could share objects with other processes.
var shapes = [...]shape{
	{
		threadObject: 168, threadID: 176, owned: 392, record: 520,
		count: 8, thread: 16, nodes: 24,
		nodeID: 24, nodeData: 48, nodeRecord: 56,
		waiters: 16, kind: 36, often: 48, ownerID: 56, owner: 64, ownedNode: 72, dataLen: 80,
		data: 440, local: localOfObject, lists: 240, tableLen: 200, table: 208,
	},
	{
		threadObject: 72, threadID: 80, owned: 296, record: 424,
		count: 4, thread: 8, nodes: 16,
		nodeID: 16, nodeData: 40, nodeRecord: 48,
		waiters: 16, kind: 20, often: 32, ownerID: 40, owner: 48, ownedNode: 56, dataLen: 64,
		data: 152, local: localOfObject, lists: 144, tableLen: 104, table: 112,
	},
}

// Reader reads the objects of one runtime. It is not safe for concurrent use.
type Reader struct {
	mem    *target.Reader
	search *target.Reader // for searches: most reads meet something else

	s     *shape    // nil: not known yet
	lists arch.Addr // the lists of all objects; 0: not known yet
	near  []int     // where on stacks threads were found, from the stack pointer, in bytes
}

// New returns a Reader. Objects are read from mem, and all results rest on mem. search is the same memory, for
// searches.
func New(mem, search target.Memory) *Reader {
	return &Reader{mem: target.NewReader(mem), search: target.NewReader(search)}
}

// Blocked is a thread that is blocked in this layer.
type Blocked struct {
	Thread arch.Addr // its CPalThread
	stack  *target.Stack
	from   arch.Addr // of the native part of its stack
	to     arch.Addr
	id     int
}

// Blocked finds the thread of a stack, by the thread's id in the target's PID namespace. The native part of the stack
// is between two addresses and refers to the thread, because the functions of this layer have the thread as an
// argument. false: there is no such reference.
func (r *Reader) Blocked(stack *target.Stack, from, to arch.Addr, id int) (b Blocked, ok bool) {
	from = (from + 7) &^ 7
	to = min(to, from+8*maxWords)
	for _, off := range r.near {
		if v, ok := pointer(stack, from+arch.Addr(off)); ok && from+arch.Addr(off) < to && r.isThread(v, id) {
			return Blocked{v, stack, from, to, id}, true
		}
	}
	for at := from; at < to; at += 8 {
		if v, ok := pointer(stack, at); ok && r.isThread(v, id) {
			if len(r.near) < 8 {
				r.near = append(r.near, int(at-from))
			}
			return Blocked{v, stack, from, to, id}, true
		}
	}
	return b, false
}

// pointer reads a word that may be an address of allocated memory.
func pointer(stack *target.Stack, at arch.Addr) (arch.Addr, bool) {
	v, ok := stack.Uint64(at)
	return arch.Addr(v), ok && isPointer(arch.Addr(v)) && !stack.Contains(arch.Addr(v))
}

func isPointer(v arch.Addr) bool { return v%8 == 0 && v >= 1<<16 && v>>47 == 0 }

// isThread reports whether there is a CPalThread of an id at an address.
func (r *Reader) isThread(at arch.Addr, id int) bool {
	if r.s != nil {
		return r.fits(r.s, at, id)
	}
	for i := range shapes {
		if r.fits(&shapes[i], at, id) {
			r.s = &shapes[i]
			return true
		}
	}
	return false
}

func (r *Reader) fits(s *shape, at arch.Addr, id int) bool {
	back, err := r.search.Pointer(at + arch.Addr(s.record+s.thread))
	if err != nil || back != at {
		return false
	}
	own, err := r.search.Uint64(at + arch.Addr(s.threadID))
	return err == nil && own == uint64(id)
}

// Wait returns the wait of a thread; false: the thread waits for no object.
func (r *Reader) Wait(b *Blocked) (w Wait, ok bool, err error) {
	s, record := r.s, b.Thread+arch.Addr(r.s.record)
	head, err := r.mem.Bytes(record, s.nodes)
	if err != nil {
		return w, false, err
	}
	count := binary.LittleEndian.Uint32(head[s.count:])
	if arch.Addr(binary.LittleEndian.Uint64(head[s.thread:])) != b.Thread || count > maxObjects {
		return w, false, ErrChanging
	}
	w.All = binary.LittleEndian.Uint32(head) == waitAll
	for i := range arch.Addr(count) {
		node, err := r.mem.Pointer(record + arch.Addr(s.nodes) + 8*i)
		if err != nil {
			return w, false, err
		}
		data, err := r.dataOf(node, record, b.id)
		if err != nil {
			return w, false, err
		}
		o, err := r.object(data)
		if err != nil {
			return w, false, err
		}
		if o.Waiters == 0 {
			return w, false, ErrChanging
		}
		if o.Kind == Thread && count == 1 {
			o.Ends = r.threadOf(b, data)
		}
		w.Objects = append(w.Objects, o)
	}
	return w, count > 0, nil
}

// dataOf returns the state of the object of a node in a thread's record.
func (r *Reader) dataOf(node, record arch.Addr, id int) (arch.Addr, error) {
	s := r.s
	b, err := r.mem.Bytes(node, s.nodeRecord+8)
	if err != nil {
		return 0, err
	}
	if arch.Addr(binary.LittleEndian.Uint64(b[s.nodeRecord:])) != record ||
		binary.LittleEndian.Uint32(b[s.nodeID:]) != uint32(id) {
		return 0, ErrChanging
	}
	return arch.Addr(binary.LittleEndian.Uint64(b[s.nodeData:])), nil
}

// object reads the state of an object.
func (r *Reader) object(data arch.Addr) (o Object, err error) {
	s := r.s
	b, err := r.mem.Bytes(data, s.dataLen)
	if err != nil {
		return o, err
	}
	u32 := func(off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
	u64 := func(off int) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[off:])) }
	o = Object{
		At: data, Kind: Kind(u32(s.kind)), Waiters: int(u32(s.waiters)), Recursion: int(u32(s.often)),
		owner: u64(s.owner), node: u64(s.ownedNode),
	}
	head, tail := u64(0), u64(8)
	if o.Kind >= kinds || o.Waiters > maxOften || o.Recursion > maxOften || (head == 0) != (o.Waiters == 0) ||
		(head == 0) != (tail == 0) {
		return o, ErrChanging
	}
	if o.Kind != Mutex || o.Recursion == 0 {
		if o.owner != 0 || o.node != 0 || o.Recursion != 0 {
			return o, ErrChanging
		}
		return o, nil
	}
	o.Owner = int(u32(s.ownerID))
	return o, r.checkOwner(&o)
}

// checkOwner requires that a mutex is in its owner's list of owned objects, and that the owner has the id in the
// mutex.
func (r *Reader) checkOwner(o *Object) error {
	data, err := r.mem.Pointer(o.node + ownedData)
	if err != nil {
		return err
	}
	id, err := r.mem.Uint64(o.owner + arch.Addr(r.s.threadID))
	if err != nil {
		return err
	}
	if data != o.At || id != uint64(o.Owner) || o.Owner <= 0 {
		return ErrChanging
	}
	return nil
}

// threadOf returns the id of the thread whose end a thread waits for, by the state of the awaited thread's object; 0:
// not found. The waiting thread's stack refers to the object. The object refers to its thread, and the thread refers
// back.
func (r *Reader) threadOf(b *Blocked, data arch.Addr) int {
	s := r.s
	for at := b.from; at < b.to; at += 8 {
		obj, ok := pointer(b.stack, at)
		if !ok {
			continue
		}
		if got, err := r.search.Pointer(obj + arch.Addr(s.data)); err != nil || got != data {
			continue
		}
		if id := r.localThread(obj, data); id != 0 {
			return id
		}
	}
	return 0
}

// localThread returns the id of the thread of an object with a state; 0: the object is for no thread.
func (r *Reader) localThread(obj, data arch.Addr) int {
	s := r.s
	got, err := r.mem.Pointer(obj + arch.Addr(s.data))
	if err != nil || got != data {
		return 0
	}
	local, err := r.mem.Pointer(obj + arch.Addr(s.local))
	if err != nil {
		return 0
	}
	thread, err := r.mem.Pointer(local)
	if err != nil || !isPointer(thread) {
		return 0
	}
	back, err := r.mem.Pointer(thread + arch.Addr(s.threadObject))
	if err != nil || back != obj {
		return 0
	}
	id, err := r.mem.Uint64(thread + arch.Addr(s.threadID))
	if err != nil || id>>31 != 0 {
		return 0
	}
	return int(id)
}

// Owned returns the mutexes that a thread owns.
func (r *Reader) Owned(b *Blocked) (out []Object, err error) {
	head := b.Thread + arch.Addr(r.s.owned)
	previous := head
	for {
		node, err := r.mem.Pointer(previous + listNext)
		if err != nil {
			return nil, err
		}
		if node == head {
			return out, nil
		}
		back, err := r.mem.Pointer(node + listPrevious)
		if err != nil {
			return nil, err
		}
		data, err := r.mem.Pointer(node + ownedData)
		if err != nil {
			return nil, err
		}
		o, err := r.object(data)
		if err != nil {
			return nil, err
		}
		if back != previous || o.owner != b.Thread || o.node != node || len(out) == maxOwned {
			return nil, ErrChanging
		}
		out, previous = append(out, o), node
	}
}
