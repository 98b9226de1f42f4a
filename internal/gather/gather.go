// Package gather looks at a process for some time, and gathers the evidence that package why judges: looks at all
// threads, samples and events, looks at the heap, requests and async methods, and the kernel's counters.
package gather

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/bridge"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/phrase"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// root is the inside of the root package.
var root = clrsnap.Inside(bridge.Access{})

// slowLook is the time of a look from which on a second look soon after costs more than the look tells: there are
// thousands of threads, or hardly any CPU time.
const slowLook = 400 * time.Millisecond

// Gather looks at everything. After an error, the evidence has what was seen until then.
func (g *Gatherer) Gather(ctx context.Context) error {
	defer func() {
		g.tell()
		g.Took = time.Since(g.start)
		g.Stops = g.s.Live.Stops() + int(g.stops.Load())
	}()
	g.Missing = append(g.Missing, unknown(g.p)...)
	defer g.watchMemory()()
	g.moment()
	if g.Held() {
		return g.gatherHeld(ctx)
	}
	for i := 0; i < 2 && g.lastLooks == 0; i++ {
		begin := time.Now()
		if err := g.look(ctx); err != nil {
			return err
		}
		if took := time.Since(begin); took > slowLook {
			g.lastLooks = 2 * took
		}
		if !session.Sleep(ctx, lookGap) {
			return ctx.Err()
		}
	}
	g.census(ctx)
	g.earlyRows(ctx)
	g.inFlight(ctx)
	// Slow looks, at a program of many threads or on a busy machine, make everything take longer than planned.
	if err := g.sample(ctx, max(g.left(), g.o.For/4, leastSampling)); err != nil {
		return err
	}
	for i := range 2 {
		if i > 0 && !session.Sleep(ctx, lookGap) {
			return ctx.Err()
		}
		if err := g.look(ctx); err != nil {
			return err
		}
	}
	g.alwaysBusy()
	g.census(ctx)
	g.keepers(ctx)
	g.rows(ctx)
	g.likely(ctx)
	g.connections()
	g.inFlightAtEnd(ctx)
	g.keptTasks(ctx)
	g.farEnds(ctx)
	g.moment()
	g.HeapLimit = g.limit()
	g.filling(ctx)
	g.handlers(ctx)
	return ctx.Err()
}

// gatherHeld looks at a process that is kept from running: clrsnap only checks that the process stays held.
func (g *Gatherer) gatherHeld(ctx context.Context) error {
	session.Sleep(ctx, 2*lookGap)
	g.moment()
	return g.look(ctx)
}

// look adds a look at all threads.
func (g *Gatherer) look(ctx context.Context) error {
	g.progress("stacks, waits and locks")
	l := Look{At: time.Since(g.start), Ran: g.ran()}
	pool := newPoolFinder(g.s)
	s, err := g.s.Snapshot(ctx, session.SnapshotOptions{Inspect: pool.inspect()})
	if err != nil {
		return root.Publish(err)
	}
	g.nameChildren(s)
	l.Snap, l.After, l.Pool = s, g.ran(), pool.state()
	l.Until = time.Since(g.start)
	l.blocked, l.moved = g.blocked(), g.moved(s)
	l.MarkStill()
	g.Looks = append(g.Looks, l)
	return nil
}

// nearlyAlways is the share of a thread's life in which a thread that never pauses runs, or is ready to run.
const nearlyAlways = 0.95

// alwaysBusy notes the threads that have never paused.
func (g *Gatherer) alwaysBusy() {
	g.AlwaysBusy = map[int]bool{}
	for tid, s := range g.Last().After {
		if s.Running+s.Ready < g.Span() {
			continue // not even since the first look
		}
		age := g.s.ThreadAge(tid)
		g.AlwaysBusy[tid] = age > 0 && float64(s.Running+s.Ready) >= nearlyAlways*float64(age)
	}
}

