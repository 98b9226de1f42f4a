package gather

import (
	"testing"

	"clrsnap/internal/requests"
)

// TestMoved: the collector has moved the objects of waits if as many waits as before are all at other addresses. Waits
// at old addresses, fewer waits and other waits tell nothing.
func TestMoved(t *testing.T) {
	look := func(from uint64, n int, key uint64) *FlightLook {
		waits := map[uint64]requests.WaitingChain{}
		for i := range uint64(n) {
			waits[from+i] = requests.WaitingChain{Key: key, For: from + 100 + i}
		}
		return &FlightLook{InFlight: &requests.InFlight{Waiting: waits}}
	}
	before, one := look(1000, 12, 7), look(5000, 12, 7)
	delete(one.Waiting, 5011)
	one.Waiting[1011] = before.Waiting[1011]
	for _, tt := range []struct {
		what  string
		after *FlightLook
		want  bool
	}{
		{"moved", look(5000, 12, 7), true}, {"the same", look(1000, 12, 7), false},
		{"one is the same", one, false}, {"more", look(5000, 13, 7), false},
		{"of another method", look(5000, 12, 8), false},
	} {
		if got := moved(before, tt.after); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
	if moved(look(1000, 9, 7), look(5000, 9, 7)) {
		t.Error("so few waits may be as many by chance")
	}
}
