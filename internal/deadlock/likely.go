package deadlock

import (
	"context"
	"maps"
	"slices"
	"time"

	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

const (
	// permitsWithin is how long a walk of the heap may take. 1 GB takes up to a second.
	permitsWithin = 1500 * time.Millisecond
	// likelyFor is how long a circle has to last before a deadlock is likely.
	likelyFor = 100 * time.Millisecond
	// likelyTries is how often the heap is walked. Objects may move during a walk.
	likelyTries = 3
)

// findLikely adds likely wait edges.
func (f *finder) findLikely(ctx context.Context) {
	for try := range likelyTries {
		l := likely{
			p: f.p, f: f, out: f.s.Snapshot(),
			all: map[naming.AwaitKey]*suspendedCode{}, resumed: map[naming.ResumedKey]*suspendedCode{},
		}
		if !l.walk(ctx) {
			return
		}
		l.build()
		l.findLost()
		if !f.p.Moments().Changes() || l.confirm(ctx) || try == likelyTries-1 {
			l.finish()
			return
		}
	}
}

// walk finds the suspended methods that are likely holders; false: the heap cannot be read.
func (l *likely) walk(ctx context.Context) bool {
	bounded, cancel := ctx, func() {}
	if l.f.o.Permits == PermitsSoon && l.p.Moments().Changes() {
		bounded, cancel = context.WithTimeout(ctx, permitsWithin)
	}
	defer cancel()
	l.t = tasks.NewWalk(bounded, l.p, session.WalkOptions{})
	l.t.Iterators = true
	census, err := l.t.WalkHeap()
	if err != nil {
		l.out.Unsearched = "the managed heap cannot be read: " + err.Error()
		return false
	}
	l.p.Engine.Cache.Invalidate()
	l.t.FindSemaphores()
	l.scan()
	l.t.Within(ctx) // the rest has no time limit
	if census.Stopped || l.t.Full || l.t.Ended {
		l.out.Unsearched = "the managed heap is too large to be looked through in so short a time"
	} else {
		l.out.Unsearched = ""
	}
	return true
}

// confirm reports whether the circles still exist some time later, and their members have done nothing meanwhile.
// Other circles are taken back.
func (l *likely) confirm(ctx context.Context) bool {
	first := l.out.WaitGraph().Likely
	if len(first) == 0 {
		return true
	}
	threads := l.threadsOf(first)
	before := l.f.s.LookAgain(ctx, threads)
	l.build()
	first = l.out.WaitGraph().Likely
	was := l.names(first)
	select {
	case <-ctx.Done():
		l.drop()
		return true
	case <-time.After(likelyFor):
	}
	after := l.f.s.LookAgain(ctx, threads)
	l.build()
	is := l.names(l.out.WaitGraph().Likely)
	if !maps.EqualFunc(was, is, slices.Equal[[]uint64]) {
		l.drop()
		return false
	}
	for _, at := range threads {
		proof := before[at].Proof
		if proof == "" || before[at] != after[at] || !l.p.Live.Holds(l.out.Threads[at].OSThreadID, proof) {
			l.drop()
			return false
		}
	}
	return len(is) > 0
}

// threadsOf are the threads in circles.
func (l *likely) threadsOf(list []snapshot.LikelyDeadlock) (out []int) {
	for i := range list {
		for _, p := range slices.Concat(list[i].Members, list[i].Others) {
			if p.Thread >= 0 && !slices.Contains(out, p.Thread) {
				out = append(out, p.Thread)
			}
		}
	}
	return out
}

// names identifies circles: the ids of all members of a circle, by the id of its first member. The ids stay the same
// while the members do nothing.
func (l *likely) names(list []snapshot.LikelyDeadlock) map[uint64][]uint64 {
	out := map[uint64][]uint64{}
	for i := range list {
		var names []uint64
		for _, p := range list[i].Members {
			if p.Thread >= 0 {
				names = append(names, uint64(l.out.Threads[p.Thread].OSThreadID))
			} else {
				names = append(names, l.out.Awaits[p.Await].Object)
			}
		}
		slices.Sort(names)
		out[names[0]] = names
	}
	return out
}

// drop removes the wait edges of members of circles.
func (l *likely) drop() {
	graph := l.out.WaitGraph().Likely
	l.out.LikelyEdges = slices.DeleteFunc(l.out.LikelyEdges, func(n snapshot.LikelyEdge) bool {
		return slices.ContainsFunc(graph, func(d snapshot.LikelyDeadlock) bool {
			return slices.Contains(d.Members, n.Waiter) || slices.Contains(d.Others, n.Waiter)
		})
	})
}
