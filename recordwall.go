package clrsnap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"clrsnap/internal/arch"
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
	pace   pace
	turns  []*recordedThread
	turn   int
	dealt  bool // turns holds the threads that there are

	closing bool // there will be no more CPU samples

	stats  profile.ModeStats
	due    float64 // turns that there should have been so far
	last   time.Duration
	seed   maphash.Seed
	pauses []time.Duration
}

// wallThread is what wall-clock sampling remembers of a thread.
type wallThread struct {
	last       time.Duration // when it was sampled
	node       int32         // its stack then
	incomplete bool
	valid      bool   // node and what follows
	sum        uint64 // of the stack's bytes and the registers

	owed  time.Duration // that the thread ran, for which a CPU sample has to come
	turns int32         // for which owed stands

	running, ready time.Duration // that it has had a processor or waited for one, when it was last found running
	delayed        bool          // it waits for much of the time that it could run
}

func newWallSampler(r *recorder) *wallSampler {
	w := &wallSampler{r: r, period: time.Duration(float64(time.Second) / r.o.Rate), seed: maphash.MakeSeed()}
	w.base, w.last = r.start, r.start
	w.stats = profile.ModeStats{Mode: profile.Wall, Rate: r.o.Rate}
	w.pace = pace{share: min(r.o.MaxCPU, float64(runtime.NumCPU())), used: r.cpuOfOurs}
	return w
}

// step performs a round if one is due, and returns when the next one is.
func (w *wallSampler) step() time.Duration {
	if w.r.now < w.next {
		return w.next
	}
	late := w.next > 0 && w.r.now > w.next+w.period/2
	w.round(late)
	w.base += w.period
	if now := live.Monotonic(); w.base < now {
		w.base = now // rounds that were missed are not made up for: the samples stand for more time
	}
	// Programs do things at regular times; we must not keep step with them.
	w.next = w.base + time.Duration(rand.Int64N(int64(w.period)/2+1))
	return w.next
}

