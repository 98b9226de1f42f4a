package record

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"clrsnap/internal/pace"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// wallSampler gives every thread its turn, Rate times a second, whatever the thread does. A round ends
// early when the round has used more CPU time than Options.MaxCPU allows, or has lasted longer than a
// period: the next round goes on there. A sample stands for the time since its thread's last sample,
// so fewer samples make the result coarser, not wrong.
type wallSampler struct {
	stack  []int32            // of the sample being added
	looked session.Suspension // the latest look
	r      *recorder
	period time.Duration
	next   time.Duration // when the next round is due
	base   time.Duration // next without the jitter
	pace   pace.Pace
	early  int // turns from one look at a thread to the next, after firstLooks,
	usual  int // and after earlyLooks
	turns  []*recordedThread
	turn   int
	dealt  bool // turns is up to date
	whole  bool // the last round had time for all threads

	closing bool // no more CPU samples will come

	stats  profile.ModeStats
	due    float64 // turns that were due so far
	sure   int     // turns of threads that have provably not run since their last turn
	last   time.Duration
	probe  ration // stops of threads that are ready to run
	buf    []byte
	pauses []time.Duration
}

// wallThread is the memory of wall-clock sampling for a thread.
type wallThread struct {
	untold int           // how often in a row the class of the thread's lock was not certain
	last   time.Duration // when the thread was sampled
	at     wallNode      // where a look found the thread last, and
	wait   waitPlace     // the stack of the thread if it waited there
	valid  bool          // the thread may still be there
	since  time.Duration // when a look first found the thread there; short runs in between are ignored

	looked, used time.Duration // when the thread was captured, and how long it had run or been ready to run by then

	owed  time.Duration // time that the thread ran, and that waits for a CPU sample
	turns int32         // turns of owed

	had, queued time.Duration // how long the thread had run on a CPU, and waited for a CPU, when owed was last 0

	due   time.Duration // when to look at the thread again; 0: at every turn
	busy  int           // looks in a row that found the thread running
	looks int           // up to earlyLooks
	ran   time.Duration // time that the thread ran between looks, without a sample yet; less than a turn

	yield         waitPlace        // where the thread was stopped as it gave up its CPU
	sched         procfs.Schedstat // the scheduler's counts at the last call of givesUpOften
	probe, probes time.Duration    // when the thread may be stopped for its stack, and how long until the next time

	cpu      wallNode // the stack of the latest CPU sample
	wasOnCPU bool     // the thread has had a CPU sample
}

// wallNode is a stack that was sampled.
type wallNode struct {
	node       int32
	incomplete bool
}

func newWallSampler(r *recorder) *wallSampler {
	w := &wallSampler{r: r, period: time.Duration(float64(time.Second) / r.o.Rate)}
	w.base, w.last = r.start, r.start
	w.stats = profile.ModeStats{Mode: profile.Wall, Rate: r.o.Rate}
	w.pace = pace.Pace{Share: min(r.o.MaxCPU, float64(runtime.NumCPU())), Used: r.cpuOfOurs, Clock: live.Monotonic}
	w.early, w.usual = 1, 1
	if r.cpu != nil {
		w.early, w.usual = min(mostEarly, int(w.turnsOf(earlyRest))), min(mostUsual, int(w.turnsOf(usualRest)))
	}
	return w
}

// step performs a round if a round is due, and returns when the next round is due.
func (w *wallSampler) step() time.Duration {
	if w.r.now < w.next {
		return w.next
	}
	late := w.next > 0 && w.r.now > w.next+w.period/2
	turns := w.round(late)
	w.base += time.Duration(turns) * w.period
	if now := live.Monotonic(); w.base < now {
		w.base = now // missed rounds are not made up for: the samples stand for more time
	}
	// Programs do things at regular times: jitter keeps us from running in step with them.
	w.next = w.base + time.Duration(rand.Int64N(int64(w.period)/2+1))
	return w.next
}

