package why

import (
	"math"
	"testing"
)

// TestServed: the share of the ready time in which threads had a CPU.
func TestServed(t *testing.T) {
	for _, c := range []struct{ ran, ready, want float64 }{{0.6, 0.2, 0.75}, {0.1, 0.9, 0.1}, {0.5, 0, 1}, {0, 0, 1}} {
		e := same(4, running(1, "Shop.Orders.Add")).runs(1, c.ran, c.ready)
		if got := e.Served(); math.Abs(got-c.want) > 0.001 {
			t.Errorf("%v of the time on a CPU and %v ready: %v, want %v", c.ran, c.ready, got, c.want)
		}
	}
}