// ran reads the running time of each thread.
func (g *Gatherer) ran() map[int]procfs.Schedstat {
	tids, err := g.dir.Tasks()
	if err != nil {
		return nil
	}
	out := make(map[int]procfs.Schedstat, len(tids))
	for _, tid := range tids {
		if b, err := g.dir.ReadFile(procfs.TaskFile(tid, "schedstat")); err == nil {
			out[tid] = procfs.ParseSchedstat(b)
		}
	}
	return out
}

// blocked reads how often each thread has blocked.
func (g *Gatherer) blocked() map[int]uint64 {
	tids, err := g.dir.Tasks()
	if err != nil {
		return nil
	}
	out := make(map[int]uint64, len(tids))
	for _, tid := range tids {
		b, err := g.dir.ReadFile(procfs.TaskFile(tid, "status"))
		if err != nil {
			continue
		}
		if s, err := procfs.ParseStatus(b); err == nil {
			out[tid] = s.VoluntarySwitches
		}
	}
	return out
}

// moved reads how many bytes the threads in calls for input or output have read and written.
func (g *Gatherer) moved(s *snapshot.Snapshot) map[int]procfs.Transferred {
	out := map[int]procfs.Transferred{}
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Wait == nil || t.Wait.Kind != snapshot.WaitIO {
			continue
		}
		if n, err := g.dir.TaskIO(t.OSThreadID); err == nil {
			out[t.OSThreadID] = n
		}
	}
	return out
}

// poolFinder finds the thread pool while threads are captured.
type poolFinder struct{ f *threadpool.Finder }

func newPoolFinder(s *session.Process) poolFinder {
	if s.Runtime == nil || s.Runtime.Objects == nil || s.Runtime.Heap == nil {
		return poolFinder{}
	}
	f := threadpool.NewFinder(s.Runtime.Objects, s.Runtime.Heap)
	f.Begin()
	return poolFinder{f}
}

// inspect returns the look at each captured thread; nil: the pool cannot be found.
func (p poolFinder) inspect() func(*session.Inspection) {
	if p.f == nil {
		return nil
	}
	return func(x *session.Inspection) {
		if strings.HasPrefix(x.Thread.Role, "ThreadPool") {
			p.f.Look(x.Stack.Data)
		}
	}
}

// state is the pool's state; nil: not known.
func (p poolFinder) state() *threadpool.State {
	if p.f == nil {
		return nil
	}
	s, err := p.f.Read()
	if err != nil {
		return nil
	}
	return &s
}

// left is the time that is left until the last looks.
func (g *Gatherer) left() time.Duration { return g.o.For - time.Since(g.start) - lookGap - g.lastLooks }

// sample records the process for some time. A recording that fails is a gap in the evidence. Only an ErrMayBlock is an
// error: the caller can look from a process that may block.
func (g *Gatherer) sample(ctx context.Context, d time.Duration) error {
	g.progress("samples")
	o := record.Options{Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: sampleRate, Duration: d}
	if g.mayLoad() {
		r, err := g.recordEvents(ctx, o)
		if err == nil {
			g.Samples = r
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, clrsnap.ErrMayBlock) {
			return err
		}
		g.Miss("Exceptions, allocations, waits for locks and garbage collections were not looked at: %v.", err)
		o.Duration = max(leastSampling, g.left())
	}
	o.Progress = func(record.Progress) { g.progress("samples") }
	r, err := g.record(ctx, o)
	switch {
	case err == nil:
		g.Samples = r
	case errors.Is(err, clrsnap.ErrMayBlock):
		return err
	case ctx.Err() == nil:
		g.Miss("No samples were taken: %v.", err)
	}
	return nil
}

// record records with a second Process, because a recording needs a Process for itself.
func (g *Gatherer) record(ctx context.Context, o record.Options) (*profile.Recording, error) {
	how := g.o.Process
	how.ExactGenerics = false // exact names cost time, and a method is the same with any type arguments
	p, err := clrsnap.Open(ctx, g.Process.PID, how)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	defer func() { g.stops.Add(int64(root.Session(p).Live.Stops())) }()
	return record.Record(ctx, p, o)
}

