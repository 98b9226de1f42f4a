package waits

import (
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/snapshot"
)

// Task.WaitAll puts the incomplete tasks into a list, and waits for an event that counts the tasks.
// The event is a continuation of each task. Task.WaitAny waits for a task of its own; this task has
// all tasks that the program passed. The code is in Task.cs and TaskFactory.cs of .NET 8 to 11.
const (
	countdownEvent = "System.Threading.Tasks.Task+SetOnCountdownMres"
	anyPromise     = "System.Threading.Tasks.TaskFactory+CompleteOnInvokePromise"
	blockingFlag   = 2 // of _stateFlags: the promise belongs to WaitAny, and not to WhenAny (SyncBlockingFlag)

	maxAllTasks = 1 << 12 // of a WaitAll with a list that is read
)

// seeAll finds out whether an event belongs to a Task.WaitAll: the methods that would show the
// WaitAll may have been inlined.
func (e *explanation) seeAll(inner arch.Addr, list []found) {
	_, ok := e.r.only(list, func(f *found) bool {
		return f.class.Is(coreLib, countdownEvent) && e.refers(f, inner, false)
	})
	if ok {
		e.p.kind, e.w.Kind = snapshot.TaskWaitAll, snapshot.TaskWaitAll
	}
}

// all explains a Task.WaitAll by its event.
func (e *explanation) all(event arch.Addr, class *object.Class, list []found) error {
	n, err := e.r.Managed.Objects.Uint32(event, class, "_count")
	if err != nil {
		return err
	}
	left := int(int32(n))
	e.w.Detail = tasksText(left, 0)
	of, tasks := 0, []snapshot.Wait(nil)
	for i := range list {
		if list[i].class.Display != "System.Collections.Generic.List<"+taskClass+">" || !e.r.isObject(list[i].obj) {
			continue
		}
		all, got, ok := e.counted(&list[i], event)
		switch {
		case !ok || len(got) != left:
		case tasks == nil:
			of, tasks = all, got
		case of != all:
			of = 0 // one of the lists belongs to an earlier wait for the same tasks
		}
	}
	if tasks != nil && !e.r.unknown {
		e.w.Detail, e.w.Tasks = tasksText(left, of), tasks[:min(len(tasks), snapshot.MaxTasks)]
	}
	return nil
}

// counted returns the incomplete tasks of a list, and the number of all tasks in the list; false:
// an incomplete task does not have the event as a continuation.
func (e *explanation) counted(f *found, event arch.Addr) (of int, tasks []snapshot.Wait, ok bool) {
	objects := e.r.Managed.Objects
	n, err := objects.Uint32(f.obj, f.class, "_size")
	if err != nil || n > maxAllTasks {
		return 0, nil, false
	}
	items, err := objects.Pointer(f.obj, f.class, "_items")
	if err != nil {
		return 0, nil, false
	}
	refs, err := objects.References(items, int(n))
	if err != nil || len(refs) != int(n) {
		return 0, nil, false
	}
	for _, ref := range refs {
		t, complete, err := e.oneTask(ref)
		if err != nil {
			return 0, nil, false
		}
		if complete {
			continue
		}
		class, err := objects.Class(ref)
		if err != nil || !e.refers(&found{ref, class}, event, true) {
			return 0, nil, false
		}
		tasks = append(tasks, t)
	}
	slices.Reverse(tasks) // WaitAll goes through the tasks of the program from the end (Task.WaitAllCore)
	return int(n), tasks, true
}

// any explains a wait for any of several tasks, by the promise that completes with the first task.
func (e *explanation) any(promise arch.Addr, class *object.Class) error {
	objects := e.r.Managed.Objects
	flags, err := objects.Uint32(promise, class, "_stateFlags")
	if err != nil {
		return err
	}
	if flags&blockingFlag != 0 {
		e.p.kind, e.w.Kind = snapshot.TaskWaitAny, snapshot.TaskWaitAny
	}
	at, err := objects.Pointer(promise, class, "_tasks")
	if err != nil || at == 0 {
		return err // the promise has just been completed
	}
	refs, err := e.tasksIn(at)
	if err != nil || len(refs) == 0 {
		return err
	}
	e.w.Detail = tasksOf(len(refs))
	if len(refs) > snapshot.MaxTasks {
		return nil
	}
	for _, ref := range refs {
		t, _, err := e.oneTask(ref)
		if err != nil {
			return err
		}
		e.w.Tasks = append(e.w.Tasks, t)
	}
	return nil
}

// tasksIn returns the tasks in an array or in a list; none: at is neither, or is too long.
func (e *explanation) tasksIn(at arch.Addr) ([]arch.Addr, error) {
	objects := e.r.Managed.Objects
	class, err := objects.Class(at)
	if err != nil {
		return nil, err
	}
	size := uint32(maxAllTasks)
	if class.Plain() == "System.Collections.Generic.List" {
		if size, err = objects.Uint32(at, class, "_size"); err != nil || size > maxAllTasks {
			return nil, err
		}
		if at, err = objects.Pointer(at, class, "_items"); err != nil {
			return nil, err
		}
	}
	return objects.References(at, int(size))
}

// oneTask describes one of several tasks, like the task of a Task.Wait.
func (e *explanation) oneTask(obj arch.Addr) (w snapshot.Wait, complete bool, err error) {
	class, err := e.r.Managed.Objects.Class(obj)
	if err != nil {
		return w, false, err
	}
	flags, err := e.r.Managed.Objects.Uint32(obj, class, "m_stateFlags")
	if err != nil {
		return w, false, err
	}
	w = snapshot.Wait{
		Kind: snapshot.TaskWait, Object: uint64(obj), Type: class.Display, Certain: true, Detail: taskState(flags),
		Method: e.r.asyncMethod(class),
	}
	return w, flags&taskCompleted != 0, nil
}

func tasksOf(n int) string { return counted(n, "task", "tasks") }

// tasksText says how many of some tasks are not complete; of 0: the number of all tasks is unknown.
func tasksText(left, of int) string {
	if of == 0 {
		return tasksOf(left) + " not complete"
	}
	return fmt.Sprintf("%d of %s not complete", left, tasksOf(of))
}
