package why

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/bridge"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/profile"
	"clrsnap/record"
)

const (
	// Two looks that belong together are so far apart. The gap is long for a program, and short for a person.
	lookGap = 250 * time.Millisecond
	// answerWithin is how long the runtime may take to load the agent, at most the planned time of the recording.
	// Loading takes some 30 ms.
	answerWithin = 3 * time.Second
	// endsWithin is how long a recording may take to end: mostly the time in which the agent leaves.
	endsWithin = 2 * time.Second
	// leastSampling is the shortest recording that the judges use.
	leastSampling = enough
	// sampleRate is in samples a second. The rate is not a multiple of usual periods in programs.
	sampleRate = 97
)

// gatherer gathers the evidence of one process.
type gatherer struct {
	e     evidence
	o     *Options
	p     *clrsnap.Process
	s     *session.Process
	dir   procfs.Dir
	group *cgroup.Reader
	start time.Time

	heapMissing bool         // the heap cannot be read
	stops       atomic.Int64 // of threads, for the recording
}

func newGatherer(pid int, o *Options) (*gatherer, error) {
	start := time.Now()
	how := o.Process
	how.Permits, how.PackStacks = clrsnap.PermitsSoon, false
	p, err := clrsnap.Open(context.Background(), pid, how)
	if err != nil {
		return nil, err
	}
	s := bridge.Session(p)
	g := &gatherer{o: o, p: p, s: s, dir: s.Live.Dir(), start: start}
	g.group = cgroup.NewReader(g.dir)
	g.e = evidence{process: p.Info(), began: g.start, cpus: runtime.NumCPU()}
	return g, nil
}

func (g *gatherer) close() { g.p.Close() }

// gather looks at everything. After an error, the evidence has what was seen until then.
func (g *gatherer) gather(ctx context.Context) error {
	defer func() {
		g.tell()
		g.e.took = time.Since(g.start)
		g.e.stops = g.s.Live.Stops() + int(g.stops.Load())
	}()
	g.e.missing = append(g.e.missing, unknown(g.p)...)
	defer g.watchMemory()()
	g.moment()
	if g.e.held() {
		return g.gatherHeld(ctx)
	}
	for range 2 {
		if err := g.look(ctx); err != nil {
			return err
		}
		if !session.Sleep(ctx, lookGap) {
			return ctx.Err()
		}
	}
	g.census(ctx)
	g.inFlight(ctx)
	// Slow looks, at a program of many threads or on a busy machine, make everything take longer than planned.
	g.sample(ctx, max(g.o.For-time.Since(g.start)-lookGap, g.o.For/4, leastSampling))
	for i := range 2 {
		if i > 0 && !session.Sleep(ctx, lookGap) {
			return ctx.Err()
		}
		if err := g.look(ctx); err != nil {
			return err
		}
	}
	g.census(ctx)
	g.keepers(ctx)
	g.rows(ctx)
	g.likely(ctx)
	g.connections()
	g.inFlightAtEnd(ctx)
	g.keptTasks(ctx)
	g.farEnds(ctx)
	g.moment()
	g.e.heapLimit = g.limit()
	return ctx.Err()
}

// gatherHeld looks at a process that is kept from running: clrsnap only checks that the process stays held.
func (g *gatherer) gatherHeld(ctx context.Context) error {
	session.Sleep(ctx, 2*lookGap)
	g.moment()
	return g.look(ctx)
}

// progress reports how far g has come.
func (g *gatherer) progress(doing string) {
	g.o.Progress(doing, min(1, time.Since(g.start).Seconds()/g.o.For.Seconds()))
}

// look adds a look at all threads.
func (g *gatherer) look(ctx context.Context) error {
	g.progress("stacks, waits and locks")
	l := look{at: time.Since(g.start), ran: g.ran()}
	pool := newPoolFinder(g.s)
	s, err := g.s.Snapshot(ctx, session.SnapshotOptions{Inspect: pool.inspect()})
	if err != nil {
		return bridge.Publish(err)
	}
	l.snap, l.after, l.pool = s, g.ran(), pool.state()
	l.until = time.Since(g.start)
	l.blocked, l.moved = g.blocked(), g.moved(s)
	l.markStill()
	g.e.looks = append(g.e.looks, l)
	return nil
}

