package live

import (
	"fmt"
	"unsafe"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// CaptureEach captures each of many threads by itself, like Capture, but in less time where
// threads wait for CPUs. CaptureEach asks many threads to stop before the first thread has
// stopped. When a thread has got a CPU, the thread is copied and let go at once. So the captures
// are of different moments.
//
// out and errs have the length of reqs. A thread that is not stopped in time has ErrNotStopping.
// If a tracer is lost, its threads are asked again, with another tracer. The slices in out are
// valid until the next CaptureEach, CaptureAll or FreeAll.
func (t *Tracer) CaptureEach(reqs []target.Request, out []target.Capture, errs []error) error {
	out, errs = out[:len(reqs)], errs[:len(reqs)]
	if err := t.prepareAll(reqs, out, errs); err != nil {
		return err
	}
	t.each = true
	defer func() { t.each = false }()
	all := t.batch
	var left []int
	for i, te := range all {
		te.prepare()
		if te.wanted && te.tid == te.pid && t.p.leaderEnded() {
			te.wanted, errs[i] = false, t.p.threadGone(reqs[i].TID)
		}
		if te.wanted {
			left = append(left, i)
		}
	}
	for attempt := 1; len(left) > 0; attempt++ {
		t.batch = make([]*tracee, len(left))
		for k, i := range left {
			t.batch[k] = all[i]
		}
		outcome, err := t.perform(nil, t.batch)
		if err != nil {
			for _, i := range left {
				out[i], errs[i] = target.Capture{}, fmt.Errorf("%w: %w", ErrWatchdog, err)
			}
			return nil
		}
		lost := outcome == outcomeLate || outcome == outcomeDied
		again := left[:0]
		for _, i := range left {
			te := all[i]
			switch {
			case te.captured():
				errs[i] = t.conclude(te, outcomeDone, &reqs[i], &out[i])
			case attempt < eachAttempts && (lost || t.mayTrace(te, outcome) || te.refused()):
				again = append(again, i)
				te.prepare()
			default:
				errs[i] = t.conclude(te, outcome, &reqs[i], &out[i])
			}
		}
		left = again
	}
	return nil
}

// eachAttempts bounds the tracers for threads that were lost with a tracer.
const eachAttempts = 3

// captured reports whether the thread was copied and let go, even if the tracer was lost
// afterwards.
func (t *tracee) captured() bool { return t.phase == phaseDone && t.ended != 0 && !t.died }

// refused reports whether attaching to the thread failed. A tracer that has just detached looks
// like a missing right.
func (t *tracee) refused() bool { return t.phase == phaseFree && t.errno == unix.EPERM }

// leaderEnded reports whether the main thread has ended. The main thread may be a zombie for as
// long as other threads live.
func (p *Process) leaderEnded() bool {
	i, err := p.Thread(p.pid)
	return err != nil || i.State == 'Z' || i.State == 'X'
}

// The tracer runs the rest of the file; the rules of task.go apply.

// eachWindow bounds the threads that are asked to stop at any time. If all of them stop together,
// the last thread stands still until the others are copied, about 10 µs for each.
const eachWindow = 128

// eachLimit bounds a request's wait for its threads, in ns. The wait also ends if no thread has
// stopped for the limit of a single thread.
const eachLimit = 5_000_000_000

// runEach captures the threads as they stop.
//
//go:norace
//go:nosplit
func (sh *shared) runEach() {
	sh.beginEach()
	for {
		for _, t := range sh.many {
			if sh.mayAsk(t) {
				t.seize(sh)
				sh.ask(t)
			}
		}
		if begin := clock(); !sh.goesOn(begin, sh.pollAsked(begin)) {
			return
		}
		nap(sh.rest)
	}
}

//go:norace
//go:nosplit
func (sh *shared) beginEach() {
	now := clock()
	sh.begun, sh.latest, sh.looked = now, now, now
	sh.asked, sh.rounds = 0, 0
	sh.expect(now, sh.limit)
}

// mayAsk reports whether a thread is the next to be seized.
//
//go:norace
//go:nosplit
func (sh *shared) mayAsk(t *tracee) bool { return sh.asked < eachWindow && t.mustStop() }

// ask asks a newly seized thread to stop.
//
//go:norace
//go:nosplit
func (sh *shared) ask(t *tracee) {
	if t.phase != phaseWaiting {
		return
	}
	sh.asked++
	t.began = clock()
	t.asked, sh.latest = t.began, t.began
	t.interrupt(sh)
}

// pollAsked copies and releases the asked threads that have stopped, and reports whether other
// threads are left. Dying threads are waited for, too.
//
//go:norace
//go:nosplit
func (sh *shared) pollAsked(begin int64) (more bool) {
	if !sh.inside && !anyStopped() {
		sh.at(stepMissed)
		return true
	}
	for _, t := range sh.many {
		if t.mustStop() {
			more = true
		}
		if t.phase != phaseWaiting {
			continue
		}
		t.began = max(t.began, sh.looked)
		t.poll(sh)
		t.take(sh)
		t.release(sh)
		if t.phase == phaseDying {
			t.phase, t.died = phaseWaiting, true
		}
		if t.polled(begin) {
			more = true
			continue
		}
		sh.asked--
		sh.latest, sh.rounds = begin, 0
	}
	return more
}

// goesOn reports, after a look, whether other threads are left and there is time for them. A
// thread that the look found running has not stood still before the look began; the watchdog is
// told the begin of the look.
//
//go:norace
//go:nosplit
func (sh *shared) goesOn(begin int64, more bool) bool {
	sh.looked = begin
	sh.expect(begin, sh.limit)
	sh.setNap()
	return more && begin < min(sh.latest+sh.stopLimit, sh.begun+sh.allLimit)
}

// anyStopped reports whether any seized thread has stopped or ended. The tracer task has no
// children.
//
//go:norace
//go:nosplit
func anyStopped() bool {
	const options = unix.WEXITED | unix.WSTOPPED | unix.WNOHANG | unix.WALL | unix.WNOWAIT
	var info waitInfo
	_, e := raw6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)), options, 0, 0)
	return e != 0 || info.signo != 0
}

// longestEachNap is short, because threads may stand still meanwhile, in ns.
const longestEachNap = 100_000

// setNap sets the sleep before the next look.
//
//go:norace
//go:nosplit
func (sh *shared) setNap() {
	const doublings = 5
	sh.rest = min(int64(napTime)<<uint(min(sh.rounds, doublings)), longestEachNap)
	sh.rounds++
}
