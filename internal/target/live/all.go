package live

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CaptureAll stops all threads that reqs name, copies them while all of them
// stand still, and lets them go: what was copied belongs to one instant. out
// and errs have the length of reqs. A thread that does not stop within the
// limit (Process.AllLimit) is left out, with ErrNotStopping in errs; the
// Tracer is lost then. Pause is that of the whole batch.
func (t *Tracer) CaptureAll(reqs []Request, out []Capture, errs []error) error {
	if t.lost {
		return ErrTracerLost
	}
	out, errs = out[:len(reqs)], errs[:len(reqs)]
	for len(t.many) < len(reqs) {
		t.many = append(t.many, &tracee{})
	}
	tes := t.many[:len(reqs)]
	for i := range reqs {
		tes[i].tid, tes[i].pid = uintptr(reqs[i].TID), uintptr(t.p.pid)
		tes[i].phase, tes[i].errno = phaseFree, 0
		errs[i] = tes[i].copier.prepare(t.p, &reqs[i], &out[i])
	}
	limit := t.p.AllLimit
	if limit <= 0 {
		limit = DefaultAllLimit
	}
	stop := startReaper(tes, limit)
	pause := stopAll(tes, errs, limit)
	stop()
	for i, te := range tes {
		if errs[i] == nil {
			errs[i] = t.conclude(te, &reqs[i], &out[i], pause)
		}
	}
	return nil
}

// stopAll does the work between the first stop and the last release.
func stopAll(tes []*tracee, errs []error, limit time.Duration) time.Duration {
	start := time.Now()
	for i, te := range tes {
		if errs[i] == nil {
			te.seize()
		}
	}
	for _, te := range tes {
		if te.phase == phaseWaiting {
			te.interrupt()
		}
	}
	awaitAll(tes, start.Add(limit))
	for _, te := range tes {
		if te.phase == phaseStopped {
			te.take()
		}
	}
	for _, te := range tes {
		if te.phase == phaseStopped {
			te.release()
		}
	}
	return time.Since(start)
}

// awaitAll waits until every thread has stopped or died. The dead are collected
// at once: a thread that executes another program waits for that.
func awaitAll(tes []*tracee, deadline time.Time) {
	for round := 0; ; round++ {
		waiting := 0
		for _, te := range tes {
			if te.phase != phaseWaiting {
				continue
			}
			switch te.poll(); te.phase {
			case phaseWaiting:
				waiting++
			case phaseExited:
				if te.tid != te.pid {
					te.reap()
					te.phase, te.errno = phaseFree, unix.ESRCH
				}
			}
		}
		switch {
		case waiting == 0 || !time.Now().Before(deadline):
			return
		case round < naps:
			ts := unix.Timespec{Nsec: napTime} // whoever has not stopped yet may need this processor
			_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		default:
			ts := unix.NsecToTimespec(50_000)
			_ = unix.Nanosleep(&ts, nil)
		}
	}
}

// startReaper is the watchdog over seizing many threads. A thread of the target
// that executes another program waits (de_thread in fs/exec.c) until the others
// are dead and collected, which is up to us for those that we have seized, and
// holds a lock that our next PTRACE_SEIZE sleeps on. So somebody else of our
// process has to collect them: any thread of ours may.
func startReaper(tes []*tracee, limit time.Duration) (stop func()) {
	tids := make([]uintptr, 0, len(tes))
	for _, te := range tes {
		if te.tid != te.pid {
			tids = append(tids, te.tid)
		}
	}
	var over atomic.Bool
	done := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(done)
		for !over.Load() {
			for _, tid := range tids {
				(&tracee{tid: tid}).reap()
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		over.Store(true)
		if !timer.Stop() {
			<-done
		}
		runtime.KeepAlive(tids)
	}
}
