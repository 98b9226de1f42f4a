package record

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"clrsnap/internal/pace"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// wallSampler gives every thread its turn, Rate times a second, whatever the
// thread does. If that takes more of a processor than it may, or longer than
// there is time, a round is not finished: the next one goes on there. A sample
// stands for the time since its thread's last one, so that fewer samples make the
// result coarser and not wrong.
type wallSampler struct {
	r      *recorder
	period time.Duration
	next   time.Duration // when the next round is due
	base   time.Duration // next without the jitter
	pace   pace.Pace
	usual  int // turns from one look at a thread to the next, if it has been looked at often
	turns  []*recordedThread
	turn   int
	dealt  bool // turns holds the threads that there are
	whole  bool // the last round had time for all of them

	closing bool // there will be no more CPU samples

	stats  profile.ModeStats
	due    float64 // turns that there should have been so far
	sure   int     // turns of threads that are known not to have run between
	last   time.Duration
	probe  time.Duration // up to when stops of threads that are ready to run have been used up
	buf    []byte
	pauses []time.Duration
}

// wallThread is what wall-clock sampling remembers of a thread.
type wallThread struct {
	last  time.Duration // when it was sampled
	at    wallNode      // where it was found last, and
	wait  waitPlace     // what its stack was like if it waited there
	valid bool          // it may be there still
	since time.Duration // when it was found there first, short times that it ran left aside

	looked, used time.Duration // when it was captured, and how long it had run or been ready by then

	owed  time.Duration // that the thread ran, for which a CPU sample has to come
	turns int32         // for which owed stands

	had, queued time.Duration // how long it had a processor, and waited for one, when nothing was owed to it

	due   time.Duration // when it is to be looked at again; 0: it has every turn
	busy  int           // looks in a row at which it ran
	looks int           // up to firstLooks
	ran   time.Duration // between looks, less than a turn: not accounted for yet

	yield          waitPlace     // where it was stopped as it gave up its processor
	running, ready time.Duration // that it has had a processor or waited for one, when it was last found running
	probe, probes  time.Duration // when it may be stopped to see where it is, and after how long again

	cpu      wallNode // of its latest CPU sample
	wasOnCPU bool     // there is one
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
	w.pace = pace.Pace{Share: min(r.o.MaxCPU, float64(runtime.NumCPU())), Used: r.cpuOfOurs}
	w.usual = 1
	if r.cpu != nil {
		w.usual = max(1, min(mostUsual, int(w.turnsOf(usualRest))))
	}
	return w
}

// step performs a round if one is due, and returns when the next one is.
func (w *wallSampler) step() time.Duration {
	if w.r.now < w.next {
		return w.next
	}
	late := w.next > 0 && w.r.now > w.next+w.period/2
	turns := w.usual
	if w.round(late) {
		turns = 1
	}
	w.base += time.Duration(turns) * w.period
	if now := live.Monotonic(); w.base < now {
		w.base = now // rounds that were missed are not made up for: the samples stand for more time
	}
	// Programs do things at regular times; we must not keep step with them.
	w.next = w.base + time.Duration(rand.Int64N(int64(w.period)/2+1))
	return w.next
}

// round gives the threads their turns, and reports whether any is to have the next one.
func (w *wallSampler) round(late bool) (again bool) {
	if !w.dealt {
		w.deal()
	}
	w.due += float64(len(w.turns)) * float64(w.r.now-w.last) / float64(w.period)
	w.last = w.r.now
	if len(w.turns) == 0 {
		return false
	}
	w.pace.Begin(w.r.now)
	defer w.pace.End()
	if w.pace.Spent() {
		return true
	}
	end, looks := w.r.now+w.period, 0
	if w.whole {
		w.turn = rand.IntN(len(w.turns)) // so that nobody always comes first
	}
	w.whole = false
	for range w.turns {
		t := w.turns[w.turn%len(w.turns)]
		w.turn = (w.turn + 1) % len(w.turns)
		if t.ended || t.wall.due > w.r.now {
			continue
		}
		w.sample(t, late)
		again = again || t.wall.due == 0
		// A thread that waits for a processor takes long to stop; to ask for our
		// CPU time takes as long as to look at a blocked thread.
		if looks++; live.Monotonic() > end || looks%4 == 0 && w.pace.Spent() {
			return true
		}
	}
	w.whole = true
	return again
}