// joins reports whether another wake should join the round that is due now. The other wake is due at a
// given time, which comes before the next round.
func (w *wallSampler) joins(other time.Duration) bool {
	return w.r.now >= w.next && other < w.r.now+time.Duration(w.usual)*w.period
}

// round gives the threads their turns, and returns in how many periods the next round is due.
func (w *wallSampler) round(late bool) (turns int) {
	if !w.dealt {
		w.deal()
	}
	w.due += float64(len(w.turns)) * float64(w.r.now-w.last) / float64(w.period)
	w.last = w.r.now
	turns = w.usual
	if len(w.turns) == 0 {
		return turns
	}
	w.pace.Begin(w.r.now)
	defer w.pace.End()
	if w.pace.Spent() {
		return 1
	}
	end, looks := w.r.now+w.period, 0
	if w.whole {
		w.turn = rand.IntN(len(w.turns)) // so that no thread always comes first
	}
	w.whole = false
	for range w.turns {
		t := w.turns[w.turn%len(w.turns)]
		w.turn = (w.turn + 1) % len(w.turns)
		if t.ended {
			continue
		}
		if t.wall.due <= w.r.now {
			w.sample(t, late)
			// The time is checked after each look, because a thread that waits for a CPU takes long to stop.
			// Reading our CPU time costs as much as a look at a blocked thread: every fourth time.
			if looks++; live.Monotonic() > end || looks%4 == 0 && w.pace.Spent() {
				return 1
			}
		}
		if !w.leftAlone(&t.wall) {
			turns = min(turns, w.rests(&t.wall))
		}
	}
	w.whole = true
	return turns
}

// lastRound is the longest that finish may delay the end of a recording.
const lastRound = 250 * time.Millisecond

// finish gives a last turn to threads whose last turn was long ago, so that samples stand for the time
// since. It takes about lastRound at most.
func (w *wallSampler) finish() {
	w.closing = true
	w.deal()
	for _, t := range w.turns {
		if live.Monotonic() > w.r.now+lastRound {
			return
		}
		if t.of.ended || t.ended {
			continue
		}
		if w.r.now-t.wall.last > 2*w.period || t.wall.owed > 0 && !t.wall.wasOnCPU {
			w.sample(t, true)
		}
		w.payLast(t)
	}
}

// deal collects the threads to sample. The threads with the oldest samples come first.
func (w *wallSampler) deal() {
	w.dealt = true
	w.turns = w.turns[:0]
	for _, rp := range w.r.all {
		for _, t := range rp.threads {
			if t.chosen {
				w.turns = append(w.turns, t)
			}
		}
	}
	slices.SortFunc(w.turns, func(a, b *recordedThread) int { return cmp.Compare(a.wall.last, b.wall.last) })
	w.turn = 0
}

// sample takes the sample of one thread.
func (w *wallSampler) sample(t *recordedThread, late bool) {
	wt := &t.wall
	if late {
		w.stats.Late++
	}
	due := wt.due
	wt.due = 0
	wt.looks = min(wt.looks+1, earlyLooks)
	if wt.valid {
		still, ran := t.of.p.Live.StillBlocked(t.info.OSThreadID)
		if still {
			w.stays(t)
			return
		}
		if alone := live.Monotonic() - wt.last; alone >= w.firstRest() {
			w.woke(t, min(ran, alone), due > 0)
			return
		}
	}
	state, err := w.look(t)
	now := live.Monotonic()
	turns := int32(1)
	if due > 0 {
		turns = w.turnsOf(now - wt.last)
	}
	switch {
	case errors.Is(err, errDeferred):
		w.owe(wt, now-wt.last, turns)
		w.letRun(wt, now)
	case errors.Is(err, session.ErrThreadEnded):
		return
	case err != nil:
		w.stats.Lost++
		return
	default:
		w.spend(t, state, now, now-wt.last, turns, wt.at)
		wt.busy = 0
		w.rest(wt, now)
		if proof := w.looked.Capture.Proof; wt.valid && proof != "" {
			times := procfs.ParseSchedstat([]byte(proof))
			w.payIdle(t, times.Running, times.Ready)
		}
	}
	wt.last = now
}

