package record_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
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

// TestNativeAOTRecordNewest samples a native AOT program of the newest .NET without its symbols. The
// program says in which method each of its threads waits.
func TestNativeAOTRecordNewest(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("cp", testenv.AheadOfTimeNewest(t, "hello"), alone).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid, said := testenv.StartAheadOfTimeNewest(t, alone)
	waits := map[int]string{} // by thread
	for _, line := range said {
		if words := strings.Fields(line); len(words) >= 5 && words[0] == "thread" {
			id, err := strconv.Atoi(words[2])
			if err != nil {
				t.Fatal(err)
			}
			waits[id] = "Hello.Program." + words[4]
		}
	}
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	seen := map[int]bool{}
	for end := time.Now().Add(testenv.Hang); len(seen) < len(waits) && time.Now().Before(end); {
		r := livetest.Recorded(t, p,
			record.Options{Modes: []profile.Mode{profile.Wall}, Rate: 99, Duration: time.Second})
		for i := range r.Samples {
			x := &r.Samples[i]
			thread := r.Threads[x.Thread].OSThreadID
			want := waits[thread]
			if x.Incomplete || want == "" {
				continue
			}
			seen[thread] = true
			if !isIn(r, x.Node, want) {
				t.Fatalf("a sample of thread %d is not in %s", thread, want)
			}
		}
	}
	if len(waits) != 5 || len(seen) != len(waits) {
		t.Errorf("%d of %d threads have samples", len(seen), len(waits))
	}
}

// isIn reports whether a method of the program hello is on a stack.
func isIn(r *profile.Recording, node int32, method string) bool {
	for l := range r.Stack(node) {
		f := r.Functions[l.Function]
		if f.Kind == snapshot.Managed && f.Method == method && f.Signature == "()" && f.Module == "hello" {
			return true
		}
	}
	return false
}

// calledBack is checkCalledBack for a recorded stack, which may go on in the kernel.
func calledBack(r *profile.Recording, node int32, library string) bool {
	var methods []string
	for l := range r.Stack(node) {
		f := r.Functions[l.Function]
		if f.Kind == snapshot.Kernel {
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
