package waits

import (
	"cmp"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// From .NET 11 on threads wait for events, semaphores, mutexes and the ends of threads in managed
// code. A managed Thread has a record of its wait, and a list of the mutexes that the thread owns.
// A handle is the address of a GC handle of the object that the handle stands for. So the facts
// about a wait come from these objects, whatever is on the stack. The objects move: a statement
// also rests on the references that lead to the objects.
//
// Sources (dotnet/runtime): System.Private.CoreLib, src/System/Threading:
// WaitSubsystem.ThreadWaitInfo.Unix.cs, WaitSubsystem.WaitableObject.Unix.cs,
// WaitSubsystem.HandleManager.Unix.cs, Thread.CoreCLR.cs.
const (
	recordClass   = "System.Threading.WaitSubsystem+ThreadWaitInfo"
	waitableClass = "System.Threading.WaitSubsystem+WaitableObject"

	notWaiting = 2 // ThreadWaitInfo.WaitSignalState: the first state of a thread that does not wait
	maxWaiters = 1 << 12
	maxOwned   = 64
	maxOften   = 1 << 30
	oneByte    = 0xff // of four bytes
)

// waitables are the kinds of WaitableObject (WaitableObjectType).
var waitables = [...]pal.Kind{pal.ManualResetEvent, pal.AutoResetEvent, pal.Semaphore, pal.Mutex}

// subsystem is a thread's record of its wait in the wait subsystem.
type subsystem struct {
	pal.Wait
	known bool // the thread has a record
	waits bool // the thread waits for Objects; without Objects the thread sleeps
}

// fieldsOf reads fields of an object, until a read fails.
type fieldsOf struct {
	r     *Reader
	obj   arch.Addr
	class *object.Class
	err   error
}

// fields begins to read the fields of an object. The object must have the CoreLib class; "": any
// class.
func (r *Reader) fields(obj arch.Addr, class string) *fieldsOf {
	f := &fieldsOf{r: r, obj: obj}
	if f.class, f.err = r.Managed.Objects.Class(obj); f.err == nil && class != "" && !f.class.Is(coreLib, class) {
		f.err = lock.ErrChanging
	}
	return f
}

func (f *fieldsOf) pointer(name string) (p arch.Addr) {
	if f.err == nil {
		p, f.err = f.r.Managed.Objects.Pointer(f.obj, f.class, name)
	}
	return p
}

func (f *fieldsOf) number(name string) (n uint32) {
	if f.err == nil {
		n, f.err = f.r.Managed.Objects.Uint32(f.obj, f.class, name)
	}
	return n
}

// managedThread returns the managed Thread object of a thread; 0: none.
func (r *Reader) managedThread(t *thread.Thread) (arch.Addr, error) {
	return r.Managed.Threads.ObjectIn(r.Managed.Seen, t)
}

// own returns the thread of a managed Thread object, and the managed id; nil: no living thread. back: the thread must
// refer to the object. The fields are those of Thread.CoreCLR.cs in .NET 8 to 11, and of Thread.NativeAot.cs.
func (f *fieldsOf) own(back bool) (t *thread.Thread, id int) {
	r := f.r
	refers := func(t *thread.Thread) bool {
		obj, err := r.managedThread(t)
		return err == nil && obj == f.obj
	}
	if !r.Managed.Threads.Ahead() {
		native := f.pointer("_DONT_USE_InternalThread")
		if id = int(f.number("_managedThreadId")); f.err != nil {
			return nil, 0
		}
		return r.find(func() *thread.Thread { return r.People.At(native) },
			func(t *thread.Thread) bool { return t.ManagedID == id && (!back || refers(t)) }), id
	}
	number := r.fields(f.pointer("_managedThreadId"), "")
	if id = int(number.number("_managedThreadId")); f.err != nil || number.err != nil {
		f.err = cmp.Or(f.err, number.err)
		return nil, 0
	}
	return r.find(func() *thread.Thread { return r.People.Managed(id) }, refers), id
}

// record returns a thread's record of its wait; nil: the thread has no record, or the runtime has
// none at all.
func (r *Reader) record(t *thread.Thread) (*fieldsOf, error) {
	if !r.Managed.Locks.Managed() {
		return nil, nil
	}
	obj, err := r.managedThread(t)
	if err != nil || obj == 0 {
		return nil, err
	}
	f := r.fields(obj, threadClass)
	if !r.Managed.Threads.Ahead() && f.pointer("_DONT_USE_InternalThread") != t.Address && f.err == nil {
		return nil, lock.ErrChanging
	}
	at := f.pointer("_waitInfo")
	if f.err != nil || at == 0 {
		return nil, f.err
	}
	f = r.fields(at, recordClass)
	if f.pointer("_thread") != obj && f.err == nil {
		f.err = lock.ErrChanging
	}
	return f, f.err
}

// subsystem reads a thread's record of its wait in the wait subsystem.
func (r *Reader) subsystem(t *thread.Thread) (w subsystem, err error) {
	f, err := r.record(t)
	if f == nil || err != nil {
		return w, err
	}
	state, count := f.number("_waitSignalState")&oneByte, int(int32(f.number("_waitedCount")))
	w.All = f.number("_isWaitForAll")&oneByte != 0
	list := f.pointer("_waitedObjects")
	if f.err != nil || count < 0 || count > maxHandles {
		return subsystem{}, orChanging(f.err)
	}
	w.known = true
	if w.waits = state < notWaiting; !w.waits || count == 0 {
		return w, nil
	}
	refs, err := r.Managed.Objects.References(list, count)
	if err != nil || len(refs) != count {
		return subsystem{}, orChanging(err)
	}
	for _, at := range refs {
		o, err := r.waitable(at)
		if err == nil && o.Waiters == 0 {
			err = lock.ErrChanging
		}
		if err != nil {
			return subsystem{}, err
		}
		w.Objects = append(w.Objects, o)
	}
	return w, nil
}

// subsystem reads the record of the explained thread, once.
func (e *explanation) subsystem() (subsystem, error) {
	if e.waiting == nil {
		s, err := e.r.subsystem(&e.s.Thread)
		if err != nil {
			return s, err
		}
		e.waiting = &s
	}
	return *e.waiting, nil
}

// Over reports whether a thread with a record of its waits does not wait. The answer is right only if the thread has
// not run meanwhile.
func (r *Reader) Over(t *thread.Thread) bool {
	s, err := r.subsystem(t)
	return err == nil && s.known && !s.waits
}

// Kind returns the kind of a thread's wait in the wait subsystem; "": no wait, or unknown. The kind
// is right only if the thread has not run meanwhile.
func (r *Reader) Kind(t *thread.Thread) snapshot.WaitKind {
	if r.Managed.Locks.Managed() {
		r.begin()
	}
	s, err := r.subsystem(t)
	switch n := len(s.Objects); {
	case err != nil || !s.waits:
		return ""
	case n == 0:
		return snapshot.ThreadSleep
	case n > 1 && s.All:
		return snapshot.HandleAll
	case n > 1:
		return snapshot.HandleAny
	}
	obj, err := r.joined(&s.Objects[0])
	switch {
	case err != nil || r.unknown || r.Live != nil && !r.unmoved():
		return ""
	case obj != 0:
		return snapshot.ThreadJoin
	}
	return snapshot.HandleOne
}

func orChanging(err error) error {
	if err == nil {
		err = lock.ErrChanging
	}
	return err
}

// waitable reads the state of a WaitableObject.
func (r *Reader) waitable(at arch.Addr) (o pal.Object, err error) {
	f := r.fields(at, waitableClass)
	kind, owned, head := f.number("_type")&oneByte, f.pointer("_ownershipInfo"), f.pointer("_waitersHead")
	if f.err != nil || int(kind) >= len(waitables) {
		return o, orChanging(f.err)
	}
	o = pal.Object{At: at, Kind: waitables[kind]}
	if o.Waiters, err = r.waiters(head, "_next", maxWaiters); errors.Is(err, errLong) {
		err = lock.ErrChanging
	}
	if err != nil {
		return o, err
	}
	if o.Kind != pal.Mutex || owned == 0 {
		return o, nil
	}
	f = r.fields(owned, "")
	thread, often := f.pointer("_thread"), f.number("_reacquireCount")
	if f.err != nil || thread == 0 {
		return o, f.err
	}
	if o.Owner, err = r.idOf(thread); err == nil && often > maxOften {
		err = lock.ErrChanging
	}
	o.Recursion = int(often) + 1
	return o, err
}

// idOf returns the operating system id of the thread of a managed Thread object.
func (r *Reader) idOf(obj arch.Addr) (int, error) {
	f := r.fields(obj, threadClass)
	t, _ := f.own(false)
	if f.err != nil {
		return 0, f.err
	}
	if t == nil {
		return 0, lock.ErrChanging // the thread ends: then the mutex is nobody's
	}
	return t.OSID, nil
}

// byHandle returns the object that a handle stands for; false: no object of the wait subsystem.
func (r *Reader) byHandle(handle arch.Addr) (o pal.Object, ok bool, err error) {
	at, err := target.NewReader(r.Managed.Seen).Pointer(handle)
	if err != nil || at == 0 {
		return o, false, err
	}
	if c, err := r.Managed.Objects.Class(at); err != nil || !c.Is(coreLib, waitableClass) {
		return o, false, nil // of a named mutex, for example
	}
	o, err = r.waitable(at)
	return o, err == nil, err
}

// owned returns the mutexes that a thread owns.
func (r *Reader) owned(t *thread.Thread) (out []pal.Object, err error) {
	f, err := r.record(t)
	if f == nil || err != nil {
		return nil, err
	}
	next := f.pointer("_lockedMutexesHead")
	for err = f.err; err == nil && next != 0; {
		o, err := r.waitable(next)
		if err == nil && (o.Owner != t.OSID || len(out) == maxOwned) {
			err = lock.ErrChanging
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
		f := r.fields(r.fields(next, "").pointer("_ownershipInfo"), "")
		if next = f.pointer("_next"); f.err != nil {
			return nil, f.err
		}
	}
	return out, err
}