// spend adds a sample of a thread that spent the time d, one turn or several, at a stack until at.
func (w *wallSampler) spend(t *recordedThread, state profile.State, at, d time.Duration, turns int32, n wallNode) {
	if d > 0 {
		w.add(t, profile.Sample{
			At: at, Weight: int64(d), Count: turns, Node: n.node, State: state, Incomplete: n.incomplete,
		})
	}
}

// turnsOf is how many turns a time comprises, at least one.
func (w *wallSampler) turnsOf(d time.Duration) int32 { return max(1, int32((d+w.period/2)/w.period)) }

// A thread is looked at every few turns only after firstLooks, and more seldom still after earlyLooks.
// Each look takes a CPU from the target, and the kernel's samples show where threads run. A look
// stands for the time since the last look, so the result gets coarser, not wrong. If Rate is low, or
// there are no CPU samples, threads are looked at every turn.
const (
	firstLooks = 30
	earlyRest  = 30 * time.Millisecond
	mostEarly  = 3 // turns
	earlyLooks = 100
	usualRest  = 100 * time.Millisecond
	mostUsual  = 10 // turns
)

// rests is how many turns it is from one look at a thread to the next.
func (w *wallSampler) rests(wt *wallThread) int {
	switch {
	case wt.looks < firstLooks:
		return 1
	case wt.looks < earlyLooks:
		return w.early
	}
	return w.usual
}

// rest decides when to look again at a thread without a reason for a longer wait.
func (w *wallSampler) rest(wt *wallThread, now time.Duration) {
	if turns := w.rests(wt); turns > 1 {
		// Rounds come up to half a period early or late.
		wt.due = now + time.Duration(turns)*w.period - w.period*3/4
	}
}

// How long a thread that stays blocked is left alone: a part of the time that it was found blocked at
// that place so far, because the looks miss whatever the thread does in between.
const (
	restPart   = 4                    // the part is 1/restPart
	leastRest  = 4                    // periods: the shortest rest worth while, if longer than the usual rest
	mostRest   = time.Second          // the longest rest,
	restOfEach = time.Millisecond / 2 // and more for each thread, which bounds the looks a second at all of them
)

// firstRest is the shortest time that a thread is left alone because it stays blocked.
func (w *wallSampler) firstRest() time.Duration {
	return time.Duration(max(leastRest, w.usual+1)) * w.period
}

// stays adds the sample of a thread that has not run since the last look. However long ago that look
// was, the thread was at the same place all the time, so the next look may wait.
func (w *wallSampler) stays(t *recordedThread) {
	wt, now := &t.wall, live.Monotonic()
	turns := w.turnsOf(now - wt.last)
	w.spend(t, profile.Waiting, now, now-wt.last, turns, wt.at)
	w.sure += int(turns)
	wt.last = now
	w.rest(wt, now)
	w.leaveAlone(wt)
}

// leftAlone reports whether the next look at a thread may wait for longer than usual.
func (w *wallSampler) leftAlone(wt *wallThread) bool { return wt.due-wt.last >= w.firstRest() }

// hasRun ends the long rest of a thread because a CPU sample shows that the thread has run.
func (w *wallSampler) hasRun(t *recordedThread) {
	if wt := &t.wall; wt.valid && w.leftAlone(wt) {
		wt.due = 0
	}
}

// leaveAlone decides when to look again at a thread that was found blocked.
func (w *wallSampler) leaveAlone(wt *wallThread) {
	most := mostRest + time.Duration(len(w.turns))*restOfEach
	if rest := min((wt.last-wt.since)/restPart, most); rest > w.firstRest() {
		// Jitter: threads with rests of the same length are looked at at different times.
		wt.due = wt.last + rest - time.Duration(rand.Int64N(int64(rest)/4))
	}
}