// mayLoad reports whether the agent may be loaded.
func (g *Gatherer) mayLoad() bool {
	if g.o.NoAgent {
		g.Miss("Exceptions, allocations, waits for locks and garbage collections were not looked at, because no " +
			"agent was to be loaded.")
		return false
	}
	if g.suspended(&g.Evidence) {
		g.Miss("Exceptions, allocations, waits for locks and garbage collections were not looked at, because the " +
			"runtime waits for a thread, and would not answer.")
		return false
	}
	return true
}

// errNoEnd: a recording that was to end goes on.
var errNoEnd = fmt.Errorf("the recording did not end within %v", endsWithin)

// recordEvents is record with the agent's events, unless the runtime takes too long to load the agent. Then
// recordEvents abandons the recording: the recording ends by itself, without having begun. The time for loading the
// agent is part of the recording's time.
func (g *Gatherer) recordEvents(ctx context.Context, o record.Options) (*profile.Recording, error) {
	o.Events = events.Options{
		Monitor: events.MonitorAllocations | events.MonitorExceptions | events.MonitorContention | events.MonitorGC,
		// Shorter waits for locks are negligible in sum.
		ContentionMin: 100 * time.Microsecond, NoMessages: true,
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began, within := time.Now(), min(answerWithin, o.Duration)
	errNoAnswer := fmt.Errorf("the runtime did not answer within %s", phrase.Seconds(within))
	late := time.AfterFunc(within, func() { cancel(errNoAnswer) })
	defer late.Stop()
	var enough *time.Timer
	o.Progress = func(record.Progress) { // the recording runs, so the agent is there
		if enough == nil {
			late.Stop()
			enough = time.AfterFunc(max(leastSampling, o.Duration-time.Since(began)), func() { cancel(errNoEnd) })
		}
		if bounded.Err() == nil {
			g.progress("samples and events")
		}
	}
	type result struct {
		r   *profile.Recording
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := g.record(bounded, o)
		done <- result{r, err}
	}()
	var x result
	select {
	case x = <-done:
	case <-bounded.Done():
		select {
		case x = <-done:
		case <-time.After(endsWithin):
			x.err = context.Cause(bounded)
		}
	}
	if x.err != nil && errors.Is(context.Cause(bounded), errNoAnswer) {
		x.err = errNoAnswer
	}
	return x.r, x.err
}

// unknown says what could not be seen because clrsnap does not understand some contracts of the runtime. The attempt
// to read the heap reports a missing heap itself.
func unknown(p *clrsnap.Process) (out []string) {
	for _, u := range p.Unknown() {
		if u.Contract != "GC" {
			out = append(out, "It was looked at "+u.Text+".")
		}
	}
	return out
}

// OfCore takes the single look at a core dump.
func OfCore(ctx context.Context, p *clrsnap.Process) (*Evidence, error) {
	s := root.Session(p)
	e := &Evidence{Process: p.Info()}
	pool := newPoolFinder(s)
	snap, err := s.Snapshot(ctx, session.SnapshotOptions{Inspect: pool.inspect()})
	if err != nil {
		return nil, root.Publish(err)
	}
	likely, err := p.SnapshotWaits(ctx, nil)
	if err == nil && len(likely.LikelyEdges) > 0 {
		e.Likely = likely
	}
	e.Began = snap.CapturedAt
	e.Looks = []Look{{Snap: snap, Pool: pool.state()}}
	e.Looked = []string{phrase.ThreadsOf(len(snap.Threads)) + " of a core dump"}
	e.Missing = append([]string{"A core dump is one moment, and tells no changes over time."},
		unknown(p)...)
	if s := e.Process.Core.Signal; s != nil {
		e.Missing = append(e.Missing,
			fmt.Sprintf("The cause of the end, %s, is not judged here: clrsnap stack %s shows the "+
				"thread, with the exception, if any.", s.Name, e.Again()))
	}
	if err == nil && likely.Unsearched != "" {
		e.Incomplete = true
		e.Missing = append(e.Missing,
			"Who holds locks and permits, suspended async methods and the thread pool were not "+
				"looked at, or only in part: "+likely.Unsearched+".")
	}
	return e, nil
}
