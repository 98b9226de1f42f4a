package live

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Held says how threads were held.
type Held struct {
	Threads int           // threads that stood still
	Stops   int           // how often they were stopped
	Pause   time.Duration // the longest standstill of any thread, over all stops together
}

// Standing is a process whose threads all stand still.
type Standing struct {
	// Still reports whether the threads still stand still. Still may be called from several goroutines.
	Still func() bool
	// Threads are the registers and the system calls of the threads that have not ended. No memory is copied.
	Threads []target.Capture
}

// Hold keeps all threads of the process stopped while f runs, for limit at most. The threads go
// on as soon as f returns. They go on earlier if limit has passed, or if our process ends or is
// killed: Still then turns false, and the error is ErrHeldTooLong, ErrWatchdog or ErrTracerLost.
// Hold calls f at most once. f may read memory in several goroutines, but must not stop threads
// itself, nor ask whether a thread is blocked. If a thread does not stop, Hold does not call f, and the error names the
// thread.
//
// A thread that starts while the others are being stopped is not held. So Hold lets all threads
// go and stops them once more.
func (p *Process) Hold(limit time.Duration, f func(Standing)) (Held, error) {
	defer p.FreeAll()
	var sum Held
	for {
		tids, err := p.living()
		if err != nil {
			return sum, err
		}
		if len(tids) == 0 {
			return sum, fmt.Errorf("process %d: %w", p.pid, ErrNotStopping)
		}
		err = p.Trace(func(t *Tracer) error { return t.hold(tids, limit-sum.Pause, f, &sum) })
		if !errors.Is(err, ErrNewThreads) || sum.Stops >= holdTries {
			return sum, err
		}
		if sum.Pause >= limit {
			return sum, ErrHeldTooLong
		}
	}
}

// holdTries bounds the stops until no thread has started meanwhile.
const holdTries = 8

// living lists the threads that have not ended.
func (p *Process) living() ([]int, error) {
	tids, err := p.Threads()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tids, func(tid int) bool {
		i, err := p.Thread(tid)
		return err != nil || i.State == 'Z' || i.State == 'X'
	}), nil
}

// heldStack is the copied part of each stack, in bytes. A request always copies some stack; Hold
// does not use the copy.
const heldStack = 64

// hold is Hold for a fixed list of threads, once.
func (t *Tracer) hold(tids []int, limit time.Duration, f func(Standing), sum *Held) error {
	reqs := make([]target.Request, len(tids))
	for i, tid := range tids {
		reqs[i] = target.Request{TID: tid, StackLimit: heldStack}
	}
	out, errs := make([]target.Capture, len(tids)), make([]error, len(tids))
	called, whole, others := false, false, false
	t.holding = limit
	t.meanwhile = func() {
		if others = t.p.hasOthers(tids); !others {
			called = true
			f(Standing{t.holds, t.standing()})
		}
		whole = t.holds() && atomic.SwapUint32(&t.sh.letGo, letByClient) == goesOn
		atomic.StoreUint32(&t.sh.letGo, letByClient)
		futexWake(&t.sh.letGo)
	}
	defer func() { t.holding, t.meanwhile = 0, nil }()
	outcome, err := t.captureAll(reqs, out, errs)
	for err == nil &&
		slices.ContainsFunc(t.batch, func(te *tracee) bool { return te.wanted && t.mayTrace(te, outcome) }) {
		outcome, err = t.captureAll(reqs, out, errs)
	}
	if err != nil {
		return err
	}
	sum.Stops++
	pause, err := t.released(outcome, reqs, out, errs, sum)
	sum.Pause += pause
	switch {
	case err != nil:
		return err
	case others || !called:
		return ErrNewThreads // or a thread has ended meanwhile
	case !whole:
		return fmt.Errorf("%w: %v", ErrHeldTooLong, pause.Round(time.Millisecond))
	}
	return nil
}

// standing returns the registers of the held threads.
func (t *Tracer) standing() []target.Capture {
	out := make([]target.Capture, 0, len(t.batch))
	for _, te := range t.batch {
		if te.wanted && te.phase == phaseStopped {
			c := target.Capture{TID: int(te.tid)}
			te.registers(&c)
			out = append(out, c)
		}
	}
	return out
}

// holds reports whether the threads still stand still. If the tracer task holds the threads and
// ends, the watchdog ends the request.
func (t *Tracer) holds() bool {
	ended := t.tasks != nil && atomic.LoadUint32(&t.sh.done) == atomic.LoadUint32(&t.sh.posted)
	return !ended && atomic.LoadUint32(&t.sh.letGo) == goesOn
}

// released returns how long the threads of a batch stood still, and the error of a thread that
// did not stand still.
func (t *Tracer) released(
	outcome uint32, reqs []target.Request, out []target.Capture, errs []error, sum *Held,
) (pause time.Duration, err error) {
	sum.Threads = 0
	for i, te := range t.batch {
		switch {
		case errs[i] != nil:
			err = errs[i]
		case outcome == outcomeLate || outcome == outcomeDied:
			pause = max(pause, time.Duration(t.sh.late))
			err = t.conclude(te, outcome, &reqs[i], &out[i])
		case te.phase == phaseDone && !te.foreign:
			sum.Threads++
			pause = max(pause, time.Duration(te.pause()))
		case te.over():
		default:
			// The kernel refuses to trace a thread that is about to end.
			if e := t.conclude(te, outcome, &reqs[i], &out[i]); !errors.Is(e, target.ErrThreadExited) {
				err = e
			}
		}
	}
	return pause, err
}

// hasOthers reports whether the process has threads outside tids.
func (p *Process) hasOthers(tids []int) bool {
	now, err := p.living()
	return err != nil || slices.ContainsFunc(now, func(tid int) bool { return !slices.Contains(tids, tid) })
}

// The tracer runs the rest of the file; the rules of task.go apply.

// Values of shared.letGo: why held threads go on.
const (
	goesOn      uint32 = iota // they do not
	letByClient               // the client needs them no longer
	letByTime                 // the time is up
)

// over reports whether the thread has ended, and so need not stand still.
//
//go:norace
//go:nosplit
func (t *tracee) over() bool {
	return t.died || t.foreign || t.phase == phaseGone || t.phase == phaseExited ||
		t.phase == phaseFree && t.errno == unix.ESRCH
}

// standing reports whether all threads that have not ended stand still.
//
//go:norace
//go:nosplit
func (sh *shared) standing() bool {
	for _, t := range sh.many {
		if t.wanted && t.phase != phaseStopped && !t.over() {
			return false
		}
	}
	return true
}

// holdAll holds all threads until the client lets them go, or until the time is up.
//
//go:norace
//go:nosplit
func (sh *shared) holdAll() {
	if sh.hold == 0 || !sh.standing() {
		return
	}
	end := sh.begun + sh.hold
	now := clock()
	sh.expect(now, end-now+sh.limit)
	swap(&sh.held, 1)
	futexWake(&sh.held)
	sh.at(stepHeld)
	for load(&sh.letGo) == goesOn {
		left := end - clock()
		if left <= 0 {
			swap(&sh.letGo, letByTime)
			return
		}
		futexWait(&sh.letGo, goesOn, left)
	}
}