// How long a thread that runs is left alone.
const (
	busyTurns = 3 // looks in a row that found the thread running
	mostTurns = 8 // the longest rest, in turns
)

// letRun decides when to look again at a thread that runs. Its CPU samples show where the thread runs;
// looks only show for how much of the time.
func (w *wallSampler) letRun(wt *wallThread, now time.Duration) {
	w.rest(wt, now)
	if wt.busy++; wt.busy > busyTurns {
		rest := time.Duration(min(wt.busy-busyTurns, mostTurns)) * w.period
		wt.due = max(wt.due, now+rest-time.Duration(rand.Int64N(int64(rest)/4)))
	}
}

// woke adds the samples of a thread that was left alone and has run meanwhile. ran is how long the
// thread ran, by the kernel's count; the thread waited for the rest of the time. The rest counts for
// the place of the thread now. That is right on average if the look was planned, because the time of a
// planned look does not depend on the thread. After a look that was not planned, half of the rest
// counts for the place before.
func (w *wallSampler) woke(t *recordedThread, ran time.Duration, planned bool) {
	wt := &t.wall
	before := wt.at
	state, err := w.look(t)
	if errors.Is(err, session.ErrThreadEnded) {
		return
	}
	now, after, waits := live.Monotonic(), before, err == nil && state == profile.Waiting
	if waits {
		after, wt.busy = wt.at, 0
	}
	waited := max(0, now-wt.last-ran)
	if after == before || planned {
		w.spend(t, profile.Waiting, now, waited, w.turnsOf(waited), after)
	} else {
		w.spend(t, profile.Waiting, now-waited/2, waited/2, w.turnsOf(waited/2), before)
		w.spend(t, profile.Waiting, now, waited-waited/2, w.turnsOf(waited/2), after)
	}
	wt.last = now
	if w.rest(wt, now); waits && after == before {
		w.leaveAlone(wt)
	}
	if wt.ran += ran; wt.ran < w.period && !errors.Is(err, errDeferred) {
		return
	}
	if w.owe(wt, wt.ran, w.turnsOf(wt.ran)); !w.mayDefer(wt) && err == nil {
		w.payAs(t, wt.at)
	}
	wt.ran = 0
}

// owe leaves time of a running thread, one turn or several, to its next CPU sample.
func (w *wallSampler) owe(wt *wallThread, d time.Duration, turns int32) {
	wt.owed += d
	wt.turns += turns
}

// payIdle adds the sample for the time owed to a thread that is blocked now, if the thread was mostly
// ready to run and hardly ran. The thread had been woken, and waited for a CPU at its present place or
// at the place before. No CPU sample would show the wait. running and ready are how long the thread
// has run on a CPU so far, and waited for a CPU, by the kernel's count.
func (w *wallSampler) payIdle(t *recordedThread, running, ready time.Duration) {
	wt := &t.wall
	const mostly = 3 // times as long as the thread ran
	if wt.owed > 0 && wt.had > 0 && ready-wt.queued > mostly*(running-wt.had) {
		w.payAs(t, wt.at)
	}
	if wt.owed == 0 {
		wt.had, wt.queued = running, ready
	}
}

// add adds a sample whose At is a time of CLOCK_MONOTONIC.
func (w *wallSampler) add(t *recordedThread, s profile.Sample) {
	s.At, s.Mode, s.Thread = s.At-w.r.start, profile.Wall, t.sampled()
	w.r.b.Add(s)
	w.stats.Samples += int(s.Count)
	if s.Incomplete {
		w.stats.Broken += int(s.Count)
	}
}

// errDeferred: the thread runs, and will have a CPU sample.
var errDeferred = errors.New("the thread's next CPU sample stands in for this one")

