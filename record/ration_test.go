package record

import (
	"testing"
	"time"
)

// TestRation: once in so much time, and a few times at once after a pause.
func TestRation(t *testing.T) {
	const every, saved = time.Second, 3
	var r ration
	count := func(now time.Duration) (n int) {
		for ; n < 100 && r.left(now, every, saved); n++ {
			r.take(every)
		}
		return n
	}
	for _, c := range []struct {
		now  time.Duration
		want int
	}{
		{time.Hour, saved}, {time.Hour, 0}, {time.Hour + every/2, 0}, {time.Hour + every, 1}, {time.Hour + 3*every, 2},
		{2 * time.Hour, saved},
	} {
		if got := count(c.now); got != c.want {
			t.Errorf("at %v: %d times, want %d", c.now, got, c.want)
		}
	}
}
