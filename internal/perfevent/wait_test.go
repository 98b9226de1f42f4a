package perfevent

import (
	"math/rand/v2"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

// TestShortWaits: a wait ends, even if its time is over before the wait begins.
func TestShortWaits(t *testing.T) {
	layer.Live(t)
	var w waiter
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	const waits = 50_000
	done := make(chan int, waits)
	go func() {
		defer close(done)
		for n := range waits {
			end := monotonic() + time.Duration(rand.Int64N(int64(30*time.Microsecond)))
			woken, err := w.until(end, func() bool { return false })
			if err != nil || woken || monotonic() < end {
				t.Errorf("wait %d: woken %t, %v", n, woken, err)
				return
			}
			done <- n
		}
	}()
	last := -1
	for {
		select {
		case n, ok := <-done:
			if !ok {
				return
			}
			last = n
		case <-time.After(hang):
			t.Fatalf("the wait after the %dth does not end", last+1)
		}
	}
}
