package deadlock

import (
	"context"
	"slices"

	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// proofs is how often we try to prove that threads wait for one another.
const proofs = 6

// proveWaits proves the deadlocks of a snapshot.
//
// The members of a circle are captured, one after the other. Then each member is captured again,
// and the member's wait is read again. If no member has run from its first capture until after the
// last second capture, everything read in the second round was true at the same time: a lock
// changes hands only if the owner or a waiter runs.
func (f *finder) proveWaits(ctx context.Context) {
	out, looked := f.s.Snapshot(), false
	for range proofs {
		if unsure := unsettled(out.Threads); len(unsure) > 0 {
			f.s.LookAgain(ctx, unsure)
			looked = true
		}
		graph := out.WaitGraph()
		unmark(out.Threads, graph)
		circles := suspects(graph)
		if len(circles) == 0 || ctx.Err() != nil {
			break
		}
		members := slices.Concat(circles...)
		first := f.s.LookAgain(ctx, members)
		second := f.s.LookAgain(ctx, members)
		for _, c := range circles {
			f.stood(c, first, second)
		}
		looked = true
	}
	if looked {
		unmark(out.Threads, out.WaitGraph())
		f.s.AddHolds()
	}
}

// maxUnsettled bounds the threads that are captured again after an inconsistent read of their
// waits.
const maxUnsettled = 256

// unsettled returns the threads whose waits differed when read again: locks changed hands, or the
// garbage collector moved them.
func unsettled(threads []snapshot.Thread) (out []int) {
	for i := range threads {
		w := threads[i].Wait
		if w == nil || w.Certain || len(out) == maxUnsettled {
			continue
		}
		switch snapshot.LockKindOf(w) {
		case snapshot.MonitorLock, snapshot.LockObject, snapshot.ReaderWriterLock, snapshot.TaskLock,
			snapshot.ThreadLock,
			snapshot.HandleLock:
			out = append(out, i)
		}
	}
	return out
}

// suspects returns the deadlocks without a proof yet: the members of each, as indices in
// Snapshot.Threads.
func suspects(g *snapshot.WaitGraph) (out [][]int) {
	for _, d := range g.Suspected {
		if !d.Certain {
			out = append(out, d.Threads)
		}
	}
	return out
}

// unmark clears Still of threads without a proved deadlock: other deadlocks may be proved at
// another time.
func unmark(threads []snapshot.Thread, g *snapshot.WaitGraph) {
	proved := make(map[int]bool, len(threads))
	for _, list := range [][]snapshot.Deadlock{g.Deadlocks, g.Suspected} {
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

// stood marks the threads of a circle, or of a tangle of circles, that have not run since the first
// look.
func (f *finder) stood(threads []int, first, second map[int]session.Look) {
	for _, at := range threads {
		l, t := first[at], &f.s.Snapshot().Threads[at]
		t.Still = l.Proof != "" && l == second[at] && f.p.Live.Holds(t.OSThreadID, l.Proof)
	}
}
