package session

import (
	"clrsnap/internal/arch"
	"clrsnap/profile"
)

// contextThread is a thread that waits for a task, and has a SynchronizationContext.
type contextThread struct {
	thread  int // index
	context arch.Addr
	class   string
}

// resumes adds what an async method needs that could go on, because what it has awaited is complete, and that nobody
// runs. The thread pool has nothing to do, so that it does not wait for that. The SynchronizationContext of a thread
// that waits for a task has most likely got the rest of the method, which is to run on that very thread.
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
	l.out.Awaits[at].WaitsFor = nil // that is over
	l.need(profile.Need{
		Of: profile.AwaitParty(at), Kind: profile.ContextLock, Object: uint64(c.context), Type: c.class,
		On: []profile.Party{profile.ThreadParty(c.thread)},
	})
}

// contextFor returns the thread whose context has most likely got the rest of a method: the one that waits for that
// method, or else the only one there is; nil: that is not known.
func (l *likely) contextFor(at int) *contextThread {
	switch i, ok := l.direct[at]; {
	case ok && i >= 0:
		return &l.contexts[i]
	case !ok && len(l.contexts) == 1:
		return &l.contexts[0]
	}
	return nil
}

// findContexts finds the threads that wait for tasks and have contexts, and for which methods they wait.
func (l *likely) findContexts() {
	l.contexts, l.direct = []contextThread{}, map[int]int{}
	byThread := map[int]int{}
	for i := range l.out.Threads {
		t := &l.out.Threads[i]
		if t.Wait == nil || !t.Wait.Kind.OfTasks() || t.ThreadID == 0 {
			continue
		}
		if at, class := l.p.waitReader().Context(arch.Addr(t.ThreadID)); at != 0 {
			byThread[i] = len(l.contexts)
			l.contexts = append(l.contexts, contextThread{i, at, class})
		}
	}
	for i := range l.out.Needs { // those of threads are all there
		n := &l.out.Needs[i]
		at, ok := byThread[n.Of.Thread]
		if !ok {
			continue
		}
		for _, on := range n.On {
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

// poolIsIdle reports whether the thread pool certainly has nothing to do that waits for a worker.
func (l *likely) poolIsIdle() bool {
	if l.pool == nil {
		l.pool = &profile.Pool{}
		if p := l.t.pool(); p != nil {
			l.pool = p
		}
	}
	return l.pool.HasWork && l.pool.Queued == 0
}