// round gives the threads their turns.
func (w *wallSampler) round(late bool) {
	if !w.dealt {
		w.deal()
	}
	w.due += float64(len(w.turns)) * float64(w.r.now-w.last) / float64(w.period)
	w.last = w.r.now
	if len(w.turns) == 0 {
		return
	}
	w.pace.begin(w.r.now)
	defer w.pace.end()
	if w.pace.spent() {
		return
	}
	end := w.r.now + w.period
	for n := 1; n <= len(w.turns); n++ {
		t := w.turns[w.turn%len(w.turns)]
		w.turn = (w.turn + 1) % len(w.turns)
		if !t.ended {
			w.sample(t, late)
		}
		// A thread that waits for a processor takes long to stop; to ask for our
		// CPU time takes as long as to look at a blocked thread.
		if live.Monotonic() > end || n%4 == 0 && w.pace.spent() {
			break
		}
	}
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
		if !t.of.ended && !t.ended && (t.wall.owed > 0 || w.r.now-t.wall.last > 2*w.period) {
			w.sample(t, true)
		}
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
	p, wt := t.of.p, &t.wall
	if late {
		w.stats.Late++
	}
	state := profile.Waiting
	if !wt.valid || !p.live.StillBlocked(t.info.OSThreadID) {
		var err error
		state, err = w.look(t)
		switch {
		case errors.Is(err, errDeferred):
			now := live.Monotonic()
			wt.owed, wt.turns, wt.last = wt.owed+now-wt.last, wt.turns+1, now
			return
		case errors.Is(err, errThreadEnded):
			return
		case err != nil:
			w.stats.Lost++
			return
		}
	}
	now := live.Monotonic()
	weight, count := now-wt.last, int32(1)
	if w.closing {
		weight, count = weight+wt.owed, count+wt.turns
	}
	w.add(t, profile.Sample{At: now, Weight: int64(weight), Count: count, Node: wt.node, State: state, Incomplete: wt.incomplete})
	wt.last = now
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
// that has had no sample for long is not one of those that use much time.
func (w *wallSampler) mayDefer(wt *wallThread) bool {
	const patience = time.Second
	return !w.closing && w.r.cpu != nil && !w.r.cpu.events.KernelExcluded() && wt.owed < max(patience, 4*w.period)
}

// delayed reports whether a thread that is ready to run often has no processor:
// then CPU samples, which are of the time that it has one, do not tell where it
// waits for one.
func (w *wallSampler) delayed(t *recordedThread) bool {
	wt := &t.wall
	running, ready, ok := t.of.p.live.Times(t.info.OSThreadID)
	if !ok {
		return true
	}
	if d := running - wt.running; d > 0 || ready > wt.ready {
		wt.delayed = ready-wt.ready > d/10
	}
	wt.running, wt.ready = running, ready
	return wt.delayed
}

// settle makes a wall sample of a CPU sample for what is owed to its thread.
func (w *wallSampler) settle(t *recordedThread, s profile.Sample) {
	wt := &t.wall
	if wt.owed == 0 {
		return
	}
	s.At, s.Weight, s.Count = s.At+w.r.start, int64(wt.owed), wt.turns
	wt.owed, wt.turns = 0, 0
	w.add(t, s)
}

// waited reports whether a thread that took so long to stop waited for a processor
// meanwhile. If not, it had one, and only heard late of the stop: the interrupt that
// tells a processor takes its time, above all in a virtual machine.
func (w *wallSampler) waited(t *recordedThread, long time.Duration) bool {
	_, ready, ok := t.of.p.live.Times(t.info.OSThreadID)
	return !ok || long > 0 && ready-t.wall.ready >= long/2
}

// look captures and walks a thread, and remembers its stack.
func (w *wallSampler) look(t *recordedThread) (profile.State, error) {
	rp, wt := t.of, &t.wall
	rp.frames.begin()
	s := Suspension{p: rp.p, thread: t.info, capture: &rp.p.capture}
	same := false
	s.known = func() bool {
		same = wt.valid && w.sum(&s) == wt.sum
		return same
	}
	begin := live.Monotonic()
	rp.p.stops = &w.pauses
	defer func() { rp.p.stops = nil }()
	walked := func() walk.Result {
		if s.waits && !s.capture.Stopped && s.known() {
			return walk.Result{Complete: true}
		}
		same = false
		return rp.frames.walk(&s, live.Monotonic())
	}
	r, ok := s.blocked(walked)
	var err error
	if !ok {
		mayDefer := !s.waits && w.mayDefer(wt)
		if mayDefer && !w.delayed(t) {
			wt.valid = false
			return profile.Running, errDeferred
		}
		s.patient = wt.delayed
		r, err = s.stopAndWalk(walked)
		// If it had a processor after all, where it has stopped says little. One that
		// yields, to wait while it stays ready to run, is where it wants to be.
		if mayDefer && err == nil && syscalls[s.capture.SyscallNr] != "sched_yield" && !w.waited(t, s.capture.Waited) {
			err = errDeferred
		}
	}
	state := profile.Running
	if s.waits {
		state = profile.Waiting
	}
	w.trim()
	if err != nil {
		wt.valid = false
		return state, err
	}
	t.info = s.thread
	if !same {
		if w.r.o.watch != nil {
			w.r.o.watch(rp.frames, &s, r.Complete, begin)
		}
		wt.node, wt.incomplete, wt.valid, wt.sum = w.r.b.Stack(rp.frames.stack), !r.Complete, true, w.sum(&s)
	}
	return state, nil
}

// sum tells stacks apart: the bytes from the stack pointer up, and where the
// thread is. If a blocked thread has them as before, its walk leads to the same
// frames.
func (w *wallSampler) sum(s *Suspension) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	c := s.capture
	sp := arch.Addr(c.Context.Regs[s.p.arch.SP])
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(c.Context.IP))
	binary.LittleEndian.PutUint64(b[8:], uint64(sp))
	_, _ = h.Write(b[:]) // never fails
	if d := sp - c.Stack.Base; uint64(d) < uint64(len(c.Stack.Data)) {
		_, _ = h.Write(c.Stack.Data[d:]) // never fails
	}
	return h.Sum64()
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

// figures are the stats so far.
func (w *wallSampler) figures() profile.ModeStats {
	s := w.stats
	s.Pauses = profile.SumPauses(w.pauses)
	for _, rp := range w.r.all {
		s.Released += rp.p.live.Released()
	}
	const asGood = 0.95
	if w.due > 0 && float64(s.Samples+s.Lost) < asGood*w.due {
		s.Got = s.Rate * float64(s.Samples) / w.due
	}
	return s
}
