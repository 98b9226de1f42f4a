// Package pace keeps an activity within a share of a CPU.
package pace

import "time"

// Pace keeps an activity within a share of a CPU.
type Pace struct {
	Share  float64
	Used   func() time.Duration // CPU time so far, of whatever counts
	credit time.Duration        // that may be used
	at     time.Duration        // when credit was right
	mark   time.Duration        // Used() when the activity last began
}

// maxCredit is for how long credit is saved up.
const maxCredit = 100 * time.Millisecond

// Begin counts what has been earned since the last time. What is used from now on,
// until end, counts.
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

// End counts what has been used since begin. Not more is owed than a second brings:
// whatever that was, such as a collection of garbage, was not the activity.
func (p *Pace) End() {
	used := p.Used()
	p.credit = max(-10*p.limit(), p.credit-(used-p.mark))
	p.mark = used
}

func (p *Pace) limit() time.Duration { return time.Duration(p.Share * float64(maxCredit)) }

// Spent reports whether nothing is left of the credit.
func (p *Pace) Spent() bool { return p.Used()-p.mark >= p.credit }
