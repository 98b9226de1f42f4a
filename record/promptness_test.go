package record

import "testing"

func TestPromptness(t *testing.T) {
	tests := []struct {
		name                   string
		missing, promptMissing int // of 100 methods that were looked at late, and at once
		want                   []bool
	}{
		{"methods that take long", 5, 0, []bool{false, false}},
		{"methods that end soon", 60, 10, []bool{true, true}},
		{"methods that end at once", 90, 60, []bool{true, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rp := &recordedProcess{frames: &frameTable{}}
			var p promptness
			a := &rp.frames.awaits
			for i, missing := range []int{tt.missing, tt.promptMissing} {
				a.sampled.all += 100
				a.sampled.missing += missing
				if got := p.wanted([]*recordedProcess{rp}); got != tt.want[i] {
					t.Errorf("step %d: got %v, want %v", i, got, tt.want[i])
				}
			}
			a.sampled.all, a.sampled.missing = a.sampled.all+1000, a.sampled.missing+10
			if got := p.wanted([]*recordedProcess{rp}); got != tt.want[1] {
				t.Errorf("later: got %v, want %v", got, tt.want[1])
			}
		})
	}
}

// TestFleeting: each sample is looked at as long as more than one in five methods are still there,
// then one sample in eight.
func TestFleeting(t *testing.T) {
	var f fleeting
	count := func(samples, missing int) (wanted int) {
		for range samples {
			if f.wanted() {
				f.seen(looks{1, missing})
				wanted++
			}
		}
		return wanted
	}
	if n := count(fleetingAfter, 1); n != fleetingAfter {
		t.Errorf("%d of the first %d", n, fleetingAfter)
	}
	if n := count(80, 1); n != 10 {
		t.Errorf("%d of 80, of which none is there", n)
	}
	count(10_000, 1)
	if n := count(1000, 0); n < 500 {
		t.Errorf("%d of 1000, of which all are there", n)
	}
}