// lastRound is how long the end of a recording may be put off.
const lastRound = 250 * time.Millisecond

// finish gives those a last turn whose last one was long ago, for the time since
// to be accounted for, as far as that does not take long.
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

// deal collects the threads that are sampled. Who has waited longest comes first.
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
	wt.looks = min(wt.looks+1, firstLooks)
	if wt.valid {
		still, ran := t.of.p.Live.StillBlocked(t.info.OSThreadID)
		if still {
			w.stays(t)
			return
		}
		if alone := live.Monotonic() - wt.last; alone >= firstRest*w.period {
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
		if proof := t.of.p.Capture.Proof; wt.valid && proof != "" {
			w.payIdle(t, proof.Running(), proof.Ready())
		}
	}
	wt.last = now
}

// spend adds a sample of a thread that spent some time at a stack until at, of one turn
// or of several.
func (w *wallSampler) spend(t *recordedThread, state profile.State, at, d time.Duration, turns int32, n wallNode) {
	if d > 0 {
		w.add(t, profile.Sample{At: at, Weight: int64(d), Count: turns, Node: n.node, State: state, Incomplete: n.incomplete})
	}
}

// turnsOf is how many turns a time comprises, one at least.
func (w *wallSampler) turnsOf(d time.Duration) int32 { return max(1, int32((d+w.period/2)/w.period)) }

// A thread that has been looked at for some turns is looked at every few turns only. Each
// look takes a processor from somebody, and the kernel's samples tell where threads run;
// what is found stands for the time since the last look, so that it is coarser and not
// wrong. Who is rarely looked at anyway, or is not sampled by the kernel, has every turn.
const (
	firstLooks = 30
	usualRest  = 30 * time.Millisecond
	mostUsual  = 3 // turns
)

// rest decides when a thread is looked at again of which nothing else is known.
func (w *wallSampler) rest(wt *wallThread, now time.Duration) {
	if wt.looks == firstLooks && w.usual > 1 {
		// Rounds come up to half a period early or late.
		wt.due = now + time.Duration(w.usual)*w.period - w.period*3/4
	}
}

// How long a thread that stays blocked is left alone: a part of the time that it was
// found blocked at that place so far, because what it does between two looks is not
// seen. Below some periods that is not worth while.
const (
	restPart   = 4
	firstRest  = 4 // periods
	mostRest   = time.Second
	restOfEach = time.Millisecond / 2 // more, for each thread that there is: together they are looked at as often
)

// stays accounts for a thread that has not run since it was looked at last. However
// long that was, there is no doubt where it was, so the next look may wait.
func (w *wallSampler) stays(t *recordedThread) {
	wt, now := &t.wall, live.Monotonic()
	turns := w.turnsOf(now - wt.last)
	w.spend(t, profile.Waiting, now, now-wt.last, turns, wt.at)
	w.sure += int(turns)
	wt.last = now
	w.rest(wt, now)
	w.leaveAlone(wt)
}

// hasRun has a thread looked at soon that was to be left alone for long, because it is
// not where it was.
func (w *wallSampler) hasRun(t *recordedThread) {
	if wt := &t.wall; wt.valid && wt.due-wt.last >= firstRest*w.period {
		wt.due = 0
	}
}

// leaveAlone decides when a thread that was found blocked is looked at again.
func (w *wallSampler) leaveAlone(wt *wallThread) {
	most := mostRest + time.Duration(len(w.turns))*restOfEach
	if rest := min((wt.last-wt.since)/restPart, most); rest > firstRest*w.period {
		// Threads that were left alone together are not to be looked at together.
		wt.due = wt.last + rest - time.Duration(rand.Int64N(int64(rest)/4))
	}
}

// How many turns a thread is left alone that was found running at several turns in a row.
const (
	busyTurns = 3
	mostTurns = 8
)

// letRun decides when a thread that runs is looked at again. Its CPU samples tell where
// it runs; looks tell only for how much of the time.
func (w *wallSampler) letRun(wt *wallThread, now time.Duration) {
	w.rest(wt, now)
	if wt.busy++; wt.busy > busyTurns {
		rest := time.Duration(min(wt.busy-busyTurns, mostTurns)) * w.period
		wt.due = max(wt.due, now+rest-time.Duration(rand.Int64N(int64(rest)/4)))
	}
}

