package session

import (
	"context"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Look is the finding of one look at a thread.
type Look struct {
	Proof target.Proof // that the thread is blocked; "": no proof
	wait  string       // the kind of wait, and the threads waited for
}

// of adds the threads that a thread waits for, by all data read meanwhile.
func (l Look) of(w *snapshot.Wait) Look {
	if w == nil {
		return Look{}
	}
	l.wait = string(w.Kind)
	if w.Owner != nil {
		l.wait += fmt.Sprint(*w.Owner)
	}
	l.wait += fmt.Sprint(w.Readers, w.Behind)
	for k := range w.Tasks {
		if o := w.Tasks[k].Owner; o != nil {
			l.wait += fmt.Sprint(*o)
		}
		l.wait += ";"
	}
	return l
}

// LookAgain captures threads once more, and reads the threads' waits with a new list of the runtime's threads. The
// captures take the place of the captures before. threads and the result's keys are indices in Snapshot.Threads. nil:
// ctx has ended.
func (o *Observed) LookAgain(ctx context.Context, threads []int) map[int]Look {
	g := o.g
	looks := make(map[int]Look, len(threads))
	g.Engine.Cache.Invalidate()
	if g.ReadThreadStore() != nil {
		return looks
	}
	for _, at := range threads {
		if ctx.Err() != nil {
			return nil
		}
		looks[at] = Look{Proof: g.lookAt(&g.out.Threads[at])}
	}
	g.relate(threads)
	for _, at := range threads {
		looks[at] = looks[at].of(g.out.Threads[at].Wait)
	}
	return looks
}

// lookAt captures a thread once more, without a stop, and returns the proof that the thread is blocked.
func (g *gathering) lookAt(st *snapshot.Thread) target.Proof {
	t, ok := g.Describe(st.OSThreadID)
	if !ok {
		st.Wait = nil // the thread has ended
		return ""
	}
	if w := st.Wait; w != nil && w.Kind == snapshot.WaitRuntime {
		return g.lookAtConstructor(st, t.ID)
	}
	if w := st.Wait; w != nil && w.Kind == snapshot.SpinLockEnter {
		return "" // the thread runs again and again, and waits all the same
	}
	room := g.room
	now, blocked, ok := g.takeBlocked(&t)
	g.room = room // the new frames take the place of the old frames
	switch {
	case !blocked:
		st.Wait = nil // the wait is over
		return ""
	case !ok:
		return ""
	}
	now.Pause = max(now.Pause, st.Pause)
	*st = now.Thread
	g.keep(now)
	return now.proof
}

// lookAtConstructor reads once more the static constructor that a thread waits for. Only a stop could capture the
// thread, and a stop makes the thread run. But everything about the wait is in the Thread object.
func (p *Process) lookAtConstructor(t *snapshot.Thread, id arch.Addr) target.Proof {
	count := p.Live.RunCount(t.OSThreadID)
	head := make([]byte, p.Managed.Threads.HeadLen())
	t.Wait = nil
	if p.from.ReadMemory(head, id) == nil {
		t.Wait = p.WaitReader().Constructor(head, id)
	}
	if !p.Live.NotRunSince(t.OSThreadID, count) {
		return ""
	}
	return count
}
