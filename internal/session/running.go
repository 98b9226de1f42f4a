package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// A method that the runtime itself has suspended, and that a thread has resumed, has left its RuntimeAsyncTask empty.
// The thread has the task, and the methods that await the one that runs (package async). Which one runs, only the
// thread's stack tells. It is read of threads that are blocked, because tasks are read without a stop.

// runningTask is a RuntimeAsyncTask of which a thread runs a method.
type runningTask struct {
	thread profile.ThreadRef
	newest arch.Addr // where the thread has the address of its newest structure
	at     arch.Addr // the structure that is about the task

	method profile.Frame // that runs; without a name: it is not known
	proof  target.Proof  // that the thread has not run since the method was read
	still  bool          // it has not, when the task was last looked at
}

// findRunning finds the tasks that threads run methods of.
func (t *taskWalk) findRunning() {
	t.running = map[arch.Addr]*runningTask{}
	if !t.r.Resumptions() || !t.canResume() {
		return
	}
	threads, err := t.p.list()
	if err != nil {
		return
	}
	t.p.room = maxStacks
	twice := map[arch.Addr]bool{}
	for i := range threads {
		if t.stopped() {
			return
		}
		for task, run := range t.runningOn(&threads[i]) {
			twice[task] = twice[task] || t.running[task] != nil
			t.running[task] = run
		}
	}
	for task, is := range twice {
		if is { // one thread has just suspended it, and another has resumed it
			delete(t.running, task)
		}
	}
}

// canResume finds out where threads have what they resume, by one of the objects that were found.
func (t *taskWalk) canResume() bool {
	for _, obj := range t.objects[boxClass] {
		if class, err := t.p.Runtime.Objects.Class(obj); err == nil && class.Assembly == coreLib {
			return t.p.canResume(class.Table)
		}
	}
	return false
}

// runningOn returns the tasks that a thread runs methods of.
func (t *taskWalk) runningOn(thread *Thread) map[arch.Addr]*runningTask {
	if thread.ID == 0 {
		return nil
	}
	data := t.p.Runtime.Threads.LocalData(thread.ID)
	if data == 0 {
		return nil
	}
	newest := data + arch.Addr(t.p.dispatcher.field)
	list, err := t.r.AllDispatching(newest, t.p.dispatcher.layout)
	if err != nil || len(list) == 0 {
		return nil
	}
	out := map[arch.Addr]*runningTask{}
	for _, d := range list {
		ref := profile.ThreadRef{
			OSThreadID: thread.OSThreadID, ManagedThreadID: thread.ManagedID, Name: thread.Name,
		}
		out[d.Task] = &runningTask{thread: ref, newest: newest, at: d.At}
	}
	t.readResumed(thread, out)
	return out
}

// readResumed reads which methods a thread runs, if it is blocked.
func (t *taskWalk) readResumed(thread *Thread, tasks map[arch.Addr]*runningTask) {
	p := t.p
	wanted := p.Options.Async
	p.Options.Async = true
	var st profile.Thread
	if p.from.changes() {
		st, _, _ = p.snapshotBlocked(thread)
	} else {
		st = p.snapshot(thread)
	}
	p.Options.Async = wanted
	for i := range p.asyncs.Sites {
		s := &p.asyncs.Sites[i]
		if s.resumes == nil || s.Below == 0 || s.Below >= len(st.Frames) || st.Frames[s.Below].Method != resumeStub {
			continue
		}
		for _, run := range tasks {
			if run.at >= s.resumes.low && run.at < s.resumes.high {
				run.method, run.proof = st.Frames[s.Below-1], p.Capture.Proof
			}
		}
	}
}

// runs returns where the task is now that a thread runs a method of; 0: it does not any more.
func (t *taskWalk) runs(obj arch.Addr) (arch.Addr, error) {
	run := t.running[obj]
	if run == nil {
		return 0, nil
	}
	d, err := t.dispatching(run)
	if err != nil || d.Task == 0 || d.Task == obj {
		return d.Task, err
	}
	if t.running[d.Task] != nil {
		return 0, nil // the thread runs another one by now, which is known
	}
	t.running[d.Task] = run // it was moved
	return d.Task, nil
}

// dispatching reads what a thread has of a task that it runs a method of. Task 0: it does not any more.
func (t *taskWalk) dispatching(run *runningTask) (async.Dispatching, error) {
	list, err := t.r.AllDispatching(run.newest, t.p.dispatcher.layout)
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

// runningSteps returns the methods of a task that a thread runs one of: that one, of which a step has the name at most,
// and those that await it. alive: a thread does.
func (t *taskWalk) runningSteps(obj arch.Addr) (steps []async.Step, alive bool, err error) {
	run := t.running[obj]
	if run == nil {
		return nil, false, nil
	}
	d, err := t.dispatching(run)
	if err != nil || d.Task != obj {
		return nil, false, err
	}
	chain, err := t.r.Resuming(d)
	if err != nil {
		return nil, true, err
	}
	run.still = run.method.Method != "" &&
		(!t.p.from.changes() || t.p.Live.Holds(run.thread.OSThreadID, run.proof))
	inner := async.Step{Label: run.frame().Method}
	return append([]async.Step{inner}, chain.Steps...), true, nil
}

// frame describes the method that runs.
func (r *runningTask) frame() profile.Frame {
	const unknown = "[a method that runs]"
	if !r.still {
		return profile.Frame{Kind: profile.Async, Display: unknown, Short: unknown}
	}
	m := &r.method
	return profile.Frame{
		Kind: profile.Async, Method: m.Method, Display: m.Display, Short: m.Short, Signature: m.Signature,
		Module: m.Module, Owner: m.Owner, Generics: m.Generics,
	}
}
