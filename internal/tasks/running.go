package tasks

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// While a thread runs a method that the runtime itself had suspended, the method's RuntimeAsyncTask is empty. The
// thread has the task, and the awaiters of the running method (package async). Only the thread's stack tells the
// running method. The stack is read only of blocked threads, because tasks are read without a stop.

// runningTask is a RuntimeAsyncTask with a method that a thread runs.
type runningTask struct {
	thread snapshot.ThreadRef
	of     arch.Addr // the runtime's Thread
	at     arch.Addr // the structure about the task

	method snapshot.Frame // the running method; without a name: not known
	proof  target.Proof   // that the thread has not run since the method was read
	still  bool           // the thread had not run at the last look at the task
}

// maxRunningLooks bounds the searches of all threads for tasks with running methods.
const maxRunningLooks = 1 << 8

// findRunning finds the tasks with running methods, and the methods.
func (t *Walk) findRunning() {
	t.running, t.looks = map[arch.Addr]*runningTask{}, 0
	if !t.Reader.Resumptions() || !t.canResume() {
		return
	}
	var err error
	if t.threads, err = t.p.ListThreads(); err != nil {
		return
	}
	t.lookForRunning()
	for i := range t.threads {
		if t.Stopped() {
			return
		}
		id := t.threads[i].OSThreadID
		var of []*runningTask
		for _, run := range t.running {
			if run.thread.OSThreadID == id {
				of = append(of, run)
			}
		}
		if len(of) > 0 {
			t.readResumed(&t.threads[i], of)
		}
	}
}

// ResumedBy searches some threads for tasks with running methods, and returns the ids of the threads by task.
func (t *Walk) ResumedBy(threads []snapshot.Thread) map[arch.Addr]int {
	t.running, t.looks, t.threads = map[arch.Addr]*runningTask{}, 0, nil
	if !t.Reader.Resumptions() || !t.canResume() {
		return nil
	}
	for i := range threads {
		th := session.Thread{ID: arch.Addr(threads[i].ThreadID), OSThreadID: threads[i].OSThreadID}
		t.threads = append(t.threads, th)
	}
	t.lookForRunning()
	out := map[arch.Addr]int{}
	for task, run := range t.running {
		out[task] = run.thread.OSThreadID
	}
	return out
}

// Resuming reads the awaiters of a task of ResumedBy. runs: the thread runs the task's method still.
func (t *Walk) Resuming(task arch.Addr) (steps []async.Step, runs bool, err error) {
	d, err := t.dispatching(t.running[task])
	if err != nil || d.Task != task {
		return nil, false, err
	}
	chain, err := t.Reader.Resuming(d)
	return chain.Steps, err == nil, err
}

// canResume finds the dispatcher of threads, by one of the objects from the heap.
func (t *Walk) canResume() bool {
	for _, obj := range t.Objects[BoxClass] {
		if class, err := t.p.Managed.Objects.Class(obj); err == nil && class.Assembly == coreLib {
			return t.p.CanResume(class.Table)
		}
	}
	return false
}

// lookForRunning searches all threads for tasks with running methods. Known tasks are kept.
func (t *Walk) lookForRunning() {
	t.looks++
	by := map[arch.Addr]int{}
	for i := range t.threads {
		thread := &t.threads[i]
		if thread.ID == 0 {
			continue
		}
		list, _ := t.p.Dispatching(thread.ID) // unreadable tasks do not count as running
		for _, d := range list {
			if by[d.Task]++; by[d.Task] > 1 { // one thread has just suspended the task, another has resumed the task
				delete(t.running, d.Task)
				continue
			}
			if run := t.running[d.Task]; run == nil || run.of != thread.ID || run.at != d.At {
				t.running[d.Task] = &runningTask{thread: snapshot.ThreadRef{
					OSThreadID: thread.OSThreadID, ManagedThreadID: thread.ManagedID, Name: thread.Name,
				}, of: thread.ID, at: d.At}
			}
		}
	}
}

// readResumed reads the methods that a blocked thread runs.
func (t *Walk) readResumed(thread *session.Thread, tasks []*runningTask) {
	st, _ := t.stackOf(thread)
	for i := range st.Sites {
		s := &st.Sites[i]
		if s.Below == 0 || s.Below >= len(st.Frames) || st.Frames[s.Below].Method != awaits.ResumeStub {
			continue
		}
		for _, run := range tasks {
			if s.Resumes(run.at) {
				run.method, run.proof = st.Frames[s.Below-1], st.Proof
			}
		}
	}
}

// stackOf takes the stack of a blocked thread with the thread's async methods; false: the thread is not blocked.
func (t *Walk) stackOf(thread *session.Thread) (session.BlockedStack, bool) {
	if t.stacks == nil {
		t.stacks = t.p.NewBlockedStacks()
	}
	return t.stacks.Of(thread)
}

