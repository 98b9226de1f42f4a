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
	count  readyCount
}

// readyCount compares how late a recording was with how long it was ready to run without a CPU.
type readyCount struct {
	at     time.Duration // when the comparison began
	before time.Duration // what haste.ready was then
	late   time.Duration // since then, in all
}

const (
	timerStep   = time.Millisecond      // what a timer may be late by itself
	lateMost    = 10 * time.Millisecond // in a window, at the priority of everything else
	hasteWindow = 200 * time.Millisecond
	hasteLasts  = 10 * time.Second // the same, when it was late
	readyEvery  = time.Second      // how often a comparison begins anew
)

// begin raises the priority until a time, as when recording begins most is to be done.
func (h *haste) begin(now, until time.Duration) {
	h.until = until
	h.compare(now)
	h.set(true)
}

// woken is called when a wait has ended that was to end at due at the latest.
func (h *haste) woken(now, due time.Duration) {
	late := max(0, now-due-timerStep)
	h.late, h.count.late = h.late+late, h.count.late+late
	switch {
	case h.late >= lateMost && h.hadNoCPU(now):
		h.until = max(h.until, now+hasteLasts)
		h.set(true)
	case now >= h.until:
		h.until = now + hasteWindow
		h.set(false)
	case h.late < lateMost:
		return
	}
	h.late = 0
	if now >= h.count.at+readyEvery {
		h.compare(now)
	}
}

// compare begins a comparison.
func (h *haste) compare(now time.Duration) { h.count = readyCount{at: now, before: h.ready()} }

// hadNoCPU reports whether it was late because it was given no CPU.
func (h *haste) hadNoCPU(now time.Duration) bool {
	late, before := h.count.late, h.count.before
	h.compare(now)
	ready := h.count.before - before
	return h.count.before == 0 || ready < 0 || 2*ready >= late // below 0: a thread has ended, whose time is missing
}

func (h *haste) set(high bool) {
	if high != h.raised {
		h.raised = high
		h.raise(high)
	}
}
