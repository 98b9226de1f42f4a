package pace

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAllowance: no more is given than there is, and the amount comes back.
func TestAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAllowance(100, 10)
		if !a.Take(70) || a.Take(31) || !a.Take(30) || a.Take(1) || a.Take(-1) {
			t.Error("not 100 were given")
		}
		time.Sleep(2 * time.Second)
		if got := a.Left(); got != 20 || a.Take(21) || !a.Take(20) {
			t.Errorf("after two seconds %d are left, want 20", got)
		}
		time.Sleep(24 * 365 * time.Hour)
		if got := a.Left(); got != 100 {
			t.Errorf("after a year %d are left, want 100", got)
		}
	})
}

// TestAllowanceShared: several concurrent takers get no more together.
func TestAllowanceShared(t *testing.T) {
	const most, takers = 100_000, 8
	a := NewAllowance(most, 0)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range takers {
		all.Go(func() {
			for a.Take(1) {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != most {
		t.Errorf("%d were given of %d", taken.Load(), most)
	}
}
