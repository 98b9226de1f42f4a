package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// People are the runtime's threads, as they were listed.
type People interface {
	// OS returns the thread with an id of the operating system, in the target's PID namespace; nil: there is none.
	OS(id int) *thread.Thread
	// Managed returns the thread with a managed id.
	Managed(id int) *thread.Thread
	// At returns the thread whose Thread object is at an address.
	At(address arch.Addr) *thread.Thread
	// Renew lists the threads once more. It is false if there is no point in that.
	Renew() bool
	// Ref says what a thread is called.
	Ref(t *thread.Thread) *profile.ThreadRef
	// Other says the same of a thread that is not, or no longer, one of the runtime's; nil: that is not known.
	Other(osID int) *profile.ThreadRef
	// All reports whether all of the runtime's threads are listed. A dump may lack some.
	All() bool
}

// Ids are given to other threads when theirs have ended. So a thread is believed to have an id only if its Thread
// object says so when it is read along with the lock.

// find returns a thread that the runtime has now; nil: there is none.
func (r *Reader) find(get func() *thread.Thread, fits func(*thread.Thread) bool) *thread.Thread {
	for first := true; ; first = false {
		if t := get(); t != nil && r.Runtime.Threads.Same(r.Runtime.Seen, t) && fits(t) {
			return t
		}
		if !first || !r.People.Renew() {
			return nil
		}
	}
}

func anybody(*thread.Thread) bool { return true }

// byManagedID names the thread with a managed id; nil: that is not known.
func (r *Reader) byManagedID(id int) *profile.ThreadRef {
	return r.ref(r.find(func() *thread.Thread { return r.People.Managed(id) }, anybody), id)
}

// ref names a thread with a managed id. One that is not there any more has ended.
func (r *Reader) ref(t *thread.Thread, id int) *profile.ThreadRef {
	switch {
	case t != nil:
		return r.People.Ref(t)
	case r.People.All():
		return &profile.ThreadRef{ManagedThreadID: id}
	}
	return nil
}

func holds(m *lock.Monitor, t *thread.Thread) bool { return m.HeldBy(t.Address, t.OSID, t.ManagedID) }

// owner names who holds a monitor.
func (r *Reader) owner(m *lock.Monitor) *profile.ThreadRef {
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

// orphaned returns the owner of a lock that says of it only what the runtime calls it: it has ended. Else the lock
// is just being taken.
func (r *Reader) orphaned(m *lock.Monitor) (*profile.ThreadRef, error) {
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

// threadOf names the thread of a managed Thread object; nil: it cannot be told. The fields are those of
// Thread.CoreCLR.cs in .NET 8 to 11.
func (r *Reader) threadOf(obj arch.Addr, class *object.Class) (*profile.ThreadRef, error) {
	native, err := r.Runtime.Objects.Pointer(obj, class, "_DONT_USE_InternalThread")
	if err != nil {
		return nil, err
	}
	id, err := r.Runtime.Objects.Uint32(obj, class, "_managedThreadId")
	if err != nil {
		return nil, err
	}
	t := r.find(func() *thread.Thread { return r.People.At(native) }, func(t *thread.Thread) bool {
		back, err := target.NewReader(r.Runtime.Seen).Pointer(t.Exposed)
		return t.ManagedID == int(id) && err == nil && back == obj
	})
	return r.ref(t, int(id)), nil
}
