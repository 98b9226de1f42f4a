package record

import (
	"cmp"
	"context"
	"time"

	"clrsnap/internal/session"
)

// pendingProcess is a process that may still start .NET.
type pendingProcess struct {
	pid   int
	born  bool // the process was started since the recording began
	since time.Duration
	next  time.Duration // when to look again
}

// lookAgain is how long to wait before another look at a process. .NET runs within 50 ms of a
// program's start, or much later if a program that is not .NET loads it.
func (w *pendingProcess) lookAgain(now time.Duration) time.Duration {
	switch age := now - w.since; {
	case age < time.Second:
		return 10 * time.Millisecond
	case age < 10*time.Second:
		return 50 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// expect adds a process to the pending processes; born: the process was started since the recording
// began. It returns false for a process that cannot be recorded.
func (r *recorder) expect(pid int, born bool) bool {
	if r.refused[pid] {
		return false
	}
	for _, w := range r.pending {
		if w.pid == pid {
			return true
		}
	}
	if r.recorded(pid) == nil {
		r.pending = append(r.pending, &pendingProcess{pid: pid, born: born, since: r.now})
		if r.cpu != nil {
			r.cpu.follow(pid)
		}
	}
	return true
}

// openPending records the pending processes that run .NET by now.
func (r *recorder) openPending() {
	left := r.pending[:0]
	for _, w := range r.pending {
		if r.now < w.next {
			left = append(left, w)
			continue
		}
		p, err := session.Open(context.Background(), w.pid, r.opts)
		switch {
		case err == nil:
			rp := r.add(p)
			if rp.owned = true; w.born {
				rp.cpu = 0
			}
			rp.update()
			if r.events != nil {
				r.events.opened(rp)
			}
		case session.Permanent(err):
			if !session.Exited(err) {
				r.failed = cmp.Or(r.failed, err)
				r.refused[w.pid] = true
			} else if r.cpu != nil {
				r.cpu.ended(w.pid)
			}
			r.forget(w.pid)
			if r.events != nil {
				r.events.forget(w.pid)
			}
		default:
			w.next = r.now + w.lookAgain(r.now)
			left = append(left, w)
		}
	}
	clear(r.pending[len(left):])
	r.pending = left
}

// forget drops the held samples of a process that is not recorded.
func (r *recorder) forget(pid int) {
	if r.cpu != nil {
		r.cpu.forget(pid)
	}
}
