package deadlock

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/naming"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// scan finds the suspended methods that are likely holders.
func (l *likely) scan() {
	for i, obj := range l.t.Objects[tasks.BoxClass] {
		if i%256 == 0 && l.t.Stopped() || len(l.suspended) >= maxSuspended {
			return
		}
		b, err := l.t.Reader.Box(obj)
		if errors.Is(err, async.ErrNoBox) && l.resumedHave(obj) {
			l.suspended = append(l.suspended, suspended{box: obj})
		}
		if err != nil || !b.HasState {
			continue
		}
		if b.State < 0 {
			l.blind = l.blind || b.State == async.Running && l.isHidden(b)
			continue
		}
		if c := l.codeOf(b); c != nil && len(c.held)+len(c.promised) > 0 {
			l.suspended = append(l.suspended, suspended{obj, c})
		}
	}
}

// isHidden reports whether a running method may have a permit, and was on no stack: it has begun to run since.
func (l *likely) isHidden(b *async.Box) bool {
	of := permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}
	code, err := l.p.PermitReader().Code(of.Module, of.RID)
	return err != nil || holdsSome(code) && !l.f.duties.met[of]
}

// codeOf returns the permits and promised tasks of a suspended method; nil: not known.
func (l *likely) codeOf(b *async.Box) *suspendedCode {
	key := naming.AwaitKey{Module: b.Machine.Module, Method: b.Machine.RID, State: b.State}
	if c, ok := l.all[key]; ok {
		return c
	}
	l.all[key] = nil
	code, err := l.p.PermitReader().Code(b.Machine.Module, b.Machine.RID)
	if err != nil || code.Empty() {
		l.blind = l.blind || err != nil
		return nil
	}
	at, ok := l.stateAt(b)
	if !ok {
		l.blind = l.blind || holdsSome(code)
		return nil
	}
	c := &suspendedCode{of: permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}}
	c.held, c.promised = code.At(at, at+1)
	l.all[key] = c
	return c
}

// build builds the wait edges from the threads and boxes that have been read.
func (l *likely) build() {
	l.out.Awaits, l.out.LikelyEdges = nil, nil
	l.holders, l.known, l.awaits = map[arch.Addr][]snapshot.WaitNode{}, map[arch.Addr][]duty{}, map[arch.Addr]int{}
	l.contexts, l.pool, l.unsure = nil, nil, false
	l.runs, l.feeds, l.pending = map[arch.Addr][]int{}, nil, nil
	l.p.Engine.Cache.Invalidate()
	for i := range l.out.Threads {
		tid := l.out.Threads[i].OSThreadID
		for _, run := range l.f.s.Runs(tid) {
			l.runs[run.Task] = append(l.runs[run.Task], i)
		}
		l.addDuties(snapshot.ThreadNode(i), l.f.duties.by[tid])
	}
	l.addRunning()
	for _, s := range l.suspended {
		list, unsure := l.dutiesOf(s)
		l.unsure = l.unsure || unsure
		if len(list) > 0 {
			if at, ok := l.await(s.box); ok {
				l.addDuties(snapshot.AwaitNode(at), list)
			}
		}
	}
	for i := range l.out.Threads {
		l.needsOf(i)
	}
	for len(l.pending) > 0 {
		at := l.pending[0]
		l.pending = l.pending[1:]
		l.awaited(at)
	}
}

// dutiesOf finds the semaphores and tasks that a suspended method is going to release or complete. unsure: the method
// may have a permit of another semaphore.
func (l *likely) dutiesOf(s suspended) (out []duty, unsure bool) {
	stands := l.p.Moments().Read(func() (err error) {
		if out, unsure = nil, false; s.code == nil {
			steps, _, err := l.t.Reader.Methods(s.box)
			if err == nil {
				out, unsure = l.dutiesOfResumed(steps)
			}
			return err
		}
		b, err := l.t.Reader.Box(s.box)
		if err != nil {
			return err
		}
		if alive, err := l.t.Reader.Alive(b); err != nil || !alive || l.codeOf(b) != s.code {
			return err // it has gone on
		}
		out = l.dutiesIn(b, s.code.held, s.code.promised)
		unsure = missesPermit(s.code.held, out)
		return nil
	}, nil)
	if !stands {
		return nil, true // the method changes all the time
	}
	return out, unsure
}

// await returns the index of the async method of a box, or of the methods suspended in a RuntimeAsyncTask; false: no
// method is suspended there.
func (l *likely) await(obj arch.Addr) (int, bool) {
	if at, ok := l.awaits[obj]; ok {
		return at, at >= 0
	}
	steps, err := l.suspendedIn(obj)
	if err != nil || len(steps) == 0 || len(l.out.Awaits) >= maxAwaits {
		return 0, false
	}
	at := len(l.out.Awaits)
	l.awaits[obj] = at
	a := snapshot.Await{Object: uint64(obj)}
	steps = l.p.ProgramSteps(steps)
	for i := range steps {
		a.Frames = append(a.Frames, l.t.Frame(steps, i))
	}
	if own := slices.IndexFunc(a.Frames, func(f snapshot.Frame) bool { return f.Module != coreLib }); own > 0 {
		a.Frames = a.Frames[own:] // the runtime suspends .NET's methods with their callers: the callers' wait says more
	}
	l.out.Awaits = append(l.out.Awaits, a)
	l.pending = append(l.pending, at)
	return at, true
}

