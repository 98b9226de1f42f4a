package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/snapshot"
)

// People are the runtime's threads, as listed.
type People interface {
	// OS returns the thread with an operating system id, in the target's PID namespace; nil: none.
	OS(id int) *thread.Thread
	// Managed returns the thread with a managed id.
	Managed(id int) *thread.Thread
	// At returns the thread with the Thread object at an address.
	At(address arch.Addr) *thread.Thread
	// Renew lists the threads once more. The result is false if another list would bring nothing.
	Renew() bool
	// Ref names a thread.
	Ref(t *thread.Thread) *snapshot.ThreadRef
	// Other names a thread that is not, or no longer, one of the runtime's; nil: unknown.
	Other(osID int) *snapshot.ThreadRef
	// All reports whether all of the runtime's threads are listed. A dump may lack some.
	All() bool
}

// When a thread has ended, another thread may get the id. So an id counts only if the Thread
// object, read along with the lock, has the id.

// find returns a thread that the runtime has now; nil: none.
func (r *Reader) find(get func() *thread.Thread, fits func(*thread.Thread) bool) *thread.Thread {
	for first := true; ; first = false {
		if t := get(); t != nil && r.Managed.Threads.Same(r.Managed.Seen, t) && fits(t) {
			return t
		}
		if !first || !r.People.Renew() {
			return nil
		}
	}
}

func anybody(*thread.Thread) bool { return true }

// byManagedID names the thread with a managed id; nil: unknown.
func (r *Reader) byManagedID(id int) *snapshot.ThreadRef {
	return r.ref(r.find(func() *thread.Thread { return r.People.Managed(id) }, anybody), id)
}

// ref names a thread with a managed id. A thread that is not there any more has ended.
func (r *Reader) ref(t *thread.Thread, id int) *snapshot.ThreadRef {
	switch {
	case t != nil:
		return r.People.Ref(t)
	case r.People.All():
		return &snapshot.ThreadRef{ManagedThreadID: id}
	}
	return nil
}

func holds(m *lock.Monitor, t *thread.Thread) bool { return m.HeldBy(t.Address, t.OSID, t.ManagedID) }

// owner names the holder of a monitor.
func (r *Reader) owner(m *lock.Monitor) *snapshot.ThreadRef {
	if m.ByManagedID {
		return r.byManagedID(m.Owner)
	}
	t := r.find(func() *thread.Thread { return r.People.OS(m.Owner) },
		func(t *thread.Thread) bool { return holds(m, t) })
	if t == nil {
		return r.People.Other(m.Owner)
	}
	return r.People.Ref(t)
}

// orphaned returns the owner of a lock, if the lock has only the runtime's name for the owner and
// the owner has ended. Else the lock is just being taken.
func (r *Reader) orphaned(m *lock.Monitor) (*snapshot.ThreadRef, error) {
	at, id := m.Holder()
	t := r.find(func() *thread.Thread {
		if id != 0 {
			return r.People.Managed(id)
		}
		return r.People.At(at)
	}, anybody)
	if owner := r.ref(t, id); owner != nil && owner.OSThreadID == 0 {
		return owner, nil
	}
	return nil, lock.ErrChanging
}

// threadOf names the thread of a managed Thread object; nil: unknown.
func (r *Reader) threadOf(obj arch.Addr, class *object.Class) (*snapshot.ThreadRef, error) {
	f := fieldsOf{r: r, obj: obj, class: class}
	t, id := f.own(true)
	if f.err != nil {
		return nil, f.err
	}
	return r.ref(t, id), nil
}
