package tasks

import (
	"cmp"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// What methods wait for. The names of classes and fields are those of System.Private.CoreLib and other libraries of
// dotnet/runtime from .NET 8 on: Task.cs, SemaphoreSlim.cs, Timer.cs, PeriodicTimer.cs, Socket.Tasks.cs.

// awaitedClasses maps the class names of awaited objects to kinds.
var awaitedClasses = map[string]snapshot.AwaitedKind{
	"System.Threading.Tasks.Task+DelayPromise":                     snapshot.AwaitsTimer,
	"System.Threading.PeriodicTimer+State":                         snapshot.AwaitsTimer,
	placeInQueue:                                                   snapshot.AwaitsSemaphore,
	fileOperation:                                                  snapshot.AwaitsFile,
	"System.Threading.Tasks.Task+WhenAllPromise":                   snapshot.AwaitsSeveral,
	"System.Threading.Tasks.Task+WhenAllPromise`1":                 snapshot.AwaitsSeveral,
	"System.Threading.Tasks.Task+TwoTaskWhenAnyPromise`1":          snapshot.AwaitsOne,
	"System.Threading.Tasks.TaskFactory+CompleteOnInvokePromise":   snapshot.AwaitsOne,
	"System.Threading.Tasks.TaskFactory+CompleteOnInvokePromise`1": snapshot.AwaitsOne,
	"System.Threading.Tasks.Task+CancellationPromise`1":            snapshot.AwaitsTimeout,
}

// awaitedAssemblies maps libraries to the kinds of their awaited objects.
var awaitedAssemblies = map[string]snapshot.AwaitedKind{
	"System.Threading.Channels": snapshot.AwaitsChannel,
	"System.IO.Pipelines":       snapshot.AwaitsPipe,
	"System.Net.Sockets":        snapshot.AwaitsSocket,
}

// Awaited describes what a suspended method waits for.
func (t *Walk) Awaited(s *async.Step) (*snapshot.Awaited, snapshot.TaskState, error) {
	a, err := t.AwaitedBy(s)
	if err != nil {
		return nil, "", err
	}
	if a, err = t.Unwrap(a); err != nil {
		return nil, "", err
	}
	promise := a
	t.Waited = a.Object
	if a, err = t.Permit(a); err != nil {
		return nil, "", err
	}
	if a.Object == 0 {
		state := snapshot.TaskWaiting
		if t.isQueued(s.Task()) {
			state = snapshot.TaskReady
		}
		return &snapshot.Awaited{Kind: snapshot.AwaitsYield}, state, nil
	}
	out := &snapshot.Awaited{Object: uint64(a.Object), Type: a.Class.Display}
	state := snapshot.TaskWaiting
	kind, isTask := t.KindOf(a.Class)
	if isTask {
		flags, err := t.p.Managed.Objects.Uint32(a.Object, a.Class, "m_stateFlags")
		if err != nil {
			return nil, "", err
		}
		state = cmp.Or(awaits.TaskEnd(flags), state)
	}
	if out.Kind = kind; kind == "" {
		if out.Kind, err = t.plainKind(out, &a, isTask); err != nil {
			return nil, "", err
		}
	}
	if err := t.detail(out, &a); err != nil || out.Kind != snapshot.AwaitsSemaphore {
		return out, state, err
	}
	return out, state, t.timeout(out, &promise)
}

// sourceTasks are the classes of the tasks that ValueTask.AsTask makes of a source.
var sourceTasks = map[string]bool{
	"System.Threading.Tasks.ValueTask+ValueTaskSourceAsTask":   true,
	"System.Threading.Tasks.ValueTask`1+ValueTaskSourceAsTask": true,
}

// Unwrap returns the source behind a task of ValueTask.AsTask. Any other a is returned unchanged.
func (t *Walk) Unwrap(a async.Awaited) (async.Awaited, error) {
	if a.Object == 0 || a.Class.Assembly != coreLib || !t.knownKind(a.Class).asTask {
		return a, nil
	}
	source, err := t.p.Managed.Objects.Pointer(a.Object, a.Class, "_source")
	if err != nil || source == 0 {
		return a, err
	}
	class, err := t.p.Managed.Objects.Class(source)
	return async.Awaited{Object: source, Class: class}, err
}

// Permit returns the place in a semaphore's queue behind a promise of Task.WaitAsync:
// SemaphoreSlim.WaitAsync with a time limit or a token awaits a promise of Task.WaitAsync. Anything
// else is returned unchanged.
func (t *Walk) Permit(a async.Awaited) (async.Awaited, error) {
	if a.Object == 0 {
		return a, nil
	}
	if kind, _ := t.KindOf(a.Class); kind != snapshot.AwaitsTimeout {
		return a, nil
	}
	inner, ok := t.p.Reach(a.Object, a.Class, "_task")
	if !ok {
		return a, nil
	}
	class, err := t.p.Managed.Objects.Class(inner)
	if err != nil {
		return a, err
	}
	if kind, _ := t.KindOf(class); kind != snapshot.AwaitsSemaphore {
		return a, nil
	}
	return async.Awaited{Object: inner, Class: class}, nil
}

// classKind is what a class tells about its objects.
type classKind struct {
	kind   snapshot.AwaitedKind // "": the class does not tell
	isTask bool
	asTask bool // of sourceTasks
}

// KindOf returns the kind of a class's objects, as far as the class tells, and whether the objects
// are tasks.
func (t *Walk) KindOf(class *object.Class) (kind snapshot.AwaitedKind, isTask bool) {
	k := t.knownKind(class)
	return k.kind, k.isTask
}

// knownKind reads what a class tells about its objects once.
func (t *Walk) knownKind(class *object.Class) classKind {
	if k, ok := t.kinds[class.Table]; ok {
		return k
	}
	var k classKind
	for c := range class.Bases {
		_, full, err := t.p.Managed.Objects.FullName(c)
		if err != nil {
			return k
		}
		k.asTask = k.asTask || c == class && sourceTasks[full]
		if k.kind == "" && c.Assembly == coreLib {
			k.kind = awaitedClasses[full]
		}
		if k.kind == "" {
			k.kind = awaitedAssemblies[c.Assembly]
		}
		k.isTask = k.isTask || full == taskName && c.Assembly == coreLib
	}
	if !class.Collectible && len(t.kinds) < maxKinds {
		t.kinds[class.Table] = k
	}
	return k
}

// maxKinds bounds the classes whose kinds are kept.
const maxKinds = 1 << 14

// unwrapPromise is the task of Task.Run of an async method, and of Unwrap.
const unwrapPromise = "System.Threading.Tasks.UnwrapPromise"

// plainKind returns the kind of an object if the class does not tell the kind.
func (t *Walk) plainKind(out *snapshot.Awaited, a *async.Awaited, isTask bool) (snapshot.AwaitedKind, error) {
	method := a.Object
	if at := t.Reader.OfMachine(a.Object, a.Class); at != 0 {
		method = at
	}
	if t.Reader.IsBox(t.tableOf(method)) {
		_, out.Target = t.methodNames(method)
		return snapshot.AwaitsMethod, nil
	}
	if !isTask {
		return snapshot.AwaitsSource, nil
	}
	action, err := t.p.Managed.Objects.Pointer(a.Object, a.Class, "m_action")
	if action != 0 || a.Class.Is(coreLib, unwrapPromise) {
		return snapshot.AwaitsTask, err
	}
	return snapshot.AwaitsCompletion, err
}

func (t *Walk) tableOf(obj arch.Addr) arch.Addr {
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil {
		return 0
	}
	return class.Table
}

// methodNames returns the names of the innermost and the outermost of the methods that an object
// stands for; "": unknown. The names are unknown while a method runs that the runtime itself
// suspends.
func (t *Walk) methodNames(obj arch.Addr) (inner, outer string) {
	if b, err := t.Reader.Box(obj); err == nil {
		return b.Machine.Display, b.Machine.Display
	}
	steps, _, err := t.Reader.Methods(obj)
	if err != nil || len(steps) == 0 {
		return "", ""
	}
	key := [2]arch.Addr{steps[0].Resumption.IP, steps[len(steps)-1].Resumption.IP}
	if n, ok := t.names[key]; ok {
		return n[0], n[1]
	}
	stays := !slices.ContainsFunc(steps, func(s async.Step) bool {
		_, passing, ok := t.p.ResumedMethod(s.Resumption)
		return passing || !ok || s.Resumption.Context != 0 // other instantiations have other names
	})
	if steps = t.p.ProgramSteps(steps); len(steps) == 0 {
		return "", ""
	}
	inner, outer = t.p.AsyncFrame(&steps[0]).Display, t.p.AsyncFrame(&steps[len(steps)-1]).Display
	if stays {
		t.names[key] = [2]string{inner, outer}
	}
	return inner, outer
}

// detail adds the particulars of a kind. Particulars that a version of .NET does not have are left
// out.
func (t *Walk) detail(out *snapshot.Awaited, a *async.Awaited) error {
	switch out.Kind {
	case snapshot.AwaitsTimer, snapshot.AwaitsTimeout:
		return t.timeout(out, a)
	case snapshot.AwaitsSemaphore:
		if sem := t.Semaphores[a.Object]; sem != 0 {
			class, err := t.p.Managed.Objects.Class(sem)
			if err != nil {
				return err
			}
			out.Object, out.Type = uint64(sem), class.Display
		}
	case snapshot.AwaitsSocket:
		out.Target = t.socket(a)
	case snapshot.AwaitsFile:
		out.Target = t.file(a)
	}
	return nil
}

// timeout adds the due time of an object's timer, if there is a timer.
func (t *Walk) timeout(out *snapshot.Awaited, a *async.Awaited) error {
	timer, ok := t.p.Reach(a.Object, a.Class, "_timer", "_owner._timer")
	if !ok {
		if out.Kind == snapshot.AwaitsTimer && t.isEndless(a) {
			out.Kind = snapshot.AwaitsEndless
		}
		return nil
	}
	due, _, armed, err := t.due(timer)
	out.Due, out.HasDue = due, armed && t.p.RunningProcess() != nil
	return err
}

// isEndless reports whether the promise of a Task.Delay has no timer, as for an infinite delay.
func (t *Walk) isEndless(a *async.Awaited) bool {
	timer, err := t.p.Managed.Objects.Pointer(a.Object, a.Class, "_timer")
	return err == nil && timer == 0
}

// infinite as a due time means that the timer is not armed; as a period, that the timer is armed
// once (Timeout.UnsignedInfinite).
const infinite = 0xffff_ffff

// due returns when a TimerQueueTimer is due. For a dump the due time means nothing.
func (t *Walk) due(timer arch.Addr) (due, period time.Duration, armed bool, err error) {
	objects := t.p.Managed.Objects
	class, err := objects.Class(timer)
	if err != nil || class.Display != "System.Threading.TimerQueueTimer" {
		return 0, 0, false, err
	}
	start, err := objects.Pointer(timer, class, "_startTicks")
	if err != nil {
		return 0, 0, false, err
	}
	in, err := objects.Uint32(timer, class, "_dueTime")
	if err != nil || in == infinite {
		return 0, 0, false, err
	}
	every, err := objects.Uint32(timer, class, "_period")
	if err != nil {
		return 0, 0, false, err
	}
	if every != infinite {
		period = time.Duration(every) * time.Millisecond
	}
	// Not as of the walk's begin: the timer may have been armed since.
	ms := int64(start) + int64(in) - tickCount()
	const most = 1 << 40 // ms: a timer lasts 49 days at most
	if ms > most || ms < -most {
		ms = 0
	}
	return time.Duration(ms) * time.Millisecond, period, true, nil
}

// tickCount is Environment.TickCount64 of a program on this machine, in ms, with an error of a few
// ms.
func tickCount() int64 { return live.Monotonic().Milliseconds() }

// maxWaiters bounds the waiters of one semaphore.
const maxWaiters = 1 << 20

// FindSemaphores finds the waiters of each SemaphoreSlim: the waiters form a list.
func (t *Walk) FindSemaphores() {
	objects := t.p.Managed.Objects
	t.Semaphores = map[arch.Addr]arch.Addr{}
	for _, sem := range t.Objects[SemaphoreClass] {
		if t.Stopped() {
			break
		}
		class, err := objects.Class(sem)
		if err != nil {
			continue
		}
		at, err := objects.Pointer(sem, class, "m_asyncHead")
		for n := 0; err == nil && at != 0 && n < maxWaiters && t.Semaphores[at] == 0; n++ {
			t.Semaphores[at] = sem
			var c *object.Class
			if c, err = objects.Class(at); err == nil {
				at, err = objects.Pointer(at, c, "Next")
			}
		}
	}
}

// placeInQueue is the class of the place of an async method in the queue of a SemaphoreSlim. The place does not lead to
// the semaphore.
const placeInQueue = "System.Threading.SemaphoreSlim+TaskNode"

// maxSemaphoreLooks bounds how often the queues of all semaphores are read again.
const maxSemaphoreLooks = 4

// lateSemaphore finds the semaphore of a method that has begun to wait since the queues were read.
func (t *Walk) lateSemaphore(w *snapshot.Awaited) {
	if w == nil || w.Type != placeInQueue {
		return
	}
	at := arch.Addr(w.Object)
	if t.Semaphores[at] == 0 && t.semaphoreLooks < maxSemaphoreLooks && t.p.Moments().Changes() {
		t.semaphoreLooks++
		t.p.Engine.Cache.Invalidate()
		t.FindSemaphores()
	}
	w.Object, w.Type = uint64(t.Semaphores[at]), "System.Threading.SemaphoreSlim" // 0: the method has left the queue
}

// socketVerbs name the operations on a socket, by SocketAsyncOperation (System.Net.Sockets).
var socketVerbs = map[uint32]string{
	1: "accept", 2: "connect", 3: "disconnect", 4: "recv", 5: "recv", 6: "recv", 7: "send", 8: "send", 9: "send",
}

// socket describes the socket of an operation: the awaited object is the operation's
// SocketAsyncEventArgs.
func (t *Walk) socket(a *async.Awaited) string {
	objects := t.p.Managed.Objects
	verb := "socket"
	if op, err := objects.Uint32(a.Object, a.Class, "_completedOperation"); err == nil && socketVerbs[op] != "" {
		verb = socketVerbs[op]
	}
	handle, ok := t.p.Reach(a.Object, a.Class, "_currentSocket._handle", "_owner._handle")
	if !ok {
		return verb
	}
	return t.handle(verb, handle)
}

// fileOperation is the class of an operation on a file that a pool thread does or will do
// (SafeFileHandle.ThreadPoolValueTaskSource.cs).
const fileOperation = "Microsoft.Win32.SafeHandles.SafeFileHandle+ThreadPoolValueTaskSource"

// fileVerbs name the operations on a file, by Operation.
var fileVerbs = map[byte]string{1: "read", 2: "write", 3: "read", 4: "write"}

// file describes the file of an operation.
func (t *Walk) file(a *async.Awaited) string {
	op, err := t.p.Managed.Objects.Uint32(a.Object, a.Class, "_operation") // a byte
	verb := fileVerbs[byte(op)]
	if err != nil || verb == "" { // the operation is over
		return ""
	}
	handle, ok := t.p.Reach(a.Object, a.Class, "_fileHandle")
	if !ok {
		return verb
	}
	return t.handle(verb, handle)
}

// handle describes an operation on the descriptor of a SafeHandle.
func (t *Walk) handle(verb string, handle arch.Addr) string {
	objects := t.p.Managed.Objects
	class, err := objects.Class(handle)
	if err != nil {
		return verb
	}
	fd, err := objects.Uint32(handle, class, "handle")
	if err != nil {
		return verb
	}
	return t.p.DescribeIO(verb, int32(fd))
}
