package pace

import (
	"sync"
	"time"
)

// Allowance bounds an amount, for example the bytes read from a source that may be hostile. The
// amount taken comes back as time passes, so that a long look is not left without. An Allowance is
// safe for concurrent use.
type Allowance struct {
	most, perSecond int64

	mu     sync.Mutex
	left   int64
	filled time.Time
}

// NewAllowance returns an Allowance from which nothing has been taken.
func NewAllowance(most, perSecond int64) *Allowance {
	return &Allowance{most: most, perSecond: perSecond, left: most, filled: time.Now()}
}

// Take takes n; false: less than n is left now, and nothing was taken.
func (a *Allowance) Take(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < n {
		a.fill(time.Now())
	}
	if n < 0 || a.left < n {
		return false
	}
	a.left -= n
	return true
}

// Left is how much is left now.
func (a *Allowance) Left() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill(time.Now())
	return a.left
}

func (a *Allowance) fill(now time.Time) {
	const longest = time.Hour // so that nothing overflows
	more := int64(min(now.Sub(a.filled), longest).Seconds() * float64(a.perSecond))
	if more > 0 {
		a.left, a.filled = min(a.left+more, a.most), now
	}
}
