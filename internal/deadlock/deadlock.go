package deadlock

import (
	"context"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Permits says whether Snapshot also finds likely holders: threads and async methods with the permits of semaphores,
// or that complete the tasks of TaskCompletionSources. The search reads the managed heap, because suspended async
// methods are nowhere else.
type Permits uint8

// The modes.
const (
	PermitsNever  Permits = iota
	PermitsSoon           // if the heap can be read within permitsWithin
	PermitsAlways         // however long the reading takes
)

// Options say what a snapshot is of. The zero value is of all threads, without likely holders.
type Options struct {
	// Filter chooses threads by their entries in the list of threads; nil: all.
	Filter  session.Filter
	Permits Permits
}

// Snapshot takes a snapshot with wait edges (snapshot.Snapshot.WaitGraph). Threads that seem to wait for one another
// are captured again until the wait is proved (snapshot.Thread.Still) or disproved.
func Snapshot(ctx context.Context, p *session.Process, o Options) (*snapshot.Snapshot, error) {
	observe := func(s *session.Observed) session.Observer {
		f := &finder{p: p, s: s, o: o}
		if o.Permits != PermitsNever && p.Runtime != nil && p.Managed.Objects != nil {
			f.duties = newDuties(p)
		}
		return f
	}
	return p.Snapshot(ctx, session.SnapshotOptions{Filter: o.Filter, Observe: observe})
}

// SnapshotAtRest is Snapshot while all threads stand still, for most at most; 0 stands for session.DefaultPause. An
// earlier look while the threads run finds all names. If the threads cannot be held, the earlier look counts:
// snapshot.Snapshot.Stop says so.
func SnapshotAtRest(
	ctx context.Context, p *session.Process, o Options, most time.Duration,
) (*snapshot.Snapshot, error) {
	before, err := Snapshot(ctx, p, o)
	if err != nil || !p.Moments().Changes() || p.Managed == nil {
		return before, err
	}
	held, stop := session.AtRest(ctx, p, most, before, func(ctx context.Context) (*snapshot.Snapshot, error) {
		return Snapshot(ctx, p, o)
	})
	held.Stop = stop
	return held, p.Alive()
}

// Begin implements session.Observer.
func (f *finder) Begin() {
	if f.duties != nil {
		f.duties.sites.begin()
	}
}

// Frame implements session.Observer.
func (f *finder) Frame(at *walk.Frame, m method.Method, assembly string, above []snapshot.Frame) {
	if f.duties != nil {
		f.duties.frame(at, &m, assembly, above)
	}
}

// Walked implements session.Observer.
func (f *finder) Walked(tid int, queue arch.Addr) {
	if f.duties != nil {
		f.duties.keep(tid, queue)
	}
}

// Find implements session.Observer: it proves wait edges, and finds likely wait edges.
func (f *finder) Find(ctx context.Context) {
	if f.p.Moments().Changes() {
		f.proveWaits(ctx)
	}
	if f.duties == nil {
		return
	}
	if f.findLikely(ctx); f.o.Filter != nil {
		f.s.Snapshot().Lost = nil // a thread outside the filter may have a permit
	}
}
