package record

import "time"

// haste raises the priority of a recording while it does not get a CPU in time. At the priority of everything else it
// wakes up without taking the CPU from a thread in the middle of its work: that costs a web server more than the CPU
// time that the recording uses. Where more threads compute than there are CPUs it would come too late for samples.
// Whoever was late because a signal had stopped him, or because the machine had stood still, gains nothing.
type haste struct {
	raise  func(high bool)      // sets the priority
	ready  func() time.Duration // how long it has been ready to run without a CPU, in all; 0: nobody counts that
	raised bool
	until  time.Duration // when the priority is thought about again
	late   time.Duration // how late it has woken up since the last time, in all

	lateSince   time.Duration // the same, since
	readyBefore time.Duration // ready was asked last
}

const (
	timerStep   = time.Millisecond      // what a timer may be late by itself
	lateMost    = 10 * time.Millisecond // in a window, at the priority of everything else
	hasteWindow = 200 * time.Millisecond
	hasteFirst  = time.Second      // a higher priority when the recording begins: most is to be done then
	hasteLasts  = 10 * time.Second // the same, when it was late
)

func (h *haste) begin(now time.Duration) {
	h.until = now + hasteFirst
	h.readyBefore = h.ready()
	h.set(true)
}

// woken is called when a wait has ended that was to end at due at the latest.
func (h *haste) woken(now, due time.Duration) {
	late := max(0, now-due-timerStep)
	h.late, h.lateSince = h.late+late, h.lateSince+late
	switch {
	case h.late >= lateMost && h.hadNoCPU():
		h.until = max(h.until, now+hasteLasts)
		h.set(true)
	case now >= h.until:
		h.until = now + hasteWindow
		h.set(false)
	case h.late < lateMost:
		return
	}
	h.late = 0
}

// hadNoCPU reports whether it was late because it was given no CPU.
func (h *haste) hadNoCPU() bool {
	ready := h.ready()
	had := ready == 0 || (ready-h.readyBefore)*2 >= h.lateSince
	h.readyBefore, h.lateSince = ready, 0
	return had
}

func (h *haste) set(high bool) {
	if high != h.raised {
		h.raised = high
		h.raise(high)
	}
}
