package tasks

import (
	"errors"
	"testing"
)

// TestLooked: the number of reads has a bound, however much a hostile process claims to have queued, and so has the
// time.
func TestLooked(t *testing.T) {
	for _, tt := range []struct {
		name    string
		stopped bool
		most    int
	}{{"all", false, maxLooked}, {"stopped", true, 1023}} {
		t.Run(tt.name, func(t *testing.T) {
			q := queued{stopped: func() bool { return tt.stopped }}
			n := 0
			for q.another() == nil {
				if n++; n > maxLooked {
					t.Fatal("it does not end")
				}
			}
			if n != tt.most || !errors.Is(q.another(), errTooMuch) {
				t.Errorf("%d", n)
			}
		})
	}
}
