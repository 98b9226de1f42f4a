package elfx

import (
	"errors"
	"sync"
	"time"
)

// Budget bounds the memory and the reads that all images of one target together may
// cost: a hostile target may have files made to exhaust us. Concurrent use is safe.
type Budget struct {
	mu     sync.Mutex
	kept   int64 // bytes
	unread int64 // bytes left for reads
	filled time.Time

	pages pages
}

// Bounds of a Budget, in bytes. A large service, with all of its symbols, needs a tenth
// of maxKept. The allowance for reads is refilled over time, for long observations.
const (
	maxKept       = 48 << 20
	forImages     = 16 << 20 // part of maxKept reserved for the images themselves: not for symbols
	maxRead       = 256 << 20
	readPerSecond = 32 << 20

	imageCosts = 16 << 10 // an open image, besides its tables
	readCosts  = 1 << 10  // a read, besides its bytes
)

// ErrBudget: the images of one target are too large, or too many.
var ErrBudget = errors.New("the symbol and unwind tables of the program's modules are larger than clrsnap's bound")

// NewBudget returns an unused budget.
func NewBudget() *Budget { return &Budget{unread: maxRead, filled: time.Now()} }

// keep takes n bytes, if so many are left besides the reserve.
func (b *Budget) keep(n, reserve int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept+n+reserve > maxKept {
		return ErrBudget
	}
	b.kept += n
	return nil
}

// give gives n bytes back.
func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept -= n
}

// read takes a read of n bytes from the allowance; ErrBudget: too little is left.
func (b *Budget) read(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n += readCosts
	if b.unread < n {
		now := time.Now()
		if more := min(now.Sub(b.filled), time.Minute).Milliseconds() * (readPerSecond / 1000); more > 0 {
			b.unread, b.filled = min(b.unread+more, maxRead), now
		}
	}
	if b.unread < n {
		return ErrBudget
	}
	b.unread -= n
	return nil
}
