package session

import (
	"context"
	"maps"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/permits"
	"clrsnap/profile"
)

// PermitsMode says whether SnapshotWaits also finds what is only likely: who has the permits of semaphores, and who
// completes the tasks of TaskCompletionSources. It reads the managed heap for that: async methods that are suspended
// are nowhere else.
type PermitsMode uint8

// The modes.
const (
	PermitsNever  PermitsMode = iota
	PermitsSoon               // as long as the heap can be read within permitsWithin
	PermitsAlways             // however long it takes
)

const (
	// permitsWithin is how long a walk of the heap may take. 1 GB takes up to a second.
	permitsWithin = 1500 * time.Millisecond
	// likelyFor is how long a circle has to last until it is likely to be a deadlock.
	likelyFor = 100 * time.Millisecond
	// likelyTries is how often the heap is walked, in which objects may move.
	likelyTries = 3
)

// SnapshotWaits is SnapshotAll for who wants to know who waits for whom. Threads that seem to wait for one another
// are looked at again until it is proved that they did (profile.Thread.Still), or until it turns out that they do not.
// Options.Permits has it find what is only likely as well.
func (p *Process) SnapshotWaits(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	if p.Options.Permits != PermitsNever && p.Runtime != nil && p.Runtime.Objects != nil {
		p.duties = &duties{
			reader: p.permitReader(), by: map[int][]duty{}, queued: map[int]arch.Addr{}, unsure: map[int]bool{},
			met: map[permits.MethodID]bool{}, inlined: map[callKey][]permits.Inlined{},
		}
		defer func() { p.duties = nil }()
	}
	return p.snapshotAll(ctx, filter, func(out *profile.Snapshot, f found) {
		if p.from.changes() {
			p.proveWaits(ctx, out, f)
		}
		if p.duties == nil {
			return
		}
		if p.findLikely(ctx, out, f); filter != nil {
			out.Lost = nil // a thread that was not looked at may have a permit
		}
	})
}

// findLikely adds to a snapshot what is likely to be waited for.
func (p *Process) findLikely(ctx context.Context, out *profile.Snapshot, f found) {
	for try := range likelyTries {
		l := likely{p: p, out: out, f: f, all: map[awaitKey]*suspendedCode{}, resumed: map[resumedKey]*suspendedCode{}}
		if !l.walk(ctx) {
			return
		}
		l.build()
		l.findLost()
		if !p.from.changes() || l.confirm(ctx) || try == likelyTries-1 {
			l.finish()
			return
		}
	}
}

// walk finds the suspended methods that have duties; false: the heap cannot be read.
func (l *likely) walk(ctx context.Context) bool {
	bounded, cancel := ctx, func() {}
	if l.p.Options.Permits == PermitsSoon && l.p.from.changes() {
		bounded, cancel = context.WithTimeout(ctx, permitsWithin)
	}
	defer cancel()
	l.t = l.p.newTaskWalk(bounded, HeapOptions{})
	census, err := l.t.walk()
	if err != nil {
		l.out.Unsearched = "the managed heap cannot be read: " + err.Error()
		return false
	}
	l.p.Engine.Cache.Invalidate()
	l.t.findSemaphores()
	l.scan()
	l.t.ctx = ctx // what follows has no such limit
	if census.Stopped || l.t.full || l.t.ended {
		l.out.Unsearched = "the managed heap is too large to be looked through in so short a time"
	} else {
		l.out.Unsearched = ""
	}
	return true
}

// confirm reports whether the circles that were found are still there some time later, without their members having
// done anything meanwhile. Those that are not are taken back.
func (l *likely) confirm(ctx context.Context) bool {
	first := l.out.WaitGraph().Likely
	if len(first) == 0 {
		return true
	}
	threads := l.threadsOf(first)
	before := l.p.lookAgain(ctx, l.out, threads, l.f)
	l.build()
	first = l.out.WaitGraph().Likely
	was := l.names(first)
	select {
	case <-ctx.Done():
		l.drop()
		return true
	case <-time.After(likelyFor):
	}
	after := l.p.lookAgain(ctx, l.out, threads, l.f)
	l.build()
	is := l.names(l.out.WaitGraph().Likely)
	if !maps.EqualFunc(was, is, slices.Equal[[]uint64]) {
		l.drop()
		return false
	}
	for _, at := range threads {
		proof := before[at].proof
		if proof == "" || before[at] != after[at] || !l.p.Live.Holds(l.out.Threads[at].OSThreadID, proof) {
			l.drop()
			return false
		}
	}
	return len(is) > 0
}

// threadsOf are the threads in circles.
func (l *likely) threadsOf(list []profile.LikelyDeadlock) (out []int) {
	for i := range list {
		for _, p := range slices.Concat(list[i].Members, list[i].Others) {
			if p.Thread >= 0 && !slices.Contains(out, p.Thread) {
				out = append(out, p.Thread)
			}
		}
	}
	return out
}

// names are what stays the same of circles whose members do nothing: by what the first is, the others.
func (l *likely) names(list []profile.LikelyDeadlock) map[uint64][]uint64 {
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

// drop takes back what the members of circles need.
func (l *likely) drop() {
	graph := l.out.WaitGraph().Likely
	l.out.Needs = slices.DeleteFunc(l.out.Needs, func(n profile.Need) bool {
		return slices.ContainsFunc(graph, func(d profile.LikelyDeadlock) bool {
			return slices.Contains(d.Members, n.Of) || slices.Contains(d.Others, n.Of)
		})
	})
}
