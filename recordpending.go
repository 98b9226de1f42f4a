package clrsnap

import (
	"errors"
	"time"

	"clrsnap/internal/target/live"
)

// pendingProcess is a process of which it is not known yet whether .NET will run
// in it: one that has only just started.
type pendingProcess struct {
	pid  int
	opts Options
	next time.Duration // when to look again
	wait time.Duration
	err  error // why it cannot be recorded, for good
}

// A process is looked at again soon at first, because .NET starts within 50 ms.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// expect waits for .NET in a process.
func (r *recorder) expect(pid int, o Options) {
	r.pending = append(r.pending, &pendingProcess{pid: pid, opts: o, next: r.now, wait: firstLook})
}

// openPending looks at the processes that may run .NET by now.
func (r *recorder) openPending() {
	left := r.pending[:0]
	for _, w := range r.pending {
		if r.now < w.next {
			left = append(left, w)
			continue
		}
		p, err := OpenWith(w.pid, w.opts)
		switch {
		case err == nil:
			rp := r.add(p)
			rp.owned = true
			rp.update()
		case final(err):
			if !gone(err) && r.failed == nil {
				r.failed = err
			}
			r.forget(w.pid)
		default:
			w.next, w.wait = r.now+w.wait, min(2*w.wait, lastLook)
			left = append(left, w)
		}
	}
	clear(r.pending[len(left):])
	r.pending = left
}

// forget drops what was kept for a process that is not recorded.
func (r *recorder) forget(pid int) {
	if r.cpu != nil {
		r.cpu.forget(pid)
	}
}

// final reports whether an error of Open will not go away by waiting.
func final(err error) bool {
	return gone(err) || errors.Is(err, live.ErrPermission) || errors.Is(err, live.ErrArch) || errors.Is(err, ErrUnsupported)
}

// gone reports whether an error of Open means that the process has ended.
func gone(err error) bool {
	return errors.Is(err, live.ErrNoProcess) || errors.Is(err, live.ErrZombie) || errors.Is(err, live.ErrExited)
}
