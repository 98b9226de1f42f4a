package waits

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/snapshot"
)

// Run is a task that cannot complete before a thread goes on: the thread runs the task, or another
// task that the first awaits.
type Run struct {
	Task arch.Addr
	// Ran is the task that the thread runs: Task, or a task that Task awaits.
	Ran arch.Addr
	// Async: Ran is the task of an async method, and can go on elsewhere once the thread has left
	// the method.
	Async bool
}

// runners are the methods that run a task. The frames of a runner, or of its callees, refer to the
// task.
var runners = []struct {
	part  string
	async bool
}{
	{"System.Threading.Tasks.Task.ExecuteWithThreadLocal", false},
	{"+AsyncStateMachineBox`1.MoveNext", true},
	{"+AsyncStateMachineBox`1.ExecuteFromThreadPool", true},
	{runtimeTask + "`1.DispatchContinuations", true},
	{runtimeTask + "`1.InstrumentedDispatchContinuations", true},
}

// runtimeTask is the task of methods that the runtime itself suspends, from .NET 11 on. The
// suspended methods are in m_stateObject. The field is empty while one of the methods runs
// (AsyncHelpers.CoreCLR.cs).
const runtimeTask = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask"

func isRuntimeTask(class *object.Class) bool {
	return class.Assembly == coreLib && class.Plain() == runtimeTask
}

// suspendedIn reports whether methods are suspended in a runtimeTask.
func (r *Reader) suspendedIn(obj arch.Addr, class *object.Class) (suspended, known bool) {
	at, err := r.Managed.Objects.Pointer(obj, class, "m_stateObject")
	return at != 0, err == nil
}

// runner reports whether a frame belongs to a method that runs a task.
func runner(f *snapshot.Frame) (async, ok bool) {
	if f.Kind != snapshot.Managed || f.Module != coreLib {
		return false, false
	}
	for _, r := range runners {
		if strings.Contains(f.Method, r.part) {
			return r.async, true
		}
	}
	return false, false
}

const (
	taskClass    = "System.Threading.Tasks.Task"
	cancellation = "System.Threading.CancellationTokenSource"

	maxRuns  = 256     // tasks of a thread
	maxDepth = 1 << 12 // objects examined to find the tasks
)

// Runs returns the tasks that cannot complete before a thread goes on.
//
// A task's flags tell whether the delegate has been called and has not returned; only one thread
// can be in the delegate. An async method's state tells whether the method runs. The task's
// continuations lead to the awaiting tasks.
func (r *Reader) Runs(s *Subject) []Run {
	if s.Thread.Address == 0 || r.Managed == nil || r.Managed.Locks == nil {
		return nil
	}
	var out []Run
	for i := range s.Frames {
		async, ok := runner(&s.Frames[i])
		if !ok || len(out) >= maxRuns {
			continue
		}
		var found []Run
		stands := r.steadily(func() error {
			var err error
			found, err = r.runBy(s, i, async)
			return err
		}, nil, primitive{})
		if stands {
			out = append(out, found...)
		}
	}
	return out
}

// RunAt returns the task whose delegate the method of a frame runs; 0: unknown.
func (r *Reader) RunAt(s *Subject, frame int) (task arch.Addr) {
	stands := r.steadily(func() error {
		f, _ := r.runAt(s, frame, false)
		task = f.obj
		return nil
	}, nil, primitive{})
	if !stands {
		return 0
	}
	return task
}

// runAt returns the task that the method of a frame runs.
func (r *Reader) runAt(s *Subject, frame int, async bool) (found, bool) {
	list := r.look(s.Stack, frameAt(s, max(frame-1, 0)), frameAt(s, frame+1))
	return r.only(list, func(f *found) bool { return r.running(f.obj, f.class, async) })
}

// runBy returns the task that the method of a frame runs, and the awaiting tasks.
func (r *Reader) runBy(s *Subject, frame int, async bool) ([]Run, error) {
	f, ok := r.runAt(s, frame, async)
	if !ok {
		return nil, nil
	}
	out := []Run{{f.obj, f.obj, async}}
	waiting, err := r.awaiting(f.obj, f.class)
	for _, t := range waiting {
		out = append(out, Run{t, f.obj, async})
	}
	return out, err
}

// Bits of Task.m_stateFlags: see taskStates.
const (
	taskInvoked   = 0x0002_0000
	taskChildren  = 0x0080_0000
	taskCompleted = 0x0160_0000
)

// running reports whether an object is a task that some thread runs now.
func (r *Reader) running(obj arch.Addr, class *object.Class, async bool) bool {
	if !class.Is(coreLib, taskClass) {
		return false
	}
	flags, err := r.Managed.Objects.Uint32(obj, class, "m_stateFlags")
	if err != nil || flags&taskCompleted != 0 {
		return false
	}
	if !async {
		return flags&taskInvoked != 0 && flags&taskChildren == 0
	}
	if isRuntimeTask(class) {
		suspended, known := r.suspendedIn(obj, class)
		return known && !suspended
	}
	return strings.Contains(class.Display, asyncBox) && r.stateOf(obj, class) == stateRuns
}

// States of an async method's state machine. While the method is suspended, the state is the number
// of an await.
const (
	stateRuns    = -1
	stateUnknown = -1 << 31
)

// stateOf returns the state of the async method of a task.
func (r *Reader) stateOf(obj arch.Addr, class *object.Class) int32 {
	at, machine, err := r.Managed.Objects.Generic(obj, class, "StateMachine")
	if err != nil {
		return stateUnknown
	}
	state, err := r.Managed.Objects.Uint32(at, machine, "<>1__state")
	if err != nil {
		return stateUnknown
	}
	return int32(state)
}

