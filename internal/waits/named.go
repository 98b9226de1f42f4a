package waits

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// A named Mutex is no object of the wait subsystem. From .NET 11 on the record of a thread leads to
// a list of the named mutexes that the thread owns. Each entry is an object with the thread, the
// recursion count, and the address of the pthread mutex that all processes share.
//
// Source (dotnet/runtime): System.Private.CoreLib, src/System/Threading/NamedMutex.Unix.cs.
const (
	namedHandleClass = "System.Threading.WaitSubsystem+NamedMutex"
	namedClass       = "System.Threading.NamedMutexProcessDataBase"
	nextNamed        = "<NextOwnedNamedMutex>k__BackingField"
)

// Named is the detail of a hold of a named Mutex. The Mutex has the name of the file that contains
// Wait.Lock.
const Named = "named"

// namedMutex is a named Mutex that a thread owns.
type namedMutex struct {
	at    arch.Addr // of the pthread mutex
	often int       // how often the thread owns the mutex; 0: not at all
	next  arch.Addr // the next mutex that the thread owns
}

// named reads a named Mutex, by the object that this process has for the Mutex.
func (r *Reader) named(obj arch.Addr, t *thread.Thread) (n namedMutex, err error) {
	own, err := r.managedThread(t)
	if err != nil {
		return n, err
	}
	f := r.fields(obj, namedClass)
	owner, often := f.pointer("_lockOwnerThread"), f.pointer("_lockCount")
	if n.at, n.next = f.pointer("_sharedData"), f.pointer(nextNamed); f.err != nil || own == 0 || owner != own {
		return n, f.err
	}
	if often == 0 || often > maxOften {
		return n, lock.ErrChanging
	}
	n.often = int(often)
	return n, nil
}

// namedOf returns the object that this process has for a named Mutex; false: the Mutex has no name.
func (r *Reader) namedOf(f *found) (arch.Addr, bool) {
	if !r.Managed.Locks.Managed() {
		return 0, false
	}
	handle, err := r.handleOf(f)
	if err != nil || handle == 0 {
		return 0, false
	}
	at, err := target.NewReader(r.Managed.Seen).Pointer(handle)
	if err != nil || at == 0 {
		return 0, false
	}
	of := r.fields(r.fields(at, namedHandleClass).pointer("_processDataHeader"), "")
	data := of.pointer("_processData")
	return data, of.err == nil && data != 0
}

// withNamed adds the named mutexes that a thread owns and that the thread's stack does not refer
// to.
func (r *Reader) withNamed(list []snapshot.Wait, t *thread.Thread) ([]snapshot.Wait, error) {
	f, err := r.record(t)
	if f == nil || err != nil {
		return list, err
	}
	chain := f.pointer("_namedMutexOwnershipChain")
	if errors.Is(f.err, object.ErrNoField) || f.err == nil && chain == 0 {
		return list, nil
	}
	f = r.fields(chain, "")
	next := f.pointer("_head")
	for count := 0; f.err == nil && next != 0; count++ {
		n, err := r.named(next, t)
		if err == nil && (n.often == 0 || count == maxOwned) {
			err = lock.ErrChanging
		}
		if err != nil {
			return nil, err
		}
		if next = n.next; len(list) < maxHolds && !hasLock(list, n.at) {
			list = append(list, heldNamed(snapshot.Wait{Type: mutexClass}, &n))
		}
	}
	return list, f.err
}

func heldNamed(w snapshot.Wait, n *namedMutex) snapshot.Wait {
	w.Kind, w.Lock, w.Recursion, w.Detail = snapshot.HandleOne, uint64(n.at), n.often, Named
	return w
}
