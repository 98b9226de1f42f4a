package record_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestNativeAOTRecord samples native AOT code while it uses a processor.
func TestNativeAOTRecord(t *testing.T) {
	pid := testenv.StartAheadOfTime(t, "spin")
	library := filepath.Base(testenv.AheadOfTime(t))
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := livetest.Recorded(t, p, record.Options{Modes: both, Rate: 199, Duration: time.Second})
	for _, m := range both {
		var all, whole int64
		for i := range r.Samples {
			x := &r.Samples[i]
			if x.Mode != m || r.Threads[x.Thread].OSThreadID != pid {
				continue
			}
			all += x.Weight
			if !x.Incomplete && calledBack(r, x.Node, library) {
				whole += x.Weight
			}
		}
		if all == 0 || float64(whole) < .99*float64(all) {
			t.Errorf("%v: %v of %v have the whole stack (%v)", m, time.Duration(whole), time.Duration(all), r.Notes)
		}
	}
}

// calledBack is checkCalledBack for a recorded stack, which may go on in the kernel.
func calledBack(r *profile.Recording, node int32, library string) bool {
	var methods []string
	for l := range r.Stack(node) {
		f := r.Functions[l.Function]
		if f.Kind == profile.Kernel {
			continue
		}
		if f.Module == library && f.Method == "" {
			f.Method = "managed"
		}
		methods = append(methods, f.Method)
	}
	callee, entry := slices.Index(methods, "napi_create_string_utf16"), slices.Index(methods, "napi_register_module_v1")
	other := func(m string) bool { return m != "managed" }
	return callee == 0 && entry > 3 && !slices.ContainsFunc(methods[1:entry], other) &&
		slices.Contains(methods[entry:], "main")
}
