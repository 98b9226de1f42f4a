package snapshot

import (
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	if p := (&Snapshot{}).Pauses(); p != (Pauses{}) {
		t.Errorf("nothing was stopped: %v", p)
	}
	if p := SumPauses([]time.Duration{7}); p != (Pauses{1, 7, 7, 7}) {
		t.Errorf("one: %v", p)
	}
	var stops []time.Duration
	for i := range time.Duration(200) {
		stops = append(stops, 200-i)
	}
	if p := SumPauses(stops); p != (Pauses{200, 100, 198, 200}) {
		t.Errorf("1 to 200: %v", p)
	}
	if stops[0] != 200 {
		t.Error("the order of the stops was changed")
	}
}
