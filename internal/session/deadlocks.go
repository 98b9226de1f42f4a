package session

import (
	"context"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// proofs is how often threads that seem to wait for one another are looked at, to prove that they do.
const proofs = 6

// proveWaits proves the deadlocks of a snapshot.
//
// The members of a circle are captured, one after the other. Then each is captured again, and what it waits for is
// read again. If none has run from its first capture until after the last second one, then all that was read in
// the second round was true at the same time: a lock changes hands only if its owner runs, or who waits for it.
func (p *Process) proveWaits(ctx context.Context, out *profile.Snapshot, f found) {
	looked := false
	for range proofs {
		if unsure := unsettled(out.Threads); len(unsure) > 0 {
			p.lookAgain(ctx, out, unsure, f)
			looked = true
		}
		g := out.WaitGraph()
		unmark(out.Threads, g)
		circles := suspects(g)
		if len(circles) == 0 || ctx.Err() != nil {
			break
		}
		members := slices.Concat(circles...)
		first := p.lookAgain(ctx, out, members, f)
		second := p.lookAgain(ctx, out, members, f)
		for _, c := range circles {
			p.stood(out, c, first, second)
		}
		looked = true
	}
	if looked {
		unmark(out.Threads, out.WaitGraph())
		p.addHolds(out)
	}
}

// maxUnsettled bounds the threads that are looked at again because their waits could not be read consistently.
const maxUnsettled = 256

// unsettled are the threads whose waits for others were not the same when they were read again: their locks changed
// hands, or the garbage collector moved them.
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

// suspects are the deadlocks that are not proved yet: of each its members, as indices in Snapshot.Threads.
func suspects(g *profile.WaitGraph) (out [][]int) {
	for _, d := range g.Suspected {
		if !d.Certain {
			out = append(out, d.Threads)
		}
	}
	return out
}

// unmark takes Still back from threads with which no deadlock was proved: others may be proved at another time.
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

// look is what was found when a thread was looked at.
type look struct {
	proof target.Proof // that it is blocked; "": it is not proved
	wait  string       // what it waits for, and for whom
}

// of notes for whom a thread waits, by all that has been read meanwhile.
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

// stood marks the threads of a circle, or of a tangle of circles, that have not run since they were first looked at.
func (p *Process) stood(out *profile.Snapshot, threads []int, first, second map[int]look) {
	for _, at := range threads {
		l := first[at]
		out.Threads[at].Still = l.proof != "" && l == second[at] && p.Live.Holds(out.Threads[at].OSThreadID, l.proof)
	}
}

// lookAgain captures threads once more, and reads what they wait for with a new list of the runtime's threads.
func (p *Process) lookAgain(ctx context.Context, out *profile.Snapshot, threads []int, f found) map[int]look {
	looks := make(map[int]look, len(threads))
	p.Engine.Cache.Invalidate()
	if p.ReadThreadStore() != nil {
		return looks
	}
	for _, at := range threads {
		if ctx.Err() != nil {
			return nil
		}
		looks[at] = look{proof: p.lookAt(&out.Threads[at], f)}
	}
	p.relate(out.Threads, threads)
	for _, at := range threads {
		looks[at] = looks[at].of(out.Threads[at].Wait)
	}
	return looks
}

// lookAt captures a thread once more, without stopping it, and returns the proof that it is blocked.
func (p *Process) lookAt(st *profile.Thread, f found) target.Proof {
	t, ok := p.Describe(st.OSThreadID)
	if !ok {
		st.Wait = nil // it has ended
		return ""
	}
	if w := st.Wait; w != nil && w.Kind == profile.WaitRuntime {
		return p.lookAtConstructor(st, t.ID)
	}
	room := p.room
	now, blocked, ok := p.snapshotBlocked(&t)
	p.room = room // its frames take the place of the old ones
	switch {
	case !blocked:
		st.Wait = nil // it has got what it waited for
		return ""
	case !ok:
		return ""
	}
	now.Pause = max(now.Pause, st.Pause)
	*st = now
	f.keep(p, st.OSThreadID)
	return p.Capture.Proof
}

// lookAtConstructor reads once more for which static constructor a thread waits. Such a thread could be captured only
// by stopping it, and so would run: but all that its wait rests on is in its Thread object.
func (p *Process) lookAtConstructor(t *profile.Thread, id arch.Addr) target.Proof {
	count := p.Live.RunCount(t.OSThreadID)
	head := make([]byte, p.Runtime.Threads.HeadLen())
	t.Wait = nil
	if p.from.ReadMemory(head, id) == nil {
		t.Wait = p.waitReader().Constructor(head, id)
	}
	if !p.Live.NotRunSince(t.OSThreadID, count) {
		return ""
	}
	return count
}
