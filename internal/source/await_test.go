package source

import "testing"

func TestStateBefore(t *testing.T) {
	stores := []StateStore{{10, 0}, {40, -1}, {90, 1}, {130, -1}}
	for il, want := range map[uint32]int32{0: -1, 10: -1, 11: 0, 40: 0, 41: -1, 91: 1, 500: -1} {
		if got := stateBefore(stores, il); got != want {
			t.Errorf("%d: %d, want %d", il, got, want)
		}
	}
}
