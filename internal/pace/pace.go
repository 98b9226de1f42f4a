// Package pace keeps activities within bounds over time: within a share of a CPU, or within an amount that comes back.
package pace

import "time"

// Pace keeps an activity within a share of a CPU. The activity earns CPU time as time passes,
// and spends it between Begin and End.
type Pace struct {
	Share  float64              // of one CPU: 0.1 for a tenth; more than 1 for several CPUs
	Used   func() time.Duration // CPU time used so far, by the thread or process that counts
	credit time.Duration        // CPU time that the activity may use
	at     time.Duration        // when credit was brought up to date
	mark   time.Duration        // Used() when the activity last began
}

// maxCredit is for how much time credit can be saved up.
const maxCredit = 100 * time.Millisecond

// Begin starts the activity: it adds what has been earned since the last Begin. now is any
// monotonic time.
func (p *Pace) Begin(now time.Duration) {
	limit := p.limit()
	if p.at > 0 {
		p.credit += time.Duration(p.Share * float64(now-p.at))
	} else {
		p.credit = limit
	}
	p.credit = min(p.credit, limit)
	p.at, p.mark = now, p.Used()
}

// End ends the activity: it subtracts the CPU time used since Begin. The debt is at most what a
// second earns: a larger amount was not used by the activity, but by a garbage collection, say.
func (p *Pace) End() {
	used := p.Used()
	p.credit = max(-10*p.limit(), p.credit-(used-p.mark))
	p.mark = used
}

func (p *Pace) limit() time.Duration { return time.Duration(p.Share * float64(maxCredit)) }

// Spent reports whether the activity has used up its credit, and is to stop.
func (p *Pace) Spent() bool { return p.Used()-p.mark >= p.credit }
