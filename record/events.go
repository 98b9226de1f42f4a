package record

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/agent"
	"clrsnap/internal/bridge"
	"clrsnap/internal/link"
	"clrsnap/internal/pace"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// eventSampler turns the notifications of recorded processes into samples.
type eventSampler struct {
	r      *recorder
	o      events.Options
	of     map[int]*notifiedProcess // by process id
	counts [len(profile.Modes)]eventCounts
	lives  lifetimes
	locks  lockNames
	stack  []int32

	heaps    []*liveHeap  // of all processes, with Options.Live
	rethrows int64        // rethrows, according to the agents' reports
	messages messageTable // of exceptions

	latest time.Duration // when an agent last reported something
	until  time.Duration // the end: later events are not recorded

	launcher *link.Launcher // of a command; nil: running processes are attached to
	ctx      context.Context
	cancel   context.CancelFunc
	arriving sync.WaitGroup     // attachments under way
	arrivals chan link.Accepted // results of the attachments
}

// eventCounts say how many samples and events of a mode there were.
type eventCounts struct {
	samples, broken int
	lost, seen      int64 // of processes whose agent has left
}

// notifiedProcess is a process that has an agent.
type notifiedProcess struct {
	e      *eventSampler
	pid    int
	link   *link.Link
	rp     *recordedProcess  // nil: the process cannot be read yet, and its reports wait in the ring
	thrown map[int][]flight  // exceptions in flight, by thread
	caught []caughtException // in the order of the catches
	pauses gcPauses
	holds  holders
	live   *liveHeap // nil: not wanted

	pending int           // exceptions in thrown
	gaveUp  bool          // some exceptions that may be in flight are no longer in thrown
	overdue time.Duration // when to look next for exceptions that have waited for too long
	births  map[clrsnap.ThreadID]time.Duration
	over    bool // the agent has left

	before  agentCounts               // when recording began
	after   *agentCounts              // when recording ended; nil: it has not
	arrived [len(profile.Modes)]int64 // events since recording began that the agent reported, on any thread

	queue  []*agent.Record // records taken from link and not handled yet
	pace   pace.Pace
	slowed bool // records had to wait because the pace was spent
}

// readShare is the largest share of a CPU for making samples of one process's notifications: 60,000 to
// 200,000 notifications a second, at 3 to 10 µs each.
const readShare = 0.6

// lifetimes are the lifetimes of ended threads.
type lifetimes struct {
	created, ended int
	unknown        int // created threads without a recorded beginning
	known          []time.Duration
}