// woke accounts for a thread that was left alone and has run meanwhile, for as long as
// the kernel says. The rest of the time it waited, and counts for where it is found now:
// that is right on average if the look was planned, at a time that has nothing to do with
// what the thread does. Else half of it counts for where it waited before.
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

// owe leaves time that a thread ran, a turn or several, to its next CPU sample.
func (w *wallSampler) owe(wt *wallThread, d time.Duration, turns int32) {
	wt.owed += d
	wt.turns += turns
}

// payIdle accounts for what is owed to a thread that is found blocked, if it was ready to
// run rather than that it ran: it had been woken, and waited for a processor where it is
// found now, or where it waited before. No CPU sample would tell. running and ready are
// for how long it had a processor so far, and waited for one, by the kernel's account.
func (w *wallSampler) payIdle(t *recordedThread, running, ready time.Duration) {
	wt := &t.wall
	const mostly = 3 // times as long
	if wt.owed > 0 && wt.had > 0 && ready-wt.queued > mostly*(running-wt.had) {
		w.payAs(t, wt.at)
	}
	if wt.owed == 0 {
		wt.had, wt.queued = running, ready
	}
}

// add adds a sample whose At is not yet relative to the start.
func (w *wallSampler) add(t *recordedThread, s profile.Sample) {
	s.At, s.Mode, s.Thread = s.At-w.r.start, profile.Wall, t.sampled()
	w.r.b.Add(s)
	w.stats.Samples += int(s.Count)
	if s.Incomplete {
		w.stats.Broken += int(s.Count)
	}
}

// errDeferred: the thread runs, and will have a CPU sample.
var errDeferred = errors.New("the next CPU sample is this one too")

// mayDefer reports whether a running thread need not be stopped, because CPU
// samples are taken as well. They come at equal amounts of the time that it runs,
// so the next one is as good a sample of where it runs as one of this moment:
// better, because a thread that has a processor stops where it next leaves the
// kernel, and system calls would look as if they took most of the time. A thread
// that never had one in a long time does not use enough of a processor for that.
func (w *wallSampler) mayDefer(wt *wallThread) bool {
	const patience = time.Second
	return w.r.cpu != nil && !w.r.cpu.events.KernelExcluded() && (wt.wasOnCPU || !w.closing && wt.owed < max(patience, 4*w.period))
}

// How long to wait until a thread that is ready to run is stopped to see where it is:
// between two stops on average, after some that may come at once; and between two of one
// thread, at first and at most.
const (
	probeEvery  = 100 * time.Millisecond
	probesSaved = 16
	firstProbes = 50 * time.Millisecond
	mostProbes  = 10 * time.Second
)

// mayProbe reports whether a thread is to be stopped because it may be ready to run
// without wanting to: one that gives up its processor again and again, which .NET's
// thread pool does before it waits, is ready most of the time, and has hardly any CPU
// samples. Once it has been stopped there, its stack is recognised. What other threads
// are doing that wait for a processor their CPU samples tell.
func (w *wallSampler) mayProbe(t *recordedThread, now time.Duration) bool {
	wt := &t.wall
	w.probe = max(w.probe, now-probesSaved*probeEvery)
	if now < w.probe+probeEvery || now < wt.probe || w.closing || !w.delayed(t) {
		return false
	}
	wt.probes = min(max(2*wt.probes, firstProbes), mostProbes)
	w.probe, wt.probe = w.probe+probeEvery, now+wt.probes
	return true
}

// delayed reports whether a thread that is ready to run often has no processor.
func (w *wallSampler) delayed(t *recordedThread) bool {
	wt := &t.wall
	running, ready, ok := t.of.p.Live.Times(t.info.OSThreadID)
	delayed := ok && ready-wt.ready > (running-wt.running)/10
	wt.running, wt.ready = running, ready
	return delayed
}

// settle makes a wall sample of a CPU sample for what is owed to its thread. At is
// relative to the start.
func (w *wallSampler) settle(t *recordedThread, s profile.Sample) {
	wt := &t.wall
	wt.cpu, wt.wasOnCPU = wallNode{s.Node, s.Incomplete}, true
	w.pay(t, s)
}