// StillRuns reports whether the thread of a Run is certainly still in the task. still: the thread
// has not run since.
func (r *Reader) StillRuns(run Run, still bool) bool {
	if run.Async && !still {
		return false
	}
	runs := false
	stands := r.steadily(func() error {
		class, err := r.Managed.Objects.Class(run.Ran)
		runs = err == nil && r.running(run.Ran, class, run.Async)
		return err
	}, nil, primitive{})
	return stands && runs
}

// awaiting returns the tasks that cannot complete before a task, by the task's continuations:
// awaiting async methods, and the tasks of Unwrap, WhenAll and ContinueWith.
func (r *Reader) awaiting(task arch.Addr, class *object.Class) ([]arch.Addr, error) {
	w := awaiters{r: r}
	if err := w.behind(task, class); err != nil {
		return nil, err
	}
	for i := 0; i < len(w.tasks) && w.looked < maxDepth; i++ {
		class, err := r.Managed.Objects.Class(w.tasks[i])
		if err != nil {
			return nil, err
		}
		if err := w.behind(w.tasks[i], class); err != nil {
			return nil, err
		}
	}
	return w.tasks, nil
}

// awaiters is a search for the tasks that await another task.
type awaiters struct {
	r      *Reader
	tasks  []arch.Addr
	looked int
}

// behind adds the tasks in a task's continuations.
func (w *awaiters) behind(task arch.Addr, class *object.Class) error {
	next, err := w.r.Managed.Objects.Pointer(task, class, "m_continuationObject")
	if err != nil || next == 0 {
		return err
	}
	return w.add(next, true)
}

// promises are the framework's tasks that complete only after each of their source tasks.
var promises = []string{"System.Threading.Tasks.UnwrapPromise", "System.Threading.Tasks.Task+WhenAllPromise"}

// links are the fields that lead from a continuation to the code or task that goes on, by class.
var links = []struct{ class, field string }{
	{"System.Threading.Tasks.AwaitTaskContinuation", "m_action"},
	{"System.Threading.Tasks.ContinueWithTaskContinuation", "m_task"},
	{"System.Runtime.CompilerServices.AsyncMethodBuilderCore+ContinuationWrapper", "_continuation"},
	{"System.Delegate", "_target"},
	{"System.Runtime.CompilerServices.RuntimeAsyncTaskContinuation", "RuntimeAsyncTask"},
}

// add adds the tasks that a continuation leads to. An unknown continuation leads nowhere.
func (w *awaiters) add(obj arch.Addr, list bool) error {
	for range 8 { // of links
		if w.looked++; w.looked > maxDepth || obj == 0 || len(w.tasks) >= maxRuns || slices.Contains(w.tasks, obj) {
			return nil
		}
		class, err := w.r.Managed.Objects.Class(obj)
		if err != nil {
			return err
		}
		if class.Is(coreLib, taskClass) {
			if w.waits(obj, class) {
				w.tasks = append(w.tasks, obj)
			}
			return nil
		}
		if list && class.Plain() == "System.Collections.Generic.List" {
			return w.each(obj, class)
		}
		if obj, err = w.follow(obj, class); err != nil || obj == 0 {
			return err
		}
	}
	return nil
}

// follow returns the target of a link; 0: none.
func (w *awaiters) follow(obj arch.Addr, class *object.Class) (arch.Addr, error) {
	for _, l := range links {
		if class.Is(coreLib, l.class) {
			return w.r.Managed.Objects.Pointer(obj, class, l.field)
		}
	}
	return 0, nil
}

// waits reports whether a task that is a continuation waits for the continued task.
func (w *awaiters) waits(obj arch.Addr, class *object.Class) bool {
	flags, err := w.r.Managed.Objects.Uint32(obj, class, "m_stateFlags")
	if err != nil || flags&taskCompleted != 0 {
		return false
	}
	if strings.Contains(class.Display, asyncBox) {
		return w.r.stateOf(obj, class) >= 0
	}
	if isRuntimeTask(class) {
		suspended, known := w.r.suspendedIn(obj, class)
		return known && suspended
	}
	if slices.ContainsFunc(promises, func(p string) bool { return strings.HasPrefix(class.Plain(), p) }) {
		return true
	}
	return strings.HasPrefix(class.Plain(), "System.Threading.Tasks.Continuation") && // ContinueWith
		!w.r.cancellable(obj, class)
}

// cancellable reports whether a token may end a task that has not begun to run (Task.cs, ContingentProperties).
func (r *Reader) cancellable(task arch.Addr, class *object.Class) bool {
	more, err := r.Managed.Objects.Pointer(task, class, "m_contingentProperties")
	if err != nil || more == 0 {
		return err != nil
	}
	of, err := r.Managed.Objects.Class(more)
	if err != nil {
		return true
	}
	source, err := r.Managed.Objects.Pointer(more, of, "m_cancellationToken") // a struct of one reference
	return err != nil || source != 0
}

// each adds the tasks of a list of continuations.
func (w *awaiters) each(list arch.Addr, class *object.Class) error {
	objects := w.r.Managed.Objects
	items, err := objects.Pointer(list, class, "_items")
	if err != nil {
		return err
	}
	refs, err := objects.References(items, maxContinuations)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if err := w.add(ref, false); err != nil {
			return err
		}
	}
	return nil
}
