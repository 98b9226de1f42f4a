package record

import "time"

// haste raises the priority of a recording while it does not get a CPU in time. At the priority of everything else it
// wakes up without taking the CPU from a thread in the middle of its work: that costs a web server more than the CPU
// time that the recording uses. Where more threads compute than there are CPUs it would come too late for samples.
type haste struct {
	raise  func(high bool) // sets the priority
	raised bool
	until  time.Duration // when the priority is thought about again
	late   time.Duration // how late it has woken up since the last time, in all
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
	h.set(true)
}

// woken is called when a wait has ended that was to end at due at the latest.
func (h *haste) woken(now, due time.Duration) {
	h.late += max(0, now-due-timerStep)
	switch {
	case h.late >= lateMost:
		h.until = max(h.until, now+hasteLasts)
		h.set(true)
	case now >= h.until:
		h.until = now + hasteWindow
		h.set(false)
	default:
		return
	}
	h.late = 0
}

func (h *haste) set(high bool) {
	if high != h.raised {
		h.raised = high
		h.raise(high)
	}
}
