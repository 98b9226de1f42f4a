package session

import (
	"context"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// proofs is how often we try to prove that threads wait for one another.
const proofs = 6

// proveWaits proves the deadlocks of a snapshot.
//
// The members of a circle are captured, one after the other. Then each member is captured again,
// and the member's wait is read again. If no member has run from its first capture until after the
// last second capture, everything read in the second round was true at the same time: a lock
// changes hands only if the owner or a waiter runs.
func (g *gathering) proveWaits(ctx context.Context) {
	out, looked := g.out, false
	for range proofs {
		if unsure := unsettled(out.Threads); len(unsure) > 0 {
			g.lookAgain(ctx, unsure)
			looked = true
		}
		graph := out.WaitGraph()
		unmark(out.Threads, graph)
		circles := suspects(graph)
		if len(circles) == 0 || ctx.Err() != nil {
			break
		}
		members := slices.Concat(circles...)
		first := g.lookAgain(ctx, members)
		second := g.lookAgain(ctx, members)
		for _, c := range circles {
			g.stood(c, first, second)
		}
		looked = true
	}
	if looked {
		unmark(out.Threads, out.WaitGraph())
		g.addHolds()
	}
}

// maxUnsettled bounds the threads that are captured again after an inconsistent read of their
// waits.
const maxUnsettled = 256

// unsettled returns the threads whose waits differed when read again: locks changed hands, or the
// garbage collector moved them.
func unsettled(threads []profile.Thread) (out []int) {
	for i := range threads {
		w := threads[i].Wait
		if w == nil || w.Certain || len(out) == maxUnsettled {
			continue
		}
		switch profile.LockKindOf(w) {
		case profile.MonitorLock, profile.LockObject, profile.ReaderWriterLock, profile.TaskLock, profile.ThreadLock,
			profile.HandleLock:
			out = append(out, i)
		}
	}
	return out
}

// suspects returns the deadlocks without a proof yet: the members of each, as indices in
// Snapshot.Threads.
func suspects(g *profile.WaitGraph) (out [][]int) {
	for _, d := range g.Suspected {
		if !d.Certain {
			out = append(out, d.Threads)
		}
	}
	return out
}

// unmark clears Still of threads without a proved deadlock: other deadlocks may be proved at
// another time.
func unmark(threads []profile.Thread, g *profile.WaitGraph) {
	proved := make(map[int]bool, len(threads))
	for _, list := range [][]profile.Deadlock{g.Deadlocks, g.Suspected} {
		for _, d := range list {
			for _, at := range d.Threads {
				proved[at] = proved[at] || d.Certain
			}
		}
	}
	for i := range threads {
		threads[i].Still = threads[i].Still && proved[i]
	}
}

// look is the finding of one look at a thread.
type look struct {
	proof target.Proof // that the thread is blocked; "": no proof
	wait  string       // the kind of wait, and the threads waited for
}

// of adds the threads that a thread waits for, by all data read meanwhile.
func (l look) of(w *profile.Wait) look {
	if w == nil {
		return look{}
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

// stood marks the threads of a circle, or of a tangle of circles, that have not run since the first
// look.
func (g *gathering) stood(threads []int, first, second map[int]look) {
	for _, at := range threads {
		l, t := first[at], &g.out.Threads[at]
		t.Still = l.proof != "" && l == second[at] && g.Live.Holds(t.OSThreadID, l.proof)
	}
}

// lookAgain captures threads once more, and reads the threads' waits with a new list of the
// runtime's threads.
func (g *gathering) lookAgain(ctx context.Context, threads []int) map[int]look {
	looks := make(map[int]look, len(threads))
	g.Engine.Cache.Invalidate()
	if g.ReadThreadStore() != nil {
		return looks
	}
	for _, at := range threads {
		if ctx.Err() != nil {
			return nil
		}
		looks[at] = look{proof: g.lookAt(&g.out.Threads[at])}
	}
	g.relate(threads)
	for _, at := range threads {
		looks[at] = looks[at].of(g.out.Threads[at].Wait)
	}
	return looks
}

// lookAt captures a thread once more, without a stop, and returns the proof that the thread is
// blocked.
func (g *gathering) lookAt(st *profile.Thread) target.Proof {
	t, ok := g.Describe(st.OSThreadID)
	if !ok {
		st.Wait = nil // the thread has ended
		return ""
	}
	if w := st.Wait; w != nil && w.Kind == profile.WaitRuntime {
		return g.lookAtConstructor(st, t.ID)
	}
	if w := st.Wait; w != nil && w.Kind == profile.SpinLockEnter {
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

// lookAtConstructor reads once more the static constructor that a thread waits for. Only a stop
// could capture the thread, and a stop makes the thread run. But everything about the wait is in
// the Thread object.
func (p *Process) lookAtConstructor(t *profile.Thread, id arch.Addr) target.Proof {
	count := p.Live.RunCount(t.OSThreadID)
	head := make([]byte, p.Managed.Threads.HeadLen())
	t.Wait = nil
	if p.from.ReadMemory(head, id) == nil {
		t.Wait = p.waitReader().Constructor(head, id)
	}
	if !p.Live.NotRunSince(t.OSThreadID, count) {
		return ""
	}
	return count
}
