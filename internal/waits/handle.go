package waits

import (
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/snapshot"
)

const (
	safeHandle      = "Microsoft.Win32.SafeHandles.SafeWaitHandle"
	waitHandleClass = "System.Threading.WaitHandle"
	mutexClass      = "System.Threading.Mutex"
	threadClass     = "System.Threading.Thread"
)

// handleClasses are the program's classes for kinds of the runtime's objects. An event has several
// classes.
var handleClasses = map[pal.Kind]string{pal.Mutex: mutexClass, pal.Semaphore: "System.Threading.Semaphore"}

// resets name the kinds of events of an EventWaitHandle.
var resets = map[pal.Kind]string{pal.AutoResetEvent: "auto-reset", pal.ManualResetEvent: "manual-reset"}

// inNative finds the runtime's thread object in the native part of the stack, below the first
// managed method: the native functions that wait have the object as an argument.
func (r *Reader) inNative(s *Subject, p primitive) (pal.Blocked, bool) {
	if p.first <= 0 || s.Stack == nil {
		return pal.Blocked{}, false
	}
	b, ok := r.Managed.PAL.Blocked(s.Stack, arch.Addr(s.Frames[0].SP), frameAt(s, p.first), s.Thread.OSID)
	if ok {
		r.Managed.PAL.Learn(&b)
	}
	return b, ok
}

// native returns the objects that block the thread in the runtime's native code; false: unknown.
func (e *explanation) native() (w pal.Wait, ok bool, err error) {
	if e.r.Managed.Locks.Managed() {
		s, err := e.subsystem()
		return s.Wait, len(s.Objects) > 0, err
	}
	b, ok := e.r.inNative(e.s, e.p)
	if !ok {
		return w, false, nil
	}
	return e.r.Managed.PAL.Wait(&b)
}

// join explains a wait for the end of a thread. The blocking object identifies the thread;
// otherwise the frames may have the thread.
func (e *explanation) join() error {
	w, ok, err := e.native()
	if err != nil {
		return err
	}
	if ok && len(w.Objects) == 1 && w.Objects[0].Kind == pal.Thread && w.Objects[0].Ends != 0 {
		return e.ends(w.Objects[0].Ends)
	}
	if ok && len(w.Objects) == 1 && e.r.Managed.Locks.Managed() {
		if obj, err := e.r.joined(&w.Objects[0]); err != nil || obj != 0 {
			return e.joins(obj, err)
		}
	}
	own := e.r.Managed.Threads.Object(&e.s.Thread)
	f, only := e.r.only(e.inFrames(false), func(f *found) bool {
		return f.obj != own && f.class.Is(coreLib, threadClass)
	})
	if !only {
		return nil
	}
	e.w.Object, e.w.Type = uint64(f.obj), f.class.Display
	e.w.Owner, err = e.r.threadOf(f.obj, f.class)
	return err
}

// joins records a wait for the end of the thread of a managed Thread object.
func (e *explanation) joins(obj arch.Addr, err error) error {
	if err == nil {
		err = e.is(obj)
	}
	if err != nil {
		return err
	}
	class, err := e.r.Managed.Objects.Class(obj)
	if err == nil {
		e.w.Owner, err = e.r.threadOf(obj, class)
	}
	return err
}

// ends records a wait for the end of the thread with an operating system id.
func (e *explanation) ends(id int) error {
	t := e.r.byOSID(id)
	if t == nil {
		e.w.Owner = e.r.People.Other(id)
		return nil
	}
	e.w.Owner = e.r.People.Ref(t)
	obj, err := e.r.managedThread(t)
	if err != nil || obj == 0 {
		return err
	}
	return e.is(obj)
}

// byOSID returns the thread with an operating system id; nil: no thread of the runtime has the id.
func (r *Reader) byOSID(id int) *thread.Thread {
	return r.find(func() *thread.Thread { return r.People.OS(id) }, anybody)
}

// unseenJoin explains the wait of a thread whose frames do not tell the wait: in .NET 8 and 9
// Thread.Join with a timeout is a function of the runtime, without a frame.
func (e *explanation) unseenJoin() error {
	w, ok, err := e.native()
	if err != nil || !ok || len(w.Objects) != 1 || w.Objects[0].Kind != pal.Thread {
		return err
	}
	e.w.Kind = snapshot.ThreadJoin
	return e.join()
}

// handle explains a wait for a handle. The blocking object has the state of the wait. The frames
// have the program's object.
func (e *explanation) handle() error {
	w, ok, err := e.native()
	if err != nil {
		return err
	}
	if !ok || len(w.Objects) != 1 {
		return e.handleInFrames()
	}
	o := &w.Objects[0]
	f, ok, err := e.waitHandle(o)
	switch {
	case err != nil:
		return err
	case ok:
		e.w.Object, e.w.Type = uint64(f.obj), f.class.Display
	default:
		if err := e.handleInFrames(); err != nil {
			return err
		}
	}
	e.state(o)
	return nil
}

