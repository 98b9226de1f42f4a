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
	c := l.contextFor(at)
	if c == nil || !l.poolIsIdle() {
		return
	}
	l.out.Awaits[at].WaitsFor = nil // that is over
	l.need(profile.Need{
		Of: profile.AwaitParty(at), Kind: profile.ContextLock, Object: uint64(c.context), Type: c.class,
		On: []profile.Party{profile.ThreadParty(c.thread)},
	})
}

// contextFor returns the thread whose context has most likely got the rest of a method: the one that waits for that
// method, or else the only one there is; nil: there is none, or that is not known.
func (l *likely) contextFor(at int) *contextThread {
	var direct *contextThread
	for i := range l.contexts {
		c := &l.contexts[i]
		if l.out.NeedOf(profile.ThreadParty(c.thread), profile.AwaitParty(at)) == nil {
			continue
		}
		if direct != nil {
			return nil
		}
		direct = c
	}
	if direct == nil && len(l.contexts) == 1 {
		direct = &l.contexts[0]
	}
	return direct
}

// findContexts finds the threads that wait for tasks and have contexts.
func (l *likely) findContexts() {
	l.contexts = []contextThread{}
	for i := range l.out.Threads {
		t := &l.out.Threads[i]
		if t.Wait == nil || t.Wait.Kind != profile.TaskWait || t.ThreadID == 0 {
			continue
		}
		if at, class := l.p.waitReader().Context(arch.Addr(t.ThreadID)); at != 0 {
			l.contexts = append(l.contexts, contextThread{i, at, class})
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
