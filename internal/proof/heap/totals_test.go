package heap

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestTotals: on an idle heap that grows step by step, up to 4 GB in the full form, all objects together are within 1 %
// of the collector's figure, and the types that the program counts have exactly the counted objects; with a stop and
// without.
func TestTotals(t *testing.T) {
	layer.Proof(t)
	sizes := layer.Size([]int{10, 100}, []int{10, 100, 1000, 4000})
	a := testenv.Start(t, "heap", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	want := truth(t, a)
	now := 0
	for _, megabytes := range sizes {
		if free := freeMegabytes(t); megabytes > free/2 {
			t.Logf("NOT TESTED, %d MB: the machine has %d MB of free memory", megabytes, free)
			continue
		}
		total := number(t, a.Ask(fmt.Sprintf("bulk %d", megabytes-now))[0])
		now = megabytes
		for _, stop := range []bool{false, true} {
			h := take(t, p, clrsnap.HeapOptions{Stop: stop, MaxPause: time.Minute})
			frozen := h.Generation(snapshot.FrozenObjects).Objects.Bytes // the collector does not count frozen objects
			mine := h.Objects().Bytes - frozen
			off := math.Abs(float64(mine)-float64(total)) / float64(total)
			t.Logf("%d MB, stop %v: %d bytes, %.3f %% off, read in %v; %+v", megabytes, stop, mine, 100*off,
				h.Duration, h.Stop)
			if off > 0.01 {
				t.Errorf("%d MB, stop %v: %d bytes, and the collector says %d", megabytes, stop, mine, total)
			}
			fillers := snapshot.HeapAmount{Count: uint64(megabytes) * 10_000, Bytes: uint64(megabytes) * 10_000 * 40}
			if got := amounts(h)["Shop.Filler"]; got != fillers {
				t.Errorf("%d MB, stop %v: %+v fillers, not %+v", megabytes, stop, got, fillers)
			}
			if d := differing(h, want); len(d) > 0 || h.ConsistentShare != 1 {
				t.Errorf("%d MB, stop %v: other numbers of %q; %.3f consistent", megabytes, stop, d, h.ConsistentShare)
			}
			if stop && (!h.Stop.Exact || h.Stop.Unfinished != 0 || h.Stop.Pause > h.Duration) {
				t.Errorf("%d MB: %+v, in %v", megabytes, h.Stop, h.Duration)
			}
		}
	}
	if now == 0 {
		t.Error("NOTHING WAS TESTED: the machine has too little free memory")
	}
	livetest.EndsWell(t, a)
}

// freeMegabytes is the machine's free memory.
func freeMegabytes(t *testing.T) int {
	t.Helper()
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		t.Fatal(err)
	}
	return int(i.Freeram * uint64(i.Unit) >> 20)
}