// mayDefer reports whether a running thread need not be stopped, because its next CPU sample can be
// used. CPU samples come at equal amounts of the thread's CPU time, so the next CPU sample is as good
// as a sample of this moment. It is even better: a stop finds a thread on a CPU only where the thread
// next leaves the kernel, so system calls look too long. A thread without a CPU sample for a long time
// uses too little of a CPU, and is stopped.
func (w *wallSampler) mayDefer(wt *wallThread) bool {
	const patience = time.Second
	if w.r.cpu == nil || w.r.cpu.events.KernelExcluded() {
		return false
	}
	return wt.wasOnCPU || !w.closing && wt.owed < max(patience, 4*w.period)
}

// How often threads that are ready to run are stopped to see where they are.
const (
	probeEvery  = 100 * time.Millisecond // between two stops of any thread, on average
	probesSaved = 16                     // stops that may follow each other at once
	firstProbes = 50 * time.Millisecond  // between two stops of one thread, at first
	mostProbes  = 10 * time.Second       // and at most
)

// mayProbe reports whether to stop a thread that is ready to run, to see whether the thread is giving
// up its CPU. A thread that gives up its CPU again and again, as .NET's thread pool does before it
// waits, is ready to run most of the time, and has hardly any CPU samples. Once the thread has been
// stopped there, its stack is recognised. Other threads that wait for a CPU are left to their CPU
// samples.
func (w *wallSampler) mayProbe(t *recordedThread, now time.Duration) bool {
	wt := &t.wall
	if !w.probe.left(now, probeEvery, probesSaved) || now < wt.probe || w.closing || !w.givesUpOften(t) {
		return false
	}
	wt.probes = min(max(2*wt.probes, firstProbes), mostProbes)
	w.probe.take(probeEvery)
	wt.probe = now + wt.probes
	return true
}

// shortRun is the longest run at once of a thread that gives up its CPU by itself. The kernel lets a
// computing thread run for longer, even where many threads compute.
const shortRun = time.Millisecond

// givesUpOften reports whether a thread was ready to run without a CPU for most of the time since the
// last call, and never ran for long. A stop interrupts a thread in the middle of its work. So a stop
// is not worth while for the threads of a web server, which wait for a CPU now and then, nor for
// threads that compute.
func (w *wallSampler) givesUpOften(t *recordedThread) bool {
	wt := &t.wall
	now, ok := t.of.p.Live.Times(t.info.OSThreadID)
	running, ready, runs := now.Running-wt.sched.Running, now.Ready-wt.sched.Ready, now.Runs-wt.sched.Runs
	wt.sched = now
	return ok && ready > running && running < time.Duration(min(runs, 1<<32))*shortRun
}

// settle makes a wall sample from a CPU sample, for the time owed to its thread. s.At is relative to
// the start of the recording.
func (w *wallSampler) settle(t *recordedThread, s profile.Sample) {
	wt := &t.wall
	wt.cpu, wt.wasOnCPU = wallNode{s.Node, s.Incomplete}, true
	w.pay(t, s)
}

// pay adds sample s for the time owed to a thread.
func (w *wallSampler) pay(t *recordedThread, s profile.Sample) {
	wt := &t.wall
	if wt.owed <= 0 {
		return
	}
	s.At, s.Weight, s.Count = s.At+w.r.start, int64(wt.owed), max(1, wt.turns)
	wt.owed, wt.turns = 0, 0
	w.add(t, s)
}

// ended adds the last samples of a thread that ended at about now. Running time of a thread that never
// had a CPU sample is lost.
func (w *wallSampler) ended(t *recordedThread, now time.Duration) {
	wt := &t.wall
	if wt.valid && wt.due > wt.last {
		w.spend(t, profile.Waiting, now, now-wt.last, w.turnsOf(now-wt.last), wt.at)
	}
	w.payLast(t)
	w.stats.Lost += int(wt.turns)
}

// payLast adds a sample for the time owed to a thread without further CPU samples. The stack is the
// stack of the thread's latest CPU sample, or else the stack of the last look.
func (w *wallSampler) payLast(t *recordedThread) {
	switch wt := &t.wall; {
	case wt.wasOnCPU:
		w.payAs(t, wt.cpu)
	case wt.at.node != 0:
		w.payAs(t, wt.at)
	}
}

