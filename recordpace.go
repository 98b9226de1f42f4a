package clrsnap

import (
	"cmp"
	"slices"
	"time"
)

// pace keeps an activity within a share of a processor.
type pace struct {
	share  float64
	used   func() time.Duration // CPU time so far, of whatever counts
	credit time.Duration        // that may be used
	at     time.Duration        // when credit was right
	mark   time.Duration        // used() at that time
}

// maxCredit is for how long credit is saved up.
const maxCredit = 100 * time.Millisecond

// begin counts what has been earned and used since the last time.
func (p *pace) begin(now time.Duration) {
	used := p.used()
	if p.at > 0 {
		p.credit += time.Duration(p.share*float64(now-p.at)) - (used - p.mark)
	} else {
		p.credit = time.Duration(p.share * float64(maxCredit))
	}
	limit := time.Duration(p.share * float64(maxCredit))
	p.credit = max(-10*limit, min(p.credit, limit))
	p.at, p.mark = now, used
}

// spent reports whether nothing is left of the credit.
func (p *pace) spent() bool { return p.used()-p.mark >= p.credit }

// slicesSortByLast puts those first that have waited longest for their turn.
func slicesSortByLast(ts []*recordedThread) {
	slices.SortFunc(ts, func(a, b *recordedThread) int { return cmp.Compare(a.wall.last, b.wall.last) })
}
