package waits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/snapshot"
)

// part is a class of the framework that is made of another class, or is a part of another class.
type part struct{ assembly, class string }

var (
	semaphoreSlim = part{coreLib, "System.Threading.SemaphoreSlim"}
	eventSlim     = part{coreLib, "System.Threading.ManualResetEventSlim"}
	taskPart      = part{coreLib, "System.Threading.Tasks.Task"}
)

// madeOf lists, for each kind of wait, the classes from the object whose monitor a thread waits for
// to the primitive, from the inside out: each class refers to the class before.
var madeOf = map[snapshot.WaitKind][]part{
	snapshot.SemaphoreWait:  {semaphoreSlim},
	snapshot.EventWait:      {eventSlim},
	snapshot.CountdownWait:  {eventSlim, {threading, "System.Threading.CountdownEvent"}},
	snapshot.BarrierWait:    {eventSlim, {threading, "System.Threading.Barrier"}},
	snapshot.CollectionTake: {semaphoreSlim, {concurrent, "System.Collections.Concurrent.BlockingCollection"}},
	snapshot.CollectionAdd:  {semaphoreSlim, {concurrent, "System.Collections.Concurrent.BlockingCollection"}},
	snapshot.TaskWait:       {eventSlim, taskPart},
	snapshot.TaskWaitAll:    {{coreLib, countdownEvent}},
	snapshot.TaskWaitAny:    {eventSlim, taskPart},
}

// hasOwnMonitor are the kinds of primitives with one monitor, shared with no other primitive.
var hasOwnMonitor = map[snapshot.WaitKind]bool{
	snapshot.SemaphoreWait: true, snapshot.EventWait: true, snapshot.CountdownWait: true,
}

// made explains a wait for a primitive made of a monitor.
func (e *explanation) made(m lock.Monitor) error {
	inner := m.Object
	if inner == 0 {
		inner = m.Lock // a Lock that is no monitor: ManualResetEventSlim has a Lock from .NET 11 on
	}
	if inner == 0 {
		return nil // the primitive around the monitor is unknown
	}
	var class *object.Class
	list := e.inFrames(true)
	if e.w.Kind == snapshot.EventWait {
		e.seeAll(inner, list)
	}
	for _, p := range madeOf[e.w.Kind] {
		f, ok := e.r.only(list, func(f *found) bool {
			return f.class.Is(p.assembly, p.class) && e.refers(f, inner, p == taskPart)
		})
		if !ok && e.w.Kind == snapshot.SemaphoreWait {
			return e.queued(inner, list)
		}
		if !ok {
			return nil
		}
		inner, class = f.obj, f.class
	}
	switch {
	case class == nil:
		return nil
	case class.Plain() == anyPromise:
		return e.any(inner, class)
	case e.w.Kind == snapshot.TaskWaitAll:
		return e.all(inner, class, list)
	}
	e.w.Object, e.w.Type = uint64(inner), class.Display
	if hasOwnMonitor[e.w.Kind] {
		e.w.Lock = uint64(m.Block)
	}
	return e.describe(inner, class, &m)
}

// taskNode is the class of the tasks in the queue of a SemaphoreSlim: SemaphoreSlim.WaitAsync makes
// the tasks.
var taskNode = part{coreLib, "System.Threading.SemaphoreSlim+TaskNode"}

// maxQueue bounds the waiters in front of a thread.
const maxQueue = 1 << 12

// queued explains a wait for a SemaphoreSlim that async methods already wait for: the thread stands
// in the queue of the async methods, and waits for a task of its own in the queue
// (SemaphoreSlim.cs, WaitCore).
func (e *explanation) queued(inner arch.Addr, list []found) error {
	objects := e.r.Managed.Objects
	event, ok := e.r.only(list, func(f *found) bool {
		return f.class.Is(eventSlim.assembly, eventSlim.class) && e.refers(f, inner, false)
	})
	if !ok {
		return nil
	}
	node, ok := e.r.only(list, func(f *found) bool {
		return f.class.Is(taskNode.assembly, taskNode.class) && e.refers(f, event.obj, true)
	})
	if !ok {
		return e.queuedIn(event.obj, list)
	}
	head := node.obj
	for range maxQueue {
		before, err := objects.Pointer(head, node.class, "Prev")
		if err != nil {
			return err
		}
		if before == 0 {
			break
		}
		head = before
	}
	sem, ok := e.r.only(list, func(f *found) bool {
		if !f.class.Is(semaphoreSlim.assembly, semaphoreSlim.class) {
			return false
		}
		first, err := objects.Pointer(f.obj, f.class, "m_asyncHead")
		return err == nil && first == head
	})
	if !ok {
		e.r.queue = node.obj
		return nil
	}
	e.w.Object, e.w.Type = uint64(sem.obj), sem.class.Display
	return e.count(sem.obj, sem.class)
}

// queuedIn is queued for a thread whose frames do not have the task of its own: the queue of the semaphore has a task
// that sets the event.
func (e *explanation) queuedIn(event arch.Addr, list []found) error {
	sem, ok := e.r.only(list, func(f *found) bool {
		return f.class.Is(semaphoreSlim.assembly, semaphoreSlim.class) && e.queues(f, event)
	})
	if !ok {
		return nil
	}
	e.w.Object, e.w.Type = uint64(sem.obj), sem.class.Display
	return e.count(sem.obj, sem.class)
}

// queues reports whether the queue of a semaphore has a task that sets an event.
func (e *explanation) queues(sem *found, event arch.Addr) bool {
	objects := e.r.Managed.Objects
	node, err := objects.Pointer(sem.obj, sem.class, "m_asyncHead")
	for n := 0; err == nil && node != 0 && n < maxQueue; n++ {
		class, failed := objects.Class(node)
		if failed != nil || !class.Is(taskNode.assembly, taskNode.class) {
			return false
		}
		if e.refers(&found{node, class}, event, true) {
			return true
		}
		node, err = objects.Pointer(node, class, "Next")
	}
	return false
}

// refers reports whether an object has a field that refers to another object or, if listed, to a
// list with the other object.
func (e *explanation) refers(f *found, other arch.Addr, listed bool) bool {
	objects := e.r.Managed.Objects
	if name, err := objects.RefersTo(f.obj, f.class, other); err == nil && name != "" {
		return true
	}
	return listed && e.continues(f, other)
}

// maxContinuations bounds the read of a task's list of continuations.
const maxContinuations = 1 << 10

// continues reports whether the list of a task's continuations has an object.
func (e *explanation) continues(f *found, other arch.Addr) bool {
	objects := e.r.Managed.Objects
	list, err := objects.Pointer(f.obj, f.class, "m_continuationObject")
	if err != nil || list == 0 {
		return false
	}
	class, err := objects.Class(list)
	if err != nil || class.Plain() != "System.Collections.Generic.List" {
		return false
	}
	items, err := objects.Pointer(list, class, "_items")
	if err != nil {
		return false
	}
	refs, err := objects.References(items, maxContinuations)
	if err != nil {
		return false
	}
	for _, r := range refs {
		if r == other {
			return true
		}
	}
	return false
}

// asyncMethod returns the async method of a task; "": none.
func (r *Reader) asyncMethod(class *object.Class) string {
	if !strings.Contains(class.Display, asyncBox) {
		return ""
	}
	return r.Managed.Objects.Argument(class)
}