// suspendedIn returns the methods suspended in an object, the innermost first; none: the methods have gone on.
func (l *likely) suspendedIn(obj arch.Addr) ([]async.Step, error) {
	steps, _, err := l.t.Reader.Methods(obj)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	if b := steps[0].Box; b != nil && (!b.HasState || b.State < 0) {
		return nil, nil
	}
	return steps, nil
}

// needsOf adds the wait edges of a thread.
func (l *likely) needsOf(i int) {
	w := l.out.Threads[i].Wait
	if w != nil && w.Kind == snapshot.SemaphoreWait && w.Object == 0 {
		l.find(w, l.f.duties.queued[l.out.Threads[i].OSThreadID])
	}
	if w != nil && w.Kind == snapshot.TaskWaitAll {
		for k := range w.Tasks {
			if t := &w.Tasks[k]; t.Owner == nil {
				l.task(snapshot.ThreadNode(i), arch.Addr(t.Object), false, 0)
			}
		}
	}
	if w == nil || w.Object == 0 {
		return
	}
	obj := arch.Addr(w.Object)
	switch {
	case w.Kind == snapshot.SemaphoreWait:
		l.semaphore(snapshot.ThreadNode(i), obj, false)
	case w.Kind == snapshot.TaskWait && w.Owner == nil:
		l.task(snapshot.ThreadNode(i), obj, false, 0)
	}
}

// find adds to a wait the semaphore whose queue has the thread's task.
func (l *likely) find(w *snapshot.Wait, task arch.Addr) {
	sem := l.t.Semaphores[task]
	if class, err := l.p.Managed.Objects.Class(sem); err == nil && class.Is(coreLib, permits.Semaphore) {
		w.Object, w.Type = uint64(sem), class.Display
	}
}

// awaited adds the wait edges of a suspended method.
func (l *likely) awaited(at int) {
	a := &l.out.Awaits[at]
	box := arch.Addr(a.Object)
	var object arch.Addr
	posted := false
	ok := l.p.Moments().Read(func() error {
		posted = false
		steps, err := l.suspendedIn(box)
		if err != nil {
			return err
		}
		if len(steps) == 0 {
			object = 0
			return nil
		}
		aw, err := l.t.AwaitedBy(&steps[0])
		if err != nil {
			return err
		}
		if aw, err = l.t.Unwrap(aw); err != nil {
			return err
		}
		if object = aw.Object; object == 0 {
			a.WaitsFor = &snapshot.Awaited{Kind: snapshot.AwaitsYield}
			posted, err = l.t.Reader.Posted(&steps[0])
			return err
		}
		a.WaitsFor, _, err = l.t.Awaited(&steps[0])
		return err
	}, nil)
	switch {
	case ok && posted:
		l.resumes(at)
		return
	case !ok || object == 0:
		return
	}
	if class, err := l.p.Managed.Objects.Class(object); err == nil {
		if complete, known := l.p.IsComplete(object, class); complete && known {
			l.resumes(at)
			return
		}
	}
	l.task(snapshot.AwaitNode(at), object, false, 0)
}

// semaphore adds the wait edge to the holders of a semaphore's permits.
func (l *likely) semaphore(who snapshot.WaitNode, sem arch.Addr, ends bool) {
	class, err := l.p.Managed.Objects.Class(sem)
	if err != nil || !class.Is(coreLib, permits.Semaphore) {
		return
	}
	if count, err := l.p.Managed.Objects.Uint32(sem, class, "m_currentCount"); err != nil || count != 0 {
		return // the waiter goes on soon
	}
	n := snapshot.LikelyEdge{
		Waiter: who, Kind: snapshot.SemaphoreLock, Object: uint64(sem), Type: class.Display,
		Holders: l.holders[sem], Ends: ends,
	}
	for _, d := range l.known[sem] {
		n.Elsewhere = max(n.Elsewhere, d.count-len(l.known[sem]))
	}
	l.need(n)
}

// need adds a wait edge. If there are more holders than are kept, the waiter does not count as stuck.
func (l *likely) need(n snapshot.LikelyEdge) {
	if len(l.out.LikelyEdges) == maxNeeds {
		return
	}
	if more := len(n.Holders) - maxNeeded; more > 0 {
		n.Holders, n.Elsewhere = n.Holders[:maxNeeded], max(n.Elsewhere, more)
	}
	for _, d := range l.known[arch.Addr(n.Object)] {
		n.Field = cmp.Or(n.Field, d.field)
	}
	l.out.LikelyEdges = append(l.out.LikelyEdges, n)
}

