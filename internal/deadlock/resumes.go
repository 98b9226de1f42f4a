package deadlock

import (
	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// resumes adds a wait edge from an async method that could go on, because its awaited task is complete, but that
// nobody runs. The thread pool has nothing to do, so the method does not wait for the pool. Most likely the method
// waits for the SynchronizationContext of a thread: the thread waits for a task, and would have to run the rest of
// the method.
func (l *likely) resumes(at int) {
	if l.contexts == nil {
		l.findContexts()
	}
	if len(l.contexts) == 0 || !l.poolIsIdle() {
		return
	}
	c := l.contextFor(at)
	if c == nil {
		return
	}
	l.out.Awaits[at].WaitsFor = nil // that wait is over
	l.need(snapshot.LikelyEdge{
		Waiter: snapshot.AwaitNode(at), Kind: snapshot.ContextLock, Object: uint64(c.context), Type: c.class,
		Holders: []snapshot.WaitNode{snapshot.ThreadNode(c.thread)},
	})
}

// contextFor returns the thread whose context most likely has the rest of a method: the thread that waits for the
// method, or else the only thread with a context; nil: not known.
func (l *likely) contextFor(at int) *contextThread {
	switch i, ok := l.direct[at]; {
	case ok && i >= 0:
		return &l.contexts[i]
	case !ok && len(l.contexts) == 1:
		return &l.contexts[0]
	}
	return nil
}

// findContexts finds the threads that wait for tasks and have contexts, and the methods that the threads wait for.
func (l *likely) findContexts() {
	l.contexts, l.direct = []contextThread{}, map[int]int{}
	byThread := map[int]int{}
	for i := range l.out.Threads {
		t := &l.out.Threads[i]
		if t.Wait == nil || !t.Wait.Kind.OfTasks() || t.ThreadID == 0 {
			continue
		}
		if at, class := l.p.WaitReader().Context(arch.Addr(t.ThreadID)); at != 0 {
			byThread[i] = len(l.contexts)
			l.contexts = append(l.contexts, contextThread{i, at, class})
		}
	}
	for i := range l.out.LikelyEdges { // all wait edges of threads are there
		n := &l.out.LikelyEdges[i]
		at, ok := byThread[n.Waiter.Thread]
		if !ok {
			continue
		}
		for _, on := range n.Holders {
			if on.Await < 0 {
				continue
			}
			if other, known := l.direct[on.Await]; known && other != at {
				l.direct[on.Await] = -1
			} else {
				l.direct[on.Await] = at
			}
		}
	}
}

// poolIsIdle reports whether the thread pool certainly has no work that waits for a worker.
func (l *likely) poolIsIdle() bool {
	if l.pool == nil {
		l.pool = &snapshot.Pool{}
		if p := l.t.Pool(); p != nil {
			l.pool = p
		}
	}
	return l.pool.HasWork && l.pool.Queued == 0
}
