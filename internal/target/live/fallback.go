package live

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// threadTracer performs requests in a thread of ours, where the kernel does not let a separate
// task trace: under Yama's ptrace_scope 1 only an ancestor may trace, and our process, not its
// children, is the ancestor of a target that we have started. The same functions run under the
// same rules, but without a watchdog, because a single thread of a process cannot be killed.
type threadTracer struct {
	sh   *shared
	work chan struct{}
	done chan bool
	held chan struct{} // all threads of a request stand still
	let  chan struct{} // they may go on
	tid  int           // of the OS thread
}

func newThreadTracer() *threadTracer {
	th := &threadTracer{
		sh: &shared{inside: true}, work: make(chan struct{}), done: make(chan bool),
		held: make(chan struct{}), let: make(chan struct{}, 1),
	}
	ready := make(chan struct{})
	go th.main(ready)
	<-ready
	return th
}

// main must not run on the process's first thread. When a goroutine that is locked to the first
// thread ends, the Go runtime parks the thread instead of ending it, and the tracees would stay
// attached.
func (th *threadTracer) main(ready chan struct{}) {
	runtime.LockOSThread()
	th.tid = unix.Gettid()
	if th.tid == os.Getpid() {
		// This goroutine occupies the first thread, so the next goroutine gets another thread.
		next := make(chan struct{})
		go th.main(next)
		<-next
		close(ready)
		runtime.UnlockOSThread()
		return
	}
	urgent()
	close(ready)
	for range th.work {
		mask := setMask(quiet)
		th.perform()
		free := th.sh.end()
		setMask(mask)
		th.done <- free
		if !free {
			break
		}
	}
	// Still locked, so the OS thread ends: the thread has a high priority, and may have tracees.
}

// perform is shared.perform, but tells the Go scheduler of calls that may take long.
func (th *threadTracer) perform() {
	sh := th.sh
	if t := sh.one; len(sh.many) == 0 {
		start := clock()
		if t.seizeSlowly(); t.phase == phaseWaiting {
			t.stop(sh)
			t.waitSlowly(sh, start+sh.stopLimit)
			t.finish(sh)
			t.burySlowly(sh)
		}
		return
	}
	if sh.each {
		sh.performEach()
		return
	}
	th.performAll()
}

// performEach is runEach.
func (sh *shared) performEach() {
	sh.beginEach()
	for {
		for _, t := range sh.many {
			if sh.mayAsk(t) {
				t.seizeSlowly()
				sh.ask(t)
			}
		}
		if begin := clock(); !sh.goesOn(begin, sh.pollAsked(begin)) {
			return
		}
		sleep(sh.rest)
	}
}

// performAll is shared.runAll.
func (th *threadTracer) performAll() {
	sh := th.sh
	sh.seizeAllSlowly()
	deadline := sh.beginAll()
	for {
		begin := clock()
		waiting := sh.pollAll(begin)
		sh.takeAll()
		outcome := sh.halted(begin, deadline, waiting)
		if outcome == haltDone {
			break
		}
		if outcome == haltMore {
			sh.seizeAllSlowly()
			sh.interruptAll()
		}
		if sh.rounds <= naps {
			nap(sh.rest)
		} else {
			sleep(sh.rest)
		}
	}
	th.holdAll()
	sh.finishAll()
	for step := sh.beginBury(); sh.bury(); step = min(2*step, lastPause) {
		sleep(step)
	}
}

// holdAll is shared.holdAll. The goroutine waits in the usual way, so the client's goroutine can
// run.
func (th *threadTracer) holdAll() {
	sh := th.sh
	if sh.hold == 0 || !sh.standing() {
		return
	}
	select { // of a request that had taken too long
	case <-th.let:
	default:
	}
	end := time.NewTimer(time.Duration(sh.begun + sh.hold - clock()))
	defer end.Stop()
	th.held <- struct{}{}
	select {
	case <-th.let:
	case <-end.C:
		atomic.StoreUint32(&sh.letGo, letByTime)
	}
}

func (sh *shared) seizeAllSlowly() {
	for _, t := range sh.many {
		if t.mustStop() {
			t.seizeSlowly()
		}
	}
}

func (t *tracee) seizeSlowly() {
	_, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, t.tid, 0, 0, 0, 0)
	t.seized(e)
}

func (t *tracee) waitSlowly(sh *shared, deadline int64) {
	for step := int64(firstPause); t.phase == phaseWaiting && clock() < deadline; step = min(2*step, lastPause) {
		sleep(step)
		t.lookAgain(sh)
	}
}

func (t *tracee) burySlowly(sh *shared) {
	if t.phase == phaseDying {
		t.phase, t.died = phaseWaiting, true
		t.waitSlowly(sh, clock()+sh.stopLimit)
	}
}

func sleep(ns int64) {
	ts := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&ts, nil) // an early return does no harm
}

// urgent raises the priority of the calling OS thread, as far as permitted.
func urgent() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
		Priority: priorityTracer, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	_ = unix.SchedSetAttr(0, &fifo, 0)
}

// request is tasks.request.
func (th *threadTracer) request(stuck func() bool, meanwhile func()) (outcome uint32) {
	atomic.StoreUint32(&th.sh.giveUp, 0)
	defer startReaper(th.sh.many)()
	th.work <- struct{}{}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case free := <-th.done:
			if free {
				return outcomeDone
			}
			awaitThreadEnd(th.tid)
			return outcomeLeft
		case <-th.held:
			meanwhile()
			th.let <- struct{}{}
		case <-tick.C:
			if stuck() {
				atomic.StoreUint32(&th.sh.giveUp, 1)
			}
		}
	}
}

// awaitThreadEnd waits until the kernel has ended a tracer's thread, and so has detached its
// tracees.
func awaitThreadEnd(tid int) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if unix.Tgkill(os.Getpid(), tid, 0) == unix.ESRCH {
			return
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// hasEnded reports whether a thread is to be collected. Collecting a thread that is only stopped
// would take the news of its stop away from the tracer: a wait for a tracee returns stops even if
// the wait does not ask for stops (wait_task_stopped in kernel/exit.c).
func hasEnded(tid uintptr) bool {
	t := tracee{tid: tid}
	return t.look() == 0 && t.info.signo != 0 &&
		(t.info.code == cldExited || t.info.code == cldKilled || t.info.code == cldDumped)
}

// startReaper prevents a deadlock while many threads are seized. A thread of the target that
// executes another program waits (de_thread in fs/exec.c) until the other threads are dead and
// collected. Meanwhile the thread holds a lock that our next PTRACE_SEIZE sleeps on. We must
// collect the threads that we have seized. So another thread of our process collects them: any
// thread of ours may. If the tracer is a task, the watchdog solves the deadlock by killing the
// tracer.
func startReaper(many []*tracee) (stop func()) {
	if len(many) == 0 {
		return func() {}
	}
	var tids []uintptr
	for _, t := range many {
		if t.tid != t.pid {
			tids = append(tids, t.tid)
		}
	}
	var over atomic.Bool
	done := make(chan struct{})
	timer := time.AfterFunc(DefaultWatchdog, func() {
		defer close(done)
		for !over.Load() {
			for _, tid := range tids {
				if hasEnded(tid) {
					collect(tid, false)
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		over.Store(true)
		if !timer.Stop() {
			<-done
		}
	}
}