func newEventSampler(r *recorder) *eventSampler {
	e := &eventSampler{
		r: r, o: r.o.Events, of: map[int]*notifiedProcess{}, until: math.MaxInt64, arrivals: make(chan link.Accepted),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// modesOf returns the modes of the samples from the wanted notifications. The bits of Monitor have the
// order of the modes.
func modesOf(m events.Monitor) []profile.Mode {
	var out []profile.Mode
	for mode := profile.Alloc; mode.Known(); mode++ {
		if m>>(mode-profile.Alloc)&1 != 0 {
			out = append(out, mode)
		}
	}
	return out
}

// met takes over the agent of a process.
func (e *eventSampler) met(pid int, link *link.Link) *notifiedProcess {
	if old := e.of[pid]; old != nil && !old.over {
		old.leave() // the process has become another program, or its id belongs to another process
	}
	np := &notifiedProcess{
		e: e, pid: pid, link: link, thrown: map[int][]flight{}, births: map[clrsnap.ThreadID]time.Duration{},
		pace: pace.Pace{Share: readShare, Used: live.ThreadCPU},
	}
	if e.r.o.Live {
		np.live = newLiveHeap(e.r.b, link.Free)
		e.heaps = append(e.heaps, np.live)
	}
	e.of[pid] = np
	return np
}

// reads has rp read the process's notifications from now on.
func (np *notifiedProcess) reads(rp *recordedProcess) {
	np.rp = rp
	rp.frames.awaits.follow(rp.p, np.link)
}

// drain takes the reports of all agents.
func (e *eventSampler) drain() {
	e.arrive()
	for pid, np := range e.of {
		switch {
		case np.over:
		case np.rp != nil:
			np.drain()
		case np.link.HasEnded():
			e.forget(pid)
		}
	}
}

// forget detaches the agent of a process that never could be read.
func (e *eventSampler) forget(pid int) {
	if np := e.of[pid]; np != nil && !np.over {
		np.leave()
		e.note("The events of process %d are lost: the process could not be read, or exited too soon.", pid)
	}
}

// drain takes the reports of the process's agent.
func (np *notifiedProcess) drain() {
	ended := np.link.HasEnded() // asked before the last records are read
	np.pace.Begin(np.e.r.now)
	err := np.take(np.pace.Spent)
	np.pace.End()
	if err != nil {
		np.e.note("The events of process %d end before the recording does: %v.", np.rp.p.Live.PID(), err)
		ended = true
	}
	np.lookAtHolders()
	if np.live != nil {
		np.live.p = np.rp.p
		np.live.tend(live.Monotonic())
	}
	if now := live.Monotonic(); now >= np.overdue {
		np.overdue = now + overdueEvery
		np.settle(now-exceptionPatience, unknown)
		np.forget(now-rethrowPatience, maxCaught)
	}
	if ended {
		np.leave()
	}
}

// overdueEvery is how often to look for exceptions that have waited for too long.
const overdueEvery = exceptionPatience / 20

// take handles the agent's reports, until enough returns true.
func (np *notifiedProcess) take(enough func() bool) error {
	var err error
	if len(np.queue) == 0 {
		np.queue, err = np.link.Records(np.rp.p)
	}
	if len(np.queue) == 0 {
		return err
	}
	e := np.e
	e.latest = e.r.now
	np.rp.p.Engine.Begin()
	np.rp.frames.begin()
	for i, r := range np.queue {
		if i%link.PaceEvery == 0 && enough() {
			np.queue, np.slowed = np.queue[i:], true
			return err
		}
		n := notification{bridge.Notification(np.rp.p, &e.o, np.link.Begun.AllocMeans, r).(*events.Notification), r}
		if np.live != nil && np.live.collections.notified(n.Notification) {
			np.live.stale = true
		}
		if n.At >= e.r.start && n.At <= e.until {
			np.notified(&n)
		} else if np.live != nil {
			np.live.refuse(r)
		}
	}
	np.queue = nil
	return err
}

// leave has the agent leave, and handles the agent's last reports.
func (np *notifiedProcess) leave() {
	died, err := np.link.Stop()
	np.end(died, err)
}

// end handles the rest after an agent was stopped. died and err are the results of Stop.
func (np *notifiedProcess) end(died bool, err error) {
	np.over = true
	if err != nil {
		np.e.note("The agent has not left process %d in time: %v. The agent is still loaded, but inactive.", np.pid,
			err)
	}
	fate := inFlight
	if np.rp != nil {
		all := func() bool { return false }
		for range 2 { // first the records here, and then the records in link
			_ = np.take(all) // an error was in the notes before
		}
		if died || np.rp.p.Live.Alive() != nil {
			fate = overtaken
			np.fatal()
		}
	}
	if np.live != nil && !np.live.over {
		np.live.ended = true
		np.live.finish()
	}
	np.settle(np.e.until, fate)
	np.forget(math.MaxInt64, 0)
	np.e.rethrows += np.unreported()
	for mode, s := range np.stats() {
		f := &np.e.counts[mode]
		f.lost, f.seen = f.lost+s.lost, f.seen+s.seen
	}
	np.link.Close()
	if np.slowed || np.link.Slowed() {
		np.e.note("Process %d reported more events than clrsnap reads at once, with at most %.0f %% of a CPU. "+
			"Some events were read later; events without room in the agent are lost.",
			np.pid, 100*(link.PumpShare+readShare))
	}
}

// finish takes the last notifications. ctx is the context of the recording, which has ended after an
// interrupt.
func (e *eventSampler) finish(ctx context.Context) {
	e.until = e.r.now
	e.lastLook(ctx)
	e.stop()
}

// stop detaches the agents, and takes their last reports.
func (e *eventSampler) stop() {
	type stopped struct {
		np   *notifiedProcess
		died bool
		err  error
	}
	left := make(chan stopped)
	n := 0
	for _, np := range e.of {
		if np.over {
			continue
		}
		n++
		after := np.link.Counts()
		np.after = &after
		go func() {
			died, err := np.link.Stop()
			left <- stopped{np, died, err}
		}()
	}
	for range n {
		s := <-left
		s.np.end(s.died, s.err)
	}
}

func (e *eventSampler) note(format string, args ...any) {
	e.r.notes = append(e.r.notes, fmt.Sprintf(format, args...))
}

// notified handles one notification.
func (np *notifiedProcess) notified(n *notification) {
	switch n.Event {
	case events.ObjectAllocated:
		np.allocated(n)
	case events.ExceptionThrown, events.ExceptionRethrown:
		np.throws(n)
	case events.ExceptionCatcherEnter:
		np.catches(n)
	case events.LockContended:
		np.contended(n)
	case events.ThreadWaited:
		np.waited(n)
	case events.ThreadStarting:
		np.add(n, profile.ThreadStart, 1, 1, np.starting(n))
	case events.ThreadCreated:
		np.e.lives.created++
		np.born(n)
	case events.ThreadDestroyed:
		np.died(n)
	default:
		np.pauses.notified(np, n)
	}
}

// add adds a sample of a notification, with the leaf given as what. It returns nil if the thread is
// not wanted.
func (np *notifiedProcess) add(n *notification, mode profile.Mode, weight, events float64,
	what profile.Function) *profile.Sample {
	np.arrived[mode]++
	t := np.thread(n)
	if !t.chosen {
		return nil
	}
	whole := np.rp.frames.notified(n)
	return np.sample(n.At, t, mode, weight, events, what, np.rp.frames.complete, whole)
}

// allocated adds a sample of an allocation, and follows its object.
func (np *notifiedProcess) allocated(n *notification) {
	class := np.rp.frames.class(n.Class)
	s := np.add(n, profile.Alloc, n.Bytes, n.Objects, class)
	switch {
	case np.live == nil:
	case s == nil:
		np.live.refuse(n.record)
	default:
		np.live.allocated(n, s, class, np.e.r.b.Stack(np.rp.frames.complete))
	}
}

// sample adds a sample with a known stack.
func (np *notifiedProcess) sample(at time.Duration, t *recordedThread, mode profile.Mode, weight, events float64,
	what profile.Function, stack []int32, whole bool) *profile.Sample {
	e := np.e
	b := e.r.b
	e.stack = append(e.stack[:0], b.Location(profile.Location{Function: b.Function(what)}))
	e.stack = append(e.stack, stack...)
	state := profile.Running
	if mode.OfWaits() {
		state = profile.Waiting
	}
	s := profile.Sample{
		At: max(at-e.r.start, 0), Weight: rounded(weight), Events: rounded(events), Thread: t.sampled(),
		Node: b.Stack(e.stack), Mode: mode, State: state, Incomplete: !whole,
	}
	b.Add(s)
	f := &e.counts[mode]
	f.samples++
	if !whole {
		f.broken++
	}
	return &s
}

// rounded is the amount for a sample. A hostile process can report any amount: the largest is two
// years, or many times the memory of a machine.
func rounded(amount float64) int64 { return int64(min(amount+0.5, 1<<56)) }

// thread is the thread of a notification.
func (np *notifiedProcess) thread(n *notification) *recordedThread {
	return np.rp.thread(np.rp.hostThread(n.NSThreadID), "")
}

// born records when a thread was created, unless too many threads are said to be alive: a hostile
// program can report any number.
func (np *notifiedProcess) born(n *notification) {
	if _, ok := np.births[n.Other]; !ok && len(np.births) >= maxLives {
		np.e.lives.unknown++
		return
	}
	np.births[n.Other] = n.At
}

// died records how long a thread has lived.
func (np *notifiedProcess) died(n *notification) {
	l := &np.e.lives
	l.ended++
	if born, ok := np.births[n.Other]; ok {
		delete(np.births, n.Other)
		if len(l.known) < maxLives {
			l.known = append(l.known, n.At-born)
		}
	}
}

// maxLives bounds the lifetimes in memory, and the births of each process.
const maxLives = 1 << 16

// stats are the statistics of the requested modes.
func (e *eventSampler) stats() []profile.ModeStats {
	var out []profile.ModeStats
	for _, mode := range modesOf(e.o.Monitor) {
		f := e.countsOf(mode)
		m := profile.ModeStats{
			Mode: mode, Samples: f.samples, Broken: f.broken, Lost: int(f.lost), Seen: f.seen, Every: e.every(mode),
		}
		if mode == profile.Exception {
			m.Rethrown = e.rethrows
			for _, np := range e.of {
				if !np.over {
					m.Rethrown += np.unreported()
				}
			}
		}
		out = append(out, m)
	}
	if e.r.o.Live {
		out = append(out, e.liveStats())
	}
	return out
}

// countsOf are the counts of a mode, including processes that still have an agent.
func (e *eventSampler) countsOf(mode profile.Mode) eventCounts {
	f := e.counts[mode]
	for _, np := range e.of {
		if !np.over {
			s := np.stats()[mode]
			f.lost, f.seen = f.lost+s.lost, f.seen+s.seen
		}
	}
	return f
}

// chooses reports whether agents leave out some events of a mode.
func (e *eventSampler) chooses(m profile.Mode) bool {
	return m == profile.Alloc || m == profile.Exception && e.o.ExceptionEvery > 1 ||
		m == profile.Contention && e.o.ContentionMin > 0 || m == profile.Waits && e.o.WaitMin > 0
}

// every is profile.ModeStats.Every of a mode: how the mode's events were chosen.
func (e *eventSampler) every(m profile.Mode) int64 {
	switch m {
	case profile.Alloc:
		if e.o.EveryObject {
			return e.o.AllocationBytes
		}
		return max(e.o.AllocationBytes, agent.SamplingMean)
	case profile.Exception:
		return e.o.ExceptionEvery
	case profile.Contention:
		return int64(e.o.ContentionMin)
	case profile.Waits:
		return int64(e.o.WaitMin)
	}
	return 0
}

// remarks are notes for the reader of the recording about its events.
func (e *eventSampler) remarks() []string {
	var out []string
	for _, rp := range e.r.all {
		if np := e.of[rp.p.Live.PID()]; np == nil && e.launcher != nil {
			out = append(out,
				fmt.Sprintf("Process %d reports no events: the runtime has not loaded the agent.", rp.p.Live.PID()))
		}
	}
	if e.has(profile.ThreadStart) && e.lives.created > 0 {
		s := fmt.Sprintf("%s began and %d ended", counted(e.lives.created, "thread", "threads"), e.lives.ended)
		if n := e.lives.created - int(e.countsOf(profile.ThreadStart).seen); n > 0 {
			s += fmt.Sprintf(". Managed code did not start %d of them: they are threads of the runtime, or native "+
				"threads that have called managed code", n)
		}
		if k := e.lives.known; len(k) > 0 {
			slices.Sort(k)
			s += fmt.Sprintf(". Threads that began and ended in the recording lived for %v (median)",
				k[len(k)/2].Round(time.Microsecond))
		}
		if e.lives.unknown > 0 {
			s += fmt.Sprintf(". How long %d of them lived was not recorded, because more than %d were alive",
				e.lives.unknown, maxLives)
		}
		out = append(out, s+".")
	}
	if want := e.o.AllocationBytes; e.has(profile.Alloc) && want < e.every(profile.Alloc) {
		out = append(out, fmt.Sprintf("An object was recorded for every %s of allocations, not for every %s: "+
			"the runtime itself samples no more often. A program that clrsnap starts can report every object "+
			"(--every-object).", bytesText(e.every(profile.Alloc)), bytesText(want)))
	}
	if e.r.o.Live {
		out = append(out, e.liveRemarks()...)
	}
	return out
}

func bytesText(n int64) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return counted(int(n), "byte", "bytes")
}

// counted returns a number of things in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (e *eventSampler) has(m profile.Mode) bool { return slices.Contains(modesOf(e.o.Monitor), m) }

// notification is a notification of the runtime, with the agent's record of it.
type notification struct {
	*events.Notification
	record *agent.Record
}

// linkStats are the statistics of one mode.
type linkStats struct {
	seen, lost int64
}

// eventsOf has the events behind the samples of each mode. The first event is counted as seen.
var eventsOf = map[profile.Mode][]events.Event{
	profile.Alloc:       {events.ObjectAllocated},
	profile.Exception:   {events.ExceptionThrown, events.ExceptionRethrown, events.ExceptionCatcherEnter},
	profile.Contention:  {events.LockContended},
	profile.Waits:       {events.ThreadWaited},
	profile.ThreadStart: {events.ThreadStarting},
	profile.GC: {
		events.RuntimeResumeFinished, events.RuntimeSuspendStarted, events.GarbageCollectionTriggered,
		events.GarbageCollectionStarted,
	},
}

// agentCounts are the counters of an agent.
type agentCounts = [agent.EventTypes]agent.Counts

// stats are the statistics of the event modes, for the time of the recording. The agent was there
// before, and stays until it has left.
func (np *notifiedProcess) stats() map[profile.Mode]linkStats {
	out := map[profile.Mode]linkStats{}
	now := np.after
	if now == nil {
		all := np.link.Counts()
		now = &all
	}
	for mode, of := range eventsOf {
		s := linkStats{seen: np.arrived[mode]}
		for _, e := range of {
			s.lost += grown(now[e].Dropped, np.before[e].Dropped)
		}
		first := of[0]
		switch {
		case np.rp == nil: // nothing could be read
			s.seen = grown(now[first].Seen, np.before[first].Seen)
		default:
			s.seen += grown(now[first].Dropped, np.before[first].Dropped)
			if np.e.chooses(mode) {
				s.seen += grown(leftOut(&now[first]), leftOut(&np.before[first]))
			}
		}
		out[mode] = s
	}
	return out
}

// unreported is how many exceptions were thrown again without a record.
func (np *notifiedProcess) unreported() int64 {
	now := np.after
	if now == nil {
		all := np.link.Counts()
		now = &all
	}
	of := events.ExceptionRethrown
	return grown(now[of].Seen-now[of].Published, np.before[of].Seen-np.before[of].Published)
}

// leftOut is how many events an agent has not chosen.
func leftOut(c *agent.Counts) uint64 { return uint64(grown(c.Seen, c.Published+c.Dropped)) }

// grown is how much a counter has grown. Counters can be forged.
func grown(now, before uint64) int64 {
	const most = 1 << 48
	return int64(min(now-min(now, before), most))
}