// machinesOf returns the boxes of the methods with a state machine that a blocked thread runs.
func (t *Walk) machinesOf(thread *session.Thread) (boxes []arch.Addr) {
	st, ok := t.stackOf(thread)
	if !ok {
		return nil
	}
	t.p.Moments().Read(func() error {
		boxes = boxes[:0]
		for i := range st.Sites {
			s := &st.Sites[i]
			if s.Leads() || s.Serves || s.Argument == 0 {
				continue
			}
			if box, _, err := s.Awaiting(t.Reader); err == nil && box != nil {
				boxes = append(boxes, box.Object)
			}
		}
		return nil
	}, nil)
	if !t.p.Moments().Rests(thread.OSThreadID, st.Proof) {
		return nil
	}
	return boxes
}

// machineThread returns the blocked thread that runs the method of a box; false: no such thread is known. The
// thread's stack is read once more, because the collector may have moved the box since the search of all threads.
func (t *Walk) machineThread(box arch.Addr) (ref snapshot.ThreadRef, ok bool) {
	if t.machines == nil {
		t.findMachines()
	}
	th := t.machines[box]
	if th == nil || !slices.Contains(t.machinesOf(th), box) {
		return ref, false
	}
	return snapshot.ThreadRef{OSThreadID: th.OSThreadID, ManagedThreadID: th.ManagedID, Name: th.Name}, true
}

// findMachines searches all threads for running methods with a state machine.
func (t *Walk) findMachines() {
	t.machines = map[arch.Addr]*session.Thread{}
	threads, err := t.p.ListThreads()
	if err != nil {
		return
	}
	for i := range min(len(threads), maxMachineThreads) {
		if t.Stopped() {
			return
		}
		if threads[i].ID == 0 {
			continue
		}
		for _, box := range t.machinesOf(&threads[i]) {
			t.machines[box] = &threads[i]
		}
	}
}

// maxMachineThreads bounds the searched threads.
const maxMachineThreads = 1 << 10

// runs returns the current address of a task if a thread runs a method of the task; 0: no thread does.
func (t *Walk) runs(obj arch.Addr) (arch.Addr, error) {
	run, d, err := t.runningTask(obj)
	if err != nil || run == nil {
		return 0, err
	}
	t.running[d.Task] = run
	return d.Task, nil
}

// runningTask returns the thread that runs a method of a task, and the task's current address; nil: there is no
// thread. If the task has not ended, all threads are searched again: a thread may have resumed the task only now.
func (t *Walk) runningTask(obj arch.Addr) (run *runningTask, d async.Dispatching, err error) {
	if run = t.running[obj]; run != nil {
		d, err = t.dispatching(run)
		if err != nil || d.Task != 0 && (d.Task == obj || t.running[d.Task] == nil) {
			return run, d, err
		}
	}
	if t.running == nil || t.looks >= maxRunningLooks {
		return nil, d, nil
	}
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil {
		return nil, d, err
	}
	if complete, known := t.p.IsComplete(obj, class); complete || !known {
		return nil, d, nil
	}
	t.lookForRunning()
	if run = t.running[obj]; run == nil {
		return nil, d, nil
	}
	d, err = t.dispatching(run)
	return run, d, err
}

// dispatching reads a thread's structure of a task with a running method. Task 0: the thread does not run the task
// any more.
func (t *Walk) dispatching(run *runningTask) (async.Dispatching, error) {
	list, err := t.p.Dispatching(run.of)
	if err != nil {
		return async.Dispatching{}, err
	}
	for _, d := range list {
		if d.At == run.at {
			return d, nil
		}
	}
	return async.Dispatching{}, nil
}

// runningSteps returns the running method of a task, and its awaiters. The step of the running method has a name at
// most. alive: a thread runs the method.
func (t *Walk) runningSteps(obj arch.Addr) (steps []async.Step, alive bool, err error) {
	run, d, err := t.runningTask(obj)
	if err != nil || run == nil || d.Task != obj {
		return nil, err != nil, err
	}
	chain, err := t.Reader.Resuming(d)
	if err != nil {
		return nil, true, err
	}
	run.still = run.method.Method != "" && t.p.Moments().Rests(run.thread.OSThreadID, run.proof)
	inner := async.Step{Label: run.frame().Method}
	return append([]async.Step{inner}, chain.Steps...), true, nil
}

// frame describes the running method.
func (r *runningTask) frame() snapshot.Frame {
	const unknown = "[a method that runs]"
	if !r.still {
		return snapshot.Frame{Kind: snapshot.Async, Display: unknown, Short: unknown}
	}
	m := &r.method
	return snapshot.Frame{
		Kind: snapshot.Async, Method: m.Method, Display: m.Display, Short: m.Short, Signature: m.Signature,
		Module: m.Module, Owner: m.Owner, Generics: m.Generics, Unproved: m.Unproved,
	}
}
