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

func (e *eventSampler) note(format string, args ...any) {
	e.r.notes = append(e.r.notes, fmt.Sprintf(format, args...))
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

func bytesText(n int64) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return counted(int(n), "byte", "bytes")
}

func (e *eventSampler) has(m profile.Mode) bool { return slices.Contains(modesOf(e.o.Monitor), m) }

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

// checkWaits says, if waits are wanted, that a process does not report them.
func (np *notifiedProcess) checkWaits() {
	if np.e.has(profile.Waits) && np.link.Begun.Events&agent.Waits == 0 {
		np.e.note("%s", noWaits(np.pid, np.link.Begun.RuntimeMajor))
	}
}

func noWaits(pid, major int) string {
	return fmt.Sprintf("Process %d runs .NET %d, and only .NET 9 and later report waits: "+
		"sample by the wall clock to see what the threads wait for.", pid, major)
}