// completers are the holders that complete a task; none: others may complete the task, too.
func (l *likely) completers(task arch.Addr) []snapshot.WaitNode {
	known := l.known[task]
	for _, d := range known {
		for _, m := range d.all {
			if !slices.ContainsFunc(known, func(o duty) bool { return o.of == m }) {
				return nil // a method that nobody runs may complete the task
			}
		}
	}
	return l.holders[task]
}

// maxTaskSteps bounds a chain of tasks.
const maxTaskSteps = 8

// task adds the wait edge to a task, or to another object that a method can await.
func (l *likely) task(who snapshot.WaitNode, obj arch.Addr, ends bool, depth int) {
	if sem := l.t.Semaphores[obj]; sem != 0 {
		l.semaphore(who, sem, ends)
		return
	}
	class, err := l.p.Managed.Objects.Class(obj)
	if err != nil || depth == maxTaskSteps || l.ended(obj, class) {
		return
	}
	need := snapshot.LikelyEdge{
		Waiter: who, Kind: snapshot.TaskLock, Object: uint64(obj), Type: class.Display, Ends: ends,
	}
	if threads := l.runs[obj]; len(threads) > 0 {
		if who.Thread < 0 || len(threads) > 1 || threads[0] != who.Thread {
			need.Holders = []snapshot.WaitNode{snapshot.ThreadNode(threads[0])}
			l.need(need)
		}
		return
	}
	box := obj
	if at := l.t.Reader.OfMachine(obj, class); at != 0 {
		box = at
	}
	if at, ok := l.await(box); ok {
		need.Holders = []snapshot.WaitNode{snapshot.AwaitNode(at)}
		l.need(need)
		return
	}
	if list := l.completers(obj); len(list) > 0 {
		need.Kind, need.Holders = snapshot.CompletionLock, list
		l.need(need)
		return
	}
	if strings.HasPrefix(class.Display, waitAsync) && class.Assembly == coreLib {
		l.limited(who, obj, class, depth)
		return
	}
	l.fed(need)
}

// ended reports whether a task is complete, or may be: its waiter goes on soon.
func (l *likely) ended(obj arch.Addr, class *object.Class) bool {
	complete, known := l.p.IsComplete(obj, class)
	return complete || !known
}

// limited adds the wait edge of Task.WaitAsync, if its wait has no time limit.
func (l *likely) limited(who snapshot.WaitNode, obj arch.Addr, class *object.Class, depth int) {
	if _, timed := l.p.Reach(obj, class, "_timer"); timed {
		return
	}
	if inner, ok := l.p.Reach(obj, class, "_task"); ok {
		l.task(who, inner, true, depth+1)
	}
}

// fed adds the wait edges to the async methods whose end completes a task of the framework: all methods of WhenAll,
// or the method of Unwrap or ContinueWith.
func (l *likely) fed(need snapshot.LikelyEdge) {
	class, err := l.p.Managed.Objects.Class(arch.Addr(need.Object))
	if err != nil {
		return
	}
	if kind, isTask := l.t.KindOf(class); !isTask || kind == snapshot.AwaitsOne || kind == snapshot.AwaitsTimer {
		return
	}
	if l.feeds == nil {
		l.findFeeds()
	}
	for _, box := range l.feeds[arch.Addr(need.Object)] {
		if at, ok := l.await(box); ok {
			need.Holders = []snapshot.WaitNode{snapshot.AwaitNode(at)}
			l.need(need)
		} else if threads := l.runs[box]; len(threads) > 0 {
			need.Holders = []snapshot.WaitNode{snapshot.ThreadNode(threads[0])}
			l.need(need)
		}
	}
}

// findFeeds finds the tasks that the ends of async methods lead to.
func (l *likely) findFeeds() {
	l.feeds = map[arch.Addr][]arch.Addr{}
	for i, obj := range l.t.Objects[tasks.BoxClass] {
		if i%256 == 0 && l.t.Stopped() {
			return
		}
		_, through, err := l.t.Reader.Through(obj)
		if err != nil {
			continue
		}
		for _, task := range through {
			l.feeds[task] = append(l.feeds[task], obj)
		}
	}
}

// finish adds the awaiters of the methods that are shown.
func (l *likely) finish() {
	g := l.out.WaitGraph()
	wanted := map[int]bool{}
	add := func(list []snapshot.WaitNode) {
		for _, p := range list {
			if p.Await >= 0 {
				wanted[p.Await] = true
			}
		}
	}
	for i := range g.Likely {
		add(g.Likely[i].Members)
		add(g.Likely[i].Others)
	}
	for i := range g.Locks {
		add(g.Locks[i].Holders)
	}
	for i := range l.out.PermitQueues {
		add(l.out.PermitQueues[i].Holders)
	}
	for at := range wanted {
		a := &l.out.Awaits[at]
		var chain async.Chain
		ok := l.p.Moments().Read(func() (err error) {
			chain, err = l.t.Reader.Awaiting(arch.Addr(a.Object))
			return err
		}, nil)
		if !ok {
			continue
		}
		steps := l.p.ProgramSteps(chain.Steps)
		for i := range steps {
			a.Frames = append(a.Frames, l.t.Frame(steps, i))
		}
	}
}