// payAs adds a sample with a given stack for the time owed to a thread.
func (w *wallSampler) payAs(t *recordedThread, n wallNode) {
	w.pay(t, profile.Sample{
		At: t.wall.last - w.r.start, Node: n.node, Incomplete: n.incomplete, State: profile.Running,
	})
}

// look captures and walks a thread, and remembers the stack.
func (w *wallSampler) look(t *recordedThread) (profile.State, error) {
	rp, wt := t.of, &t.wall
	rp.frames.begin()
	s := &w.looked
	*s = session.Suspension{
		Process: rp.p, Thread: t.info, Capture: &rp.p.Capture, Also: rp.p.AlsoBlocking(&t.info), Stops: &w.pauses,
	}
	same := false
	s.Unchanged = func() bool {
		same = wt.wait.isOf(s)
		return same
	}
	begin, before := live.Monotonic(), wt.at
	wt.valid = false
	walked := func() walk.Result {
		if s.FoundBlocked && !s.Capture.Stopped && s.Unchanged() {
			return walk.Result{Complete: true}
		}
		same = false
		return rp.frames.walk(s, begin)
	}
	r, ok := s.WalkBlocked(walked)
	var err error
	if !ok {
		if state, known := w.recognise(t, s); known {
			return state, nil
		}
		mayDefer := !s.FoundBlocked && w.mayDefer(wt)
		if mayDefer && !w.mayProbe(t, begin) {
			return profile.Running, errDeferred
		}
		s.SlowPoll = mayDefer
		if r, err = w.captureRunning(s, len(rp.threads), walked); mayDefer && err == nil && !givesUp(s) {
			err = errDeferred
		}
	}
	w.trim()
	state := profile.Running
	if s.FoundBlocked {
		state = profile.Waiting
	}
	if err != nil {
		return state, err
	}
	t.info = s.Thread
	if wt.at = wt.wait.node; !same {
		if w.r.o.watch != nil {
			w.r.o.watch(rp.frames, s, r.Complete, begin)
		}
		if r.Complete {
			rp.frames.await(s.Rests)
		}
		w.stack = rp.frames.appendStack(w.stack[:0])
		blocked, untold := w.blocked(s, r.Complete)
		wt.at = wallNode{w.r.b.Stack(w.stack), !r.Complete}
		if s.FoundBlocked {
			w.remember(&wt.wait, s, rp.frames, wt.at)
			if wt.wait.alsoHolds(blocked); untold && wt.untold < mostUntold {
				wt.untold++
				wt.wait.returns = wt.wait.returns[:0] // the thread is looked at again
			} else if !untold {
				wt.untold = 0
			}
		} else if givesUp(s) {
			w.remember(&wt.yield, s, rp.frames, wt.at)
		}
	}
	w.found(wt, s, before)
	if s.FoundBlocked && wt.untold > 0 && wt.untold < mostUntold {
		wt.valid = false // the thread is looked at again even if it does not run
	}
	return state, nil
}

// mostLooked bounds the threads of a program whose threads are looked at one by one (LookAndWalk): each look reads all
// threads.
const mostLooked = 512

// captureRunning captures and walks a thread without a stop if the kernel tells the registers. A thread that has a CPU
// just now will have a CPU sample; without CPU samples the thread is stopped.
func (w *wallSampler) captureRunning(
	s *session.Suspension, threads int, walked func() walk.Result,
) (walk.Result, error) {
	if threads <= mostLooked {
		r, err := s.LookAndWalk(walked)
		switch {
		case err == nil, errors.Is(err, session.ErrThreadEnded):
			return r, err
		case errors.Is(err, live.ErrOnCPU) && w.r.cpu != nil && !w.r.cpu.events.KernelExcluded() && !w.closing:
			return r, errDeferred
		}
	}
	return s.StopAndWalk(walked)
}

