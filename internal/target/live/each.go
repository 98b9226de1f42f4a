package live

import (
	"fmt"
	"unsafe"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// CaptureEach captures each of many threads by itself, as Capture does, but in less time where threads wait for CPUs.
// Many are asked to stop before the first one has stopped. Each of them is copied when it has got a CPU, and let go at
// once. So their captures are of different moments.
//
// out and errs have the length of reqs. A thread that is not stopped in time has ErrNotStopping. A thread that was
// lost with a tracer is asked again, with another tracer. The slices in out are valid until the next CaptureEach or
// CaptureAll, or FreeAll.
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

// eachAttempts is how many tracers are used for threads that were lost with one.
const eachAttempts = 3

// captured reports whether the thread was copied and let go, whatever became of the tracer then.
func (t *tracee) captured() bool { return t.phase == phaseDone && t.ended != 0 && !t.died }

// refused reports whether the thread could not be attached to. A tracer that has just detached looks the same as one
// that may not be.
func (t *tracee) refused() bool { return t.phase == phaseFree && t.errno == unix.EPERM }

// leaderEnded reports whether the main thread has ended: it may be a zombie for as long as others live.
func (p *Process) leaderEnded() bool {
	i, err := p.Thread(p.pid)
	return err != nil || i.State == 'Z' || i.State == 'X'
}

// What follows is run by the tracer; the rules of task.go apply.

// eachWindow is how many threads are asked to stop at most at any time. If all of them stop together, the last one
// stands still until the others are copied, which takes about 10 µs for each.
const eachWindow = 128

// eachLimit bounds how long a request waits for its threads, in ns. It ends before if no thread has stopped for as long
// as a single one is waited for.
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

// ask asks a thread to stop that was just seized.
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

// pollAsked copies and releases the threads that have stopped, of those that were asked to, and reports whether there
// are others. Those that are dying are waited for, too.
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
		t.replaced(sh)
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

// goesOn reports whether there is time for other threads, if there are any, after a look. Any thread that the look
// found not to be stopped has not stood still before the look began, which is what the watchdog is told.
//
//go:norace
//go:nosplit
func (sh *shared) goesOn(begin int64, more bool) bool {
	sh.looked = begin
	sh.expect(begin, sh.limit)
	sh.setNap()
	return more && begin < min(sh.latest+sh.stopLimit, sh.begun+sh.allLimit)
}

// replaced notes that the main thread, for which we wait, is another one by now, which is not ours: another thread has
// executed a program, and that detaches us without a notification. A wait does not tell where the process is our child.
// To ask once more for the stop does, and has no further effect.
//
//go:norace
//go:nosplit
func (t *tracee) replaced(sh *shared) {
	if sh.inside && t.tid == t.pid && t.phase == phaseWaiting && ptrace(unix.PTRACE_INTERRUPT, t.tid, 0) == unix.ESRCH {
		t.phase = phaseGone
	}
}

// anyStopped reports whether any thread that this task has seized has stopped or ended. It has no children.
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

// setNap sets how long to sleep before the next look.
//
//go:norace
//go:nosplit
func (sh *shared) setNap() {
	const doublings = 5
	sh.rest = min(int64(napTime)<<uint(min(sh.rounds, doublings)), longestEachNap)
	sh.rounds++
}
