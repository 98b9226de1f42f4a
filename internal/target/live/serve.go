package live

// The tracer runs the code of this file; the rules of task.go apply.

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
			// No call can detach a thread that is seized and not stopped. Only our end can, and
			// the watchdog reports our end.
			swap(&sh.leaving, 1)
			sh.rouse()
			return
		}
		swap(&sh.outcome, outcomeDone)
		swap(&sh.done, seq)
		futexWake(&sh.done)
	}
}

// perform does the request and reports whether every thread is released.
//
//go:norace
//go:nosplit
func (sh *shared) perform() bool {
	switch {
	case len(sh.many) == 0:
		sh.one.run(sh)
	case sh.each:
		sh.runEach()
	default:
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

// expect announces to the watchdog the time of our next sign of life.
//
//go:norace
//go:nosplit
func (sh *shared) expect(since, limit int64) {
	swap64(&sh.since, since)
	swap64(&sh.deadline, since+limit)
}

// run stops one thread, copies it and releases it.
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

// bury waits for the end of a thread that was killed during its stop.
//
//go:norace
//go:nosplit
func (t *tracee) bury(sh *shared) {
	if t.phase == phaseDying {
		t.phase, t.died = phaseWaiting, true
		t.patient(sh, clock()+sh.stopLimit)
	}
}

// free collects a zombie and reports whether we are done with t. The exit status of a main thread
// is for its parent. The kernel passes the status on after the tracer has collected it, except
// where the tracer belongs to the parent.
//
//go:norace
//go:nosplit
func (t *tracee) free(sh *shared) bool {
	if t.phase == phaseExited && !(sh.inside && t.tid == t.pid) {
		return collect(t.tid, false)
	}
	return t.phase == phaseFree || t.phase == phaseDone || t.phase == phaseStill
}

// Steps of a capture. Tests disturb each step.
const (
	stepSeize     = 1 + iota // before PTRACE_SEIZE
	stepSeized               // after PTRACE_SEIZE
	stepInterrupt            // after PTRACE_INTERRUPT
	stepLook                 // before the first look
	stepMissed               // after a look that found the thread not stopped
	stepSignal               // before a signal is given back
	stepContinue             // after that
	stepStopped              // before PTRACE_GETREGS
	stepRegs                 // before the copy
	stepCopied               // before PTRACE_DETACH
	stepDetached             // after PTRACE_DETACH
	steps

	stepProofs = steps     // CaptureAll: before the proofs of blocked threads are checked
	stepHeld   = steps + 1 // CaptureAll: all threads are held
)

// at records the tracer's step.
//
//go:norace
//go:nosplit
func (sh *shared) at(step uint32) {
	swap(&sh.step, step)
	if load(&sh.breaks)&(1<<step) != 0 {
		sh.pause(step)
	}
}

// pause is where tests disturb the tracer. It waits for sh.resume, or for sh.linger.
//
//go:norace
//go:nosplit
func (sh *shared) pause(step uint32) {
	resume := load(&sh.resume)
	swap(&sh.arrived, step)
	futexWait(&sh.resume, resume, sh.linger)
	swap(&sh.arrived, 0)
}
