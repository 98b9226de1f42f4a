package live

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tracer runs the code of this file for many threads at once; the rules of task.go apply.

// runAll makes all threads stand still at one instant. It stops and copies the threads that are
// not proved to be blocked. It releases the first thread only when all have stopped, and none of
// the proved threads has run meanwhile.
//
//go:norace
//go:nosplit
func (sh *shared) runAll() {
	sh.seizeAll(clock())
	sh.haltAll(sh.beginAll())
	sh.holdAll()
	sh.finishAll()
	for step := sh.beginBury(); sh.bury(); step = min(2*step, lastPause) {
		nap(step)
	}
}

// haltAll stops all threads, or as many as possible within the limit.
//
//go:norace
//go:nosplit
func (sh *shared) haltAll(deadline int64) {
	for {
		begin := clock()
		waiting := sh.pollAll(begin)
		sh.takeAll()
		switch sh.halted(begin, deadline, waiting) {
		case haltDone:
			return
		case haltMore:
			sh.seizeAll(sh.begun)
			sh.expect(sh.begun, sh.allLimit+sh.limit)
			sh.interruptAll()
		}
		nap(sh.rest)
	}
}

// Results of halted.
const (
	haltDone = iota // all stand still, or time is up
	haltMore        // further threads must be stopped
	haltWait        // wait for threads that have not stopped yet
)

// halted decides the next step after a round that began at begin. From time to time, and when all
// have stopped, halted checks whether the proved threads are still blocked. The next round is due
// after sh.rest.
//
//go:norace
//go:nosplit
func (sh *shared) halted(begin, deadline int64, waiting bool) int {
	if waiting && begin < min(deadline, sh.nextProofs) {
		sh.setRest(clock() - begin)
		return haltWait
	}
	ran := sh.disproved()
	took := clock() - begin
	sh.setRest(0)
	sh.nextProofs = begin + 5*took
	switch {
	case begin >= deadline || !waiting && !ran:
		return haltDone
	case ran:
		return haltMore
	}
	return haltWait
}

// seizeAll attaches to the threads that must be stopped. Other threads may stand still since a moment. For possible
// waits see startReaper.
//
//go:norace
//go:nosplit
func (sh *shared) seizeAll(since int64) {
	for _, t := range sh.many {
		if t.mustStop() {
			sh.expect(since, clock()-since+sh.limit)
			t.seize(sh)
		}
	}
}

// mustStop reports whether the thread must still be seized.
//
//go:norace
//go:nosplit
func (t *tracee) mustStop() bool { return t.wanted && t.phase == phaseFree && t.errno == 0 }

const (
	longestNap  = 5_000_000 // ns
	firstProofs = 1_000_000 // ns after the requests for the first stops
)

// setRest sets the sleep after a round over all threads. took is the duration of the round in ns.
// A thread that has not stopped yet may need our CPU, so it gets most of the CPU's time.
//
//go:norace
//go:nosplit
func (sh *shared) setRest(took int64) {
	if sh.rest = max(napTime, min(2*took, longestNap)); sh.rounds >= naps {
		sh.rest = max(10*napTime, min(4*took, longestNap))
	}
	sh.rounds++
}

// beginAll asks for the first stops and returns the end of the wait for threads.
//
//go:norace
//go:nosplit
func (sh *shared) beginAll() (deadline int64) {
	start := clock()
	sh.begun = start
	sh.expect(start, sh.allLimit+sh.limit)
	sh.rounds, sh.nextProofs = 0, start+firstProofs
	sh.interruptAll()
	return start + sh.allLimit
}

//go:norace
//go:nosplit
func (sh *shared) interruptAll() {
	now := clock()
	for _, t := range sh.many {
		if t.phase == phaseWaiting && t.asked == 0 {
			t.began, t.asked = now, now
			t.interrupt(sh)
		}
	}
}

// pollAll polls the threads that have not stopped, and reports whether any are left. Zombies are
// collected at once: a thread that executes another program waits for the collection.
//
//go:norace
//go:nosplit
func (sh *shared) pollAll(now int64) (waiting bool) {
	for _, t := range sh.many {
		if t.phase == phaseWaiting {
			t.poll(sh)
			waiting = t.polled(now) || waiting
		}
	}
	sh.collectKilled()
	return waiting
}