// waitHandle finds the program's object whose handle leads to an object of the runtime.
func (e *explanation) waitHandle(o *pal.Object) (found, bool, error) {
	var err error
	f, ok := e.r.only(e.inFrames(true), func(f *found) bool {
		got, known, failed := e.r.handleState(f)
		if failed != nil {
			err = failed
		}
		return known && got.At == o.At
	})
	return f, ok, err
}

// handleState returns the object behind the handle of a WaitHandle; false: f is no WaitHandle, or
// the object is unknown.
func (r *Reader) handleState(f *found) (o pal.Object, ok bool, err error) {
	if !f.class.Is(coreLib, waitHandleClass) {
		return o, false, nil
	}
	handle, err := r.handleOf(f)
	if err != nil || handle == 0 {
		return o, false, err
	}
	if r.Managed.Locks.Managed() {
		return r.byHandle(handle)
	}
	return r.Managed.PAL.ByHandle(handle)
}

// handleOf returns the handle of a WaitHandle; 0: none (System.Private.CoreLib: WaitHandle.cs,
// SafeHandle.cs).
func (r *Reader) handleOf(f *found) (arch.Addr, error) {
	objects := r.Managed.Objects
	safe, err := objects.Pointer(f.obj, f.class, "_waitHandle")
	if err != nil || safe == 0 {
		return 0, err
	}
	class, err := objects.Class(safe)
	if err != nil || !class.Is(coreLib, safeHandle) {
		return 0, err
	}
	return objects.Pointer(safe, class, "handle")
}

// handleInFrames finds the object of a wait for a handle. The frames have the object's
// SafeWaitHandle, and the owner of the SafeWaitHandle tells the kind of the handle.
func (e *explanation) handleInFrames() error {
	list := e.inFrames(true)
	safe, ok := e.r.only(list, func(f *found) bool { return f.class.Is(coreLib, safeHandle) })
	if !ok {
		return nil
	}
	f, ok := e.r.only(list, func(f *found) bool {
		return f.class.Is(coreLib, waitHandleClass) && e.refers(f, safe.obj, false)
	})
	if ok {
		e.w.Object, e.w.Type = uint64(f.obj), f.class.Display
	}
	return nil
}

// state describes the state of the awaited object.
func (e *explanation) state(o *pal.Object) {
	if e.w.Type == "" {
		e.w.Type = handleClasses[o.Kind]
	}
	e.w.Lock, e.w.Waiters = uint64(o.At), o.Waiters
	switch {
	case o.Kind == pal.Mutex:
		e.w.Recursion, e.w.Owner = o.Recursion, e.r.ownerOf(o)
	case o.Kind == pal.Semaphore:
		e.w.Detail = "count 0"
	case resets[o.Kind] != "" && e.w.Type == "":
		e.w.Detail = resets[o.Kind] + " event"
	case resets[o.Kind] != "" && !strings.Contains(e.w.Type, "ResetEvent"):
		e.w.Detail = resets[o.Kind]
	}
}

// ownerOf names the owner of a mutex; nil: no owner.
func (r *Reader) ownerOf(o *pal.Object) *snapshot.ThreadRef {
	if o.Owner == 0 {
		return nil
	}
	if t := r.byOSID(o.Owner); t != nil {
		return r.People.Ref(t)
	}
	return r.People.Other(o.Owner)
}

// maxHandles is how many handles a thread can wait for at once (WaitHandle.MaxWaitHandles).
const maxHandles = 64

// handles explains a wait for several handles. A thread that waits for all handles needs each of
// them: the holder is the owner of the first mutex that another thread owns.
func (e *explanation) handles() error {
	w, ok, err := e.native()
	if err != nil {
		return err
	}
	if !ok {
		return e.handlesInFrames()
	}
	e.p.guess, e.w.Kind = false, snapshot.HandleAny
	e.w.Detail = handlesText(len(w.Objects))
	if !w.All {
		return nil
	}
	e.w.Kind = snapshot.HandleAll
	for i := range w.Objects {
		if o := &w.Objects[i]; o.Owner != 0 && o.Owner != e.s.Thread.OSID {
			e.w.Type, e.w.Lock = mutexClass, uint64(o.At)
			e.w.Owner, e.w.Recursion, e.w.Waiters = e.r.ownerOf(o), o.Recursion, o.Waiters
			break
		}
	}
	return nil
}

func handlesText(n int) string {
	if n == 1 {
		return "1 handle"
	}
	return fmt.Sprintf("%d handles", n)
}

// handlesInFrames counts the handles of a wait for several handles, by the list in the frames.
func (e *explanation) handlesInFrames() error {
	objects := e.r.Managed.Objects
	f, ok := e.r.only(e.inFrames(false), func(f *found) bool { return f.class.Display == safeHandle+"[]" })
	if !ok {
		return nil
	}
	refs, err := objects.References(f.obj, maxHandles+1)
	if err != nil {
		return err
	}
	n := 0
	for n < len(refs) && refs[n] != 0 {
		n++
	}
	e.w.Detail = handlesText(n)
	return nil
}
