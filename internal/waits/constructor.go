package waits

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// A thread that needs a class waits in native code while another thread runs the static constructor
// of the class. The Thread object of the waiting thread then has the address of a
// DeadlockAwareLock, by which the runtime finds circles of constructors (src/coreclr/vm/threads.h,
// Thread::m_pBlockingLock). The lock is a part of the entry for the class in the list of running
// constructors (src/coreclr/vm/listlock.h, ListLockEntryBase). No descriptor has these fields, and
// none is needed: the right word leads to the address of a Thread, with the address of a class
// beside it.
const (
	entryHolder = 0  // the Thread that runs the constructor
	entryClass  = 16 // the class's MethodTable
	entryLen    = 24
)

// Constructor returns the class whose static constructor another thread runs, if a thread waits for
// the constructor; nil: no wait. head is a copy of the head of the waiting thread's Thread object,
// at the address self. The owner is the thread that runs the constructor.
func (r *Reader) Constructor(head []byte, self arch.Addr) *snapshot.Wait {
	if r.Runtime == nil {
		return nil
	}
	for off := 0; off+8 <= len(head); off += 8 {
		at := arch.Addr(binary.LittleEndian.Uint64(head[off:]))
		if at%8 != 0 || at < 1<<16 || at>>47 != 0 || r.constructor(at, self) == nil {
			continue
		}
		var w *snapshot.Wait
		stands := r.steadily(func() error { w = r.constructor(at, self); return nil }, nil, primitive{})
		if w != nil {
			w.Certain = stands
			return w
		}
	}
	return nil
}

// constructor explains a wait for the lock at an address; nil: the lock belongs to no constructor.
func (r *Reader) constructor(at arch.Addr, self arch.Addr) *snapshot.Wait {
	var b [entryLen]byte
	if r.Managed.Seen.ReadMemory(b[:], at) != nil {
		return nil
	}
	holder := arch.Addr(binary.LittleEndian.Uint64(b[entryHolder:]))
	if holder == 0 || holder == self {
		return nil
	}
	owner := r.People.At(holder)
	if owner == nil || !r.Managed.Threads.Same(r.Managed.Seen, owner) {
		return nil
	}
	class, err := r.Managed.Objects.Table(arch.Addr(binary.LittleEndian.Uint64(b[entryClass:])))
	if err != nil {
		return nil
	}
	return &snapshot.Wait{
		Kind: snapshot.WaitRuntime, Type: class.Display, Detail: "static constructor", Owner: r.People.Ref(owner),
		Timeout: snapshot.Forever,
	}
}