// pay accounts for what is owed to a thread.
func (w *wallSampler) pay(t *recordedThread, s profile.Sample) {
	wt := &t.wall
	if wt.owed <= 0 {
		return
	}
	s.At, s.Weight, s.Count = s.At+w.r.start, int64(wt.owed), max(1, wt.turns)
	wt.owed, wt.turns = 0, 0
	w.add(t, s)
}

// ended accounts for what is known of a thread's time until it ended, which was some
// time before now. What it ran without a CPU sample is lost.
func (w *wallSampler) ended(t *recordedThread, now time.Duration) {
	wt := &t.wall
	if wt.valid && wt.due > wt.last {
		w.spend(t, profile.Waiting, now, now-wt.last, w.turnsOf(now-wt.last), wt.at)
	}
	w.payLast(t)
	w.stats.Lost += int(wt.turns)
}

// payLast accounts for what is owed to a thread that no more CPU samples come of, by
// its latest one, or else by where it was found last.
func (w *wallSampler) payLast(t *recordedThread) {
	switch wt := &t.wall; {
	case wt.wasOnCPU:
		w.payAs(t, wt.cpu)
	case wt.at.node != 0:
		w.payAs(t, wt.at)
	}
}

// payAs accounts for what is owed to a thread by a stack.
func (w *wallSampler) payAs(t *recordedThread, n wallNode) {
	w.pay(t, profile.Sample{At: t.wall.last - w.r.start, Node: n.node, Incomplete: n.incomplete, State: profile.Running})
}

// look captures and walks a thread, and remembers its stack.
func (w *wallSampler) look(t *recordedThread) (profile.State, error) {
	rp, wt := t.of, &t.wall
	rp.frames.begin()
	s := session.Suspension{Process: rp.p, Thread: t.info, Capture: &rp.p.Capture}
	same := false
	s.Known = func() bool {
		same = wt.wait.isOf(&s)
		return same
	}
	begin, before := live.Monotonic(), wt.at
	wt.valid = false
	rp.p.Stops = &w.pauses
	defer func() { rp.p.Stops = nil }()
	walked := func() walk.Result {
		if s.Waits && !s.Capture.Stopped && s.Known() {
			return walk.Result{Complete: true}
		}
		same = false
		return rp.frames.walk(&s, live.Monotonic())
	}
	r, ok := s.Blocked(walked)
	var err error
	if !ok {
		if state, known := w.recognise(t, &s); known {
			return state, nil
		}
		mayDefer := !s.Waits && w.mayDefer(wt)
		if mayDefer && !w.mayProbe(t, begin) {
			return profile.Running, errDeferred
		}
		s.Patient = mayDefer
		if r, err = s.StopAndWalk(walked); mayDefer && err == nil && !givesUp(&s) {
			err = errDeferred
		}
	}
	w.trim()
	state := profile.Running
	if s.Waits {
		state = profile.Waiting
	}
	if err != nil {
		return state, err
	}
	t.info = s.Thread
	if wt.at = wt.wait.node; !same {
		if w.r.o.watch != nil {
			w.r.o.watch(rp.frames, &s, r.Complete, begin)
		}
		wt.at = wallNode{w.r.b.Stack(rp.frames.stack), !r.Complete}
		if s.Waits {
			w.remember(&wt.wait, &s, rp.frames, wt.at)
		} else if givesUp(&s) {
			w.remember(&wt.yield, &s, rp.frames, wt.at)
		}
	}
	w.found(wt, &s, before)
	return state, nil
}

// found remembers since when a thread is where it was found, or comes back to.
func (w *wallSampler) found(wt *wallThread, s *session.Suspension, before wallNode) {
	now, used := live.Monotonic(), time.Duration(0)
	if proof := s.Capture.Proof; s.Waits {
		used = proof.Running() + proof.Ready()
	}
	if !s.Waits || wt.at != before || used-wt.used > (now-wt.looked)/restPart {
		wt.since = now
	}
	wt.valid, wt.looked, wt.used = true, now, used
}

// maxPauses bounds what is remembered of pauses: of more, every second one is
// forgotten.
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
	s.Pauses = profile.SumPauses(w.pauses)
	for _, rp := range w.r.all {
		s.Released += rp.p.Live.Released()
	}
	const asGood = 0.95
	if due, got := w.due-float64(w.sure), float64(s.Samples-w.sure); due > 0 && got+float64(s.Lost) < asGood*due {
		s.Got = s.Rate * got / due
	}
	return s
}
