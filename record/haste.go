package record

import "time"

// haste raises the priority of a recording that does not get a CPU in time. At normal priority, the
// recording wakes up without taking the CPU from a thread in the middle of its work: a stolen CPU
// costs a web server more than the CPU time of the recording. Where more threads compute than there
// are CPUs, the wake would come too late for samples. A recording that was late because a signal had
// stopped it, or because the machine had stood still, gains nothing from a higher priority.
type haste struct {
	raise  func(high bool)      // sets the priority
	ready  func() time.Duration // how long the recording has been ready to run without a CPU, in all; 0: nobody counts
	raised bool
	until  time.Duration // when to reconsider the priority
	late   time.Duration // how late the recording has woken up since the last time, in all
	count  readyCount
}

// readyCount compares how late a recording was with how long it was ready to run without a CPU.
type readyCount struct {
	at     time.Duration // when the comparison began
	before time.Duration // the value of haste.ready then
	late   time.Duration // since then, in all
}

const (
	timerStep   = time.Millisecond      // how late a timer may be by itself
	lateMost    = 10 * time.Millisecond // in a window, at normal priority
	hasteWindow = 200 * time.Millisecond
	hasteLasts  = 10 * time.Second // the same, after late wakes
	readyEvery  = time.Second      // how often a comparison begins anew
)

// begin raises the priority until a time: when recording begins, there is most work.
func (h *haste) begin(now, until time.Duration) {
	h.until = until
	h.compare(now)
	h.set(true)
}

// woken is called after a wait that was to end at due at the latest.
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

// hadNoCPU reports whether the recording was late because it was given no CPU.
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
