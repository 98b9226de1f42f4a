package live

import "golang.org/x/sys/unix"

// This file is what the tracer runs; the rules of task.go apply.

// serve waits for requests.
//
//go:norace
//go:nosplit
func serve(sh *shared) {
	for {
		seq := load(&sh.posted)
		if seq == load(&sh.done) {
			futexWait(&sh.posted, seq, 0)
			continue
		}
		swap(&sh.taken, seq)
		if !sh.perform() {
			// A thread that is seized and does not stand still cannot be detached
			// by a call: our end does it, and the watchdog reports that.
			swap(&sh.leaving, 1)
			sh.rouse()
			return
		}
		swap(&sh.outcome, outcomeDone)
		swap(&sh.done, seq)
		futexWake(&sh.done)
	}
}

// perform does the request and reports whether everything is let go.
//
//go:norace
//go:nosplit
func (sh *shared) perform() bool {
	if len(sh.many) == 0 {
		sh.one.run(sh)
	} else {
		sh.runAll()
	}
	return sh.end()
}

//go:norace
//go:nosplit
func (sh *shared) end() bool {
	free := true
	if len(sh.many) == 0 {
		free = sh.one.free(sh)
	}
	for _, t := range sh.many {
		if t.wanted && !t.free(sh) {
			free = false
		}
	}
	swap64(&sh.deadline, 0)
	sh.at(stepDetached)
	return free
}

// expect tells the watchdog until when we will have shown up again.
//
//go:norace
//go:nosplit
func (sh *shared) expect(since, limit int64) {
	swap64(&sh.since, since)
	swap64(&sh.deadline, since+limit)
}

// run stops one thread, copies it and lets it go.
//
//go:norace
//go:nosplit
func (t *tracee) run(sh *shared) {
	start := clock()
	sh.expect(start, sh.stopLimit+sh.limit)
	if t.seize(sh); t.phase == phaseWaiting {
		t.stop(sh)
		t.patient(sh, start+sh.stopLimit)
		t.finish(sh)
		t.bury(sh)
	}
}

// stop is the usual case from the interrupt to the end.
//
//go:norace
//go:nosplit
func (t *tracee) stop(sh *shared) {
	t.began = clock()
	t.asked = t.began
	sh.expect(t.began, sh.limit)
	t.interrupt(sh)
	t.spin(sh)
	t.finish(sh)
}

// bury waits for the end of a thread that was killed while it stood still.
//
//go:norace
//go:nosplit
func (t *tracee) bury(sh *shared) {
	if t.phase == phaseDying {
		t.phase, t.died = phaseWaiting, true
		t.patient(sh, clock()+sh.stopLimit)
	}
}

// free collects a dead thread and reports whether we are done with t. The exit
// status of a main thread is its parent's. The kernel hands it over when the
// tracer has collected it, except where the tracer belongs to the parent.
//
//go:norace
//go:nosplit
func (t *tracee) free(sh *shared) bool {
	if t.phase == phaseExited && !(sh.inside && t.tid == t.pid) {
		return collect(t.tid, false)
	}
	return t.phase == phaseFree || t.phase == phaseDone
}

// Steps of a capture, for the tests that disturb each of them.
const (
	stepSeize     = 1 + iota // before PTRACE_SEIZE
	stepSeized               // after it
	stepInterrupt            // after PTRACE_INTERRUPT
	stepLook                 // before the first look
	stepMissed               // after a look that found the thread not stopped
	stepSignal               // before a signal is given back
	stepContinue             // after that
	stepStopped              // before PTRACE_GETREGS
	stepRegs                 // before the copy
	stepCopied               // before PTRACE_DETACH
	stepDetached             // after it
	steps
)

// at notes where the tracer is.
//
//go:norace
//go:nosplit
func (sh *shared) at(step uint32) {
	swap(&sh.step, step)
	if load(&sh.breaks)&(1<<step) != 0 {
		sh.pause(step)
	}
}

// pause is where tests disturb us: it waits until it is told to go on, or for as
// long as it shall linger.
//
//go:norace
//go:nosplit
func (sh *shared) pause(step uint32) {
	resume := load(&sh.resume)
	swap(&sh.arrived, step)
	futexWait(&sh.resume, resume, sh.linger)
	swap(&sh.arrived, 0)
}

// runAll stops all threads before it copies the first and copies all before it
// lets the first go.
//
//go:norace
//go:nosplit
func (sh *shared) runAll() {
	for _, t := range sh.many {
		if t.wanted {
			// See startReaper for what this may wait for.
			sh.expect(clock(), sh.limit)
			t.seize(sh)
		}
	}
	deadline := sh.interruptAll()
	for round := 0; sh.pollAll(false) && clock() < deadline; round++ {
		if round < naps {
			nap(napTime) // whoever has not stopped yet may need this processor
		} else {
			nap(10 * napTime)
		}
	}
	sh.finishAll()
	for _, t := range sh.many {
		t.bury(sh)
	}
}

// interruptAll returns when waiting for the threads has to end.
//
//go:norace
//go:nosplit
func (sh *shared) interruptAll() int64 {
	start := clock()
	sh.expect(start, sh.allLimit+sh.limit)
	for _, t := range sh.many {
		if t.phase == phaseWaiting {
			t.began, t.asked = start, start
			t.interrupt(sh)
		}
	}
	return start + sh.allLimit
}

// pollAll looks at the threads that have not stopped and reports whether there
// are any left. The dead are collected at once: a thread that executes another
// program waits for that.
//
//go:norace
//go:nosplit
func (sh *shared) pollAll(waiting bool) bool {
	for _, t := range sh.many {
		if t.phase != phaseWaiting {
			continue
		}
		switch t.poll(sh); {
		case t.phase == phaseWaiting:
			waiting = true
		case t.phase == phaseExited && t.tid != t.pid:
			collect(t.tid, false)
			t.phase, t.errno = phaseFree, unix.ESRCH
		}
	}
	return waiting
}

//go:norace
//go:nosplit
func (sh *shared) finishAll() {
	for _, t := range sh.many {
		t.take(sh)
	}
	for _, t := range sh.many {
		t.release(sh)
	}
	end := clock()
	for _, t := range sh.many {
		t.ended = end
	}
}
