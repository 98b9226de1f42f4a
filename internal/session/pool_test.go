package session

import (
	"errors"
	"testing"
)

// TestLooked: however much a hostile process claims to have queued, so much is looked at, and the time counts.
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