// collectKilled collects the threads that were killed in their stop. The thread that does not stop may
// be the thread that has killed the others: execve waits in de_thread (fs/exec.c) until the tracer has
// collected them. Threads that were alive when they were copied are looked at in a long wait only.
//
//go:norace
//go:nosplit
func (sh *shared) collectKilled() {
	for _, t := range sh.many {
		if t.tid == t.pid || t.phase != phaseDying && (t.phase != phaseStopped || sh.rounds < naps) || t.look() != 0 {
			continue
		}
		if c := t.info.code; t.info.signo != 0 && (c == cldExited || c == cldKilled || c == cldDumped) {
			collect(t.tid, false)
			t.phase, t.errno = phaseFree, unix.ESRCH
		}
	}
}

// polled reports whether a thread must be polled again.
//
//go:norace
//go:nosplit
func (t *tracee) polled(now int64) bool {
	if t.phase == phaseExited && t.tid != t.pid {
		collect(t.tid, false)
		t.phase, t.errno = phaseFree, unix.ESRCH
	}
	if t.phase != phaseWaiting {
		return false
	}
	t.began = max(t.began, now) // later if the thread has been given a signal
	return true
}

// takeAll copies the threads that have stopped since the previous takeAll.
//
//go:norace
//go:nosplit
func (sh *shared) takeAll() {
	for _, t := range sh.many {
		if t.phase == phaseStopped && !t.taken {
			t.taken = true
			t.take(sh)
		}
	}
}

// disproved checks whether the proved threads have run since their proofs, and reports whether
// any has. A thread that has not run is still as captured at the instant when disproved begins.
//
//go:norace
//go:nosplit
func (sh *shared) disproved() (any bool) {
	sh.countThreads()
	sh.at(stepProofs)
	for _, t := range sh.many {
		if t.phase == phaseStill && !t.still(sh) {
			t.phase, t.errno, t.moved, any = phaseFree, 0, true, true
		}
	}
	return any
}

// still reports whether schedstat equals the proof.
//
//go:norace
//go:nosplit
func (t *tracee) still(sh *shared) bool {
	file := t.schedstat
	if file == noSchedstat {
		const flags = unix.O_RDONLY | unix.O_CLOEXEC
		fd, e := raw6(unix.SYS_OPENAT, sh.dir, uintptr(unsafe.Pointer(&t.path)), flags, 0, 0, 0)
		if e != 0 {
			return false
		}
		file = fd
	}
	n, e := raw6(unix.SYS_PREAD64, file, uintptr(unsafe.Pointer(&sh.line)), maxProof, 0, 0, 0)
	if file != t.schedstat {
		raw(unix.SYS_CLOSE, file, 0, 0)
	}
	if e != 0 || int(n) != t.proofLen {
		return false
	}
	for i := 0; i < t.proofLen; i++ {
		if sh.line[i&(maxProof-1)] != t.proof[i&(maxProof-1)] {
			return false
		}
	}
	return true
}

// countThreads asks the kernel for the number of threads: the task directory has 2 links more
// than threads (proc_task_getattr in fs/proc/base.c).
//
//go:norace
//go:nosplit
func (sh *shared) countThreads() {
	name := [8]byte{'t', 'a', 's', 'k'}
	sh.threads = 0
	_, e := raw6(unix.SYS_NEWFSTATAT, sh.dir, uintptr(unsafe.Pointer(&name)),
		uintptr(unsafe.Pointer(&sh.stat)), 0, 0, 0)
	if e == 0 && sh.stat.Nlink > 2 {
		sh.threads = int(sh.stat.Nlink) - 2
	}
}

// finishAll releases all threads.
//
//go:norace
//go:nosplit
func (sh *shared) finishAll() {
	for _, t := range sh.many {
		t.release(sh)
	}
	end := clock()
	for _, t := range sh.many {
		t.ended = end
	}
}

// beginBury begins the wait for the ends of the threads that were killed in their stop, and returns the first pause.
//
//go:norace
//go:nosplit
func (sh *shared) beginBury() (pause int64) {
	sh.begun = clock()
	for _, t := range sh.many {
		if t.phase == phaseDying {
			t.phase, t.died = phaseWaiting, true
		}
	}
	return firstPause
}

// bury looks once for the ends of all killed threads, and reports whether to look again. No thread is waited for alone:
// a main thread shows its end only when the other threads have been collected.
//
//go:norace
//go:nosplit
func (sh *shared) bury() (again bool) {
	for _, t := range sh.many {
		if t.phase == phaseWaiting && t.died {
			t.lookAgain(sh)
			again = t.polled(t.began) || again
		}
	}
	return again && clock() < sh.begun+sh.stopLimit
}