// blocked notes in w.stack that a thread is blocked on a monitor: as a frame that the method's callee
// seems to have called. Monitor.Enter need not be a frame, and only the runtime knows the class of the
// object. blocked returns where the thread's own stack holds the lock. untold: the class was not
// certain this time.
func (w *wallSampler) blocked(s *session.Suspension, complete bool) (at returnSlot, untold bool) {
	if !s.FoundBlocked || !complete {
		return at, false
	}
	b, ok := s.Blocked()
	leaf := slices.IndexFunc(w.stack, func(l int32) bool {
		_, f := w.r.b.At(l)
		return f.Kind == snapshot.Managed
	})
	if b.Unsure {
		return at, leaf >= 1 && w.mayBeInlined()
	}
	if !ok && leaf >= 1 && w.r.waitedIn(w.stack, true) == snapshot.WaitRuntime {
		if b.Kind = s.Waits(); b.Kind != "" { // the whole wait was inlined
			l := profile.Location{Function: w.r.b.Function(waitFrame(s, &b))}
			w.stack = slices.Insert(w.stack, leaf-1, w.r.b.Location(l))
		}
	}
	if !ok || leaf < 1 {
		return at, false
	}
	if b.Kind != snapshot.MonitorEnter && !w.mayBeInlined() {
		return at, false // a primitive made of monitors
	}
	l := profile.Location{Function: w.r.b.Function(waitFrame(s, &b))}
	// What was inlined depends on the method's callee.
	w.stack = slices.Insert(w.stack, leaf-1, w.r.b.Location(l))
	untold = b.Type == "" && (b.Kind == snapshot.MonitorEnter || b.Kind == snapshot.MonitorWait)
	return returnSlot{b.At, b.Lock}, untold
}

// waitFrame is the function of the frame that says what a thread is blocked on.
func waitFrame(s *session.Suspension, b *session.Blocked) profile.Function {
	return profile.WaitingFor{Kind: b.Kind, Type: b.Type}.Frame(s.Process.Found.Module.Name)
}

// mayBeInlined reports whether the frames of w.stack may not say what a thread waits for.
func (w *wallSampler) mayBeInlined() bool {
	switch w.r.waitedIn(w.stack, true) {
	case snapshot.MonitorWait, snapshot.WaitRuntime, snapshot.HandleOne:
		return true
	}
	return false
}

// mostUntold is how often in a row a thread is looked at again to learn its lock or the lock's class.
const mostUntold = 16

// found updates since when a thread has been at its present place.
func (w *wallSampler) found(wt *wallThread, s *session.Suspension, before wallNode) {
	now, used := live.Monotonic(), time.Duration(0)
	if s.FoundBlocked {
		times := procfs.ParseSchedstat([]byte(s.Capture.Proof))
		used = times.Running + times.Ready
	}
	if !s.FoundBlocked || wt.at != before || used-wt.used > (now-wt.looked)/restPart {
		wt.since = now
	}
	wt.valid, wt.looked, wt.used = true, now, used
}

// maxPauses bounds wallSampler.pauses. When it is full, every second pause is dropped.
const maxPauses = 1 << 16

func (w *wallSampler) trim() {
	if len(w.pauses) < maxPauses {
		return
	}
	for i := range len(w.pauses) / 2 {
		w.pauses[i] = w.pauses[2*i]
	}
	w.pauses = w.pauses[:len(w.pauses)/2]
}

// modeStats are the statistics so far.
func (w *wallSampler) modeStats() profile.ModeStats {
	s := w.stats
	s.Pauses = snapshot.SumPauses(w.pauses)
	for _, rp := range w.r.all {
		s.Released += rp.p.Live.Released()
	}
	const asGood = 0.95
	if due, got := w.due-float64(w.sure), float64(s.Samples-w.sure); due > 0 && got+float64(s.Lost) < asGood*due {
		s.Got = s.Rate * got / due
	}
	return s
}
