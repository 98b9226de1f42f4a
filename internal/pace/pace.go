// Package pace keeps activities within bounds over time: within a share of a CPU, or within an amount that comes back.
package pace

import "time"

// Pace keeps an activity within a share of a CPU. The activity earns CPU time as time passes,
// and spends it between Begin and End.
type Pace struct {
	Share float64              // of one CPU: 0.1 for a tenth; more than 1 for several CPUs
	Used  func() time.Duration // CPU time used so far, by the thread or process that counts
	// a clock to use instead as long as little time passes; nil: none. The clock goes on while
	// others have the CPU, but a read of the clock takes a fraction of the time.
	Clock  func() time.Duration
	credit time.Duration // CPU time that the activity may use
	at     time.Duration // when credit was brought up to date
	mark   time.Duration // Used() when the activity last began, unless timed
	began  time.Duration // Clock() when the activity last began, if timed
	timed  bool          // the Clock counts, not Used
}

// maxCredit bounds the time for which credit can be saved up.
const maxCredit = 100 * time.Millisecond

// Begin starts the activity, and adds the credit earned since the last Begin. now is any monotonic
// time.
func (p *Pace) Begin(now time.Duration) {
	limit := p.limit()
	if p.at > 0 {
		p.credit += time.Duration(p.Share * float64(now-p.at))
	} else {
		p.credit = limit
	}
	p.credit = min(p.credit, limit)
	p.at = now
	if p.timed = p.Clock != nil && p.credit >= limit/2; p.timed {
		p.began = p.Clock()
	} else {
		p.mark = p.Used()
	}
}

// soon is the part of the credit that the Clock may count: a quarter.
const soon = 4

// tell goes on with CPU time if the Clock has gone on for too long. The CPU time used by then is
// not known: at most the time that has passed, and most likely not more than the largest credit.
func (p *Pace) tell() {
	if !p.timed {
		return
	}
	if passed := p.Clock() - p.began; passed > p.credit/soon {
		p.credit -= min(passed, p.limit())
		p.timed, p.mark = false, p.Used()
	}
}

// End ends the activity, and subtracts the CPU time used since Begin. The debt is at most what a
// second earns: a larger amount was not used by the activity, but by a garbage collection, say.
func (p *Pace) End() {
	if p.tell(); p.timed {
		p.credit -= p.Clock() - p.began
		return
	}
	used := p.Used()
	p.credit = max(-10*p.limit(), p.credit-(used-p.mark))
	p.mark = used
}

func (p *Pace) limit() time.Duration { return time.Duration(p.Share * float64(maxCredit)) }

// Spent reports whether the activity has used up the credit, and has to stop.
func (p *Pace) Spent() bool {
	p.tell()
	return !p.timed && p.Used()-p.mark >= p.credit
}