// ran reads the running time of each thread.
func (g *gatherer) ran() map[int]procfs.Schedstat {
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
func (g *gatherer) blocked() map[int]uint64 {
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
func (g *gatherer) moved(s *profile.Snapshot) map[int]procfs.Transferred {
	out := map[int]procfs.Transferred{}
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Wait == nil || t.Wait.Kind != profile.WaitIO {
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

// sample records the process for some time.
func (g *gatherer) sample(ctx context.Context, d time.Duration) {
	g.progress("samples")
	o := record.Options{Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: sampleRate, Duration: d}
	if g.mayLoad() {
		r, err := g.recordEvents(ctx, o)
		if err == nil {
			g.e.samples = r
			return
		}
		if ctx.Err() != nil {
			return
		}
		g.miss("Exceptions, allocations, waits for locks and garbage collections were not looked at: %v.", err)
		o.Duration = max(leastSampling, g.o.For-time.Since(g.start)-lookGap)
	}
	o.Progress = func(record.Progress) { g.progress("samples") }
	r, err := g.record(ctx, o)
	switch {
	case err == nil:
		g.e.samples = r
	case ctx.Err() == nil:
		g.miss("No samples were taken: %v.", err)
	}
}

// record records with a second Process, because a recording needs a Process for itself.
func (g *gatherer) record(ctx context.Context, o record.Options) (*profile.Recording, error) {
	how := g.o.Process
	how.ExactGenerics = false // exact names cost time, and a method is the same with any type arguments
	p, err := clrsnap.Open(ctx, g.e.process.PID, how)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	defer func() { g.stops.Add(int64(bridge.Session(p).Live.Stops())) }()
	return record.Record(ctx, p, o)
}

// mayLoad reports whether the agent may be loaded.
func (g *gatherer) mayLoad() bool {
	if g.o.NoAgent {
		g.miss("Exceptions, allocations, waits for locks and garbage collections were not looked at, because no " +
			"agent was to be loaded.")
		return false
	}
	if len(judgeSuspension(&g.e)) > 0 {
		g.miss("Exceptions, allocations, waits for locks and garbage collections were not looked at, because the " +
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
func (g *gatherer) recordEvents(ctx context.Context, o record.Options) (*profile.Recording, error) {
	o.Events = events.Options{
		Monitor: events.MonitorAllocations | events.MonitorExceptions | events.MonitorContention | events.MonitorGC,
		// Shorter waits for locks are negligible in sum.
		ContentionMin: 100 * time.Microsecond, NoMessages: true,
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began, within := time.Now(), min(answerWithin, o.Duration)
	errNoAnswer := fmt.Errorf("the runtime did not answer within %s", seconds(within))
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

// miss notes something that could not be looked at.
func (g *gatherer) miss(format string, args ...any) {
	g.e.missing = append(g.e.missing, fmt.Sprintf(format, args...))
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

// examineCore takes the single look at a core dump.
func examineCore(ctx context.Context, p *clrsnap.Process) (*evidence, error) {
	s := bridge.Session(p)
	e := &evidence{process: p.Info()}
	pool := newPoolFinder(s)
	snap, err := s.Snapshot(ctx, session.SnapshotOptions{Inspect: pool.inspect()})
	if err != nil {
		return nil, bridge.Publish(err)
	}
	likely, err := p.SnapshotWaits(ctx, nil)
	if err == nil && len(likely.Needs) > 0 {
		e.likely = likely
	}
	e.began = snap.CapturedAt
	e.looks = []look{{snap: snap, pool: pool.state()}}
	e.looked = []string{threadsOf(len(snap.Threads)) + " of a core dump"}
	e.missing = append([]string{"A core dump is one moment: what changes over time cannot be told from it."},
		unknown(p)...)
	if s := e.process.Core.Signal; s != nil {
		e.missing = append(e.missing, fmt.Sprintf("What it died of, %s, is not judged here: clrsnap stack %s shows the "+
			"thread, and its exception if there is one.", s.Name, e.again()))
	}
	if err == nil && likely.Unsearched != "" {
		e.incomplete = true
		e.missing = append(e.missing, "Who holds locks and permits, suspended async methods and the thread pool were not "+
			"looked at, or only in part: "+likely.Unsearched+".")
	}
	return e, nil
}
