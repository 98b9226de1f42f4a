package clrsnap

import "time"

// pace keeps an activity within a share of a processor.
type pace struct {
	share  float64
	used   func() time.Duration // CPU time so far, of whatever counts
	credit time.Duration        // that may be used
	at     time.Duration        // when credit was right
	mark   time.Duration        // used() when the activity last began
}

// maxCredit is for how long credit is saved up.
const maxCredit = 100 * time.Millisecond

// begin counts what has been earned since the last time. What is used from now on,
// until end, counts.
func (p *pace) begin(now time.Duration) {
	limit := p.limit()
	if p.at > 0 {
		p.credit += time.Duration(p.share * float64(now-p.at))
	} else {
		p.credit = limit
	}
	p.credit = min(p.credit, limit)
	p.at, p.mark = now, p.used()
}

// end counts what has been used since begin. Not more is owed than a second brings:
// whatever that was, such as a collection of garbage, was not the activity.
func (p *pace) end() {
	used := p.used()
	p.credit = max(-10*p.limit(), p.credit-(used-p.mark))
	p.mark = used
}

func (p *pace) limit() time.Duration { return time.Duration(p.share * float64(maxCredit)) }

// spent reports whether nothing is left of the credit.
func (p *pace) spent() bool { return p.used()-p.mark >= p.credit }
