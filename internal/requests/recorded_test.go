package requests_test

import (
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/moments"
	"clrsnap/internal/requests"
	"clrsnap/internal/target/recorded"
	"clrsnap/snapshot"
)

// TestRecordedRequests: the requests of a recorded web server, what each does, and its calls of another server.
func TestRecordedRequests(t *testing.T) {
	want := map[string]string{
		"/source/{id}": "waiting TaskCompletionSource", "/delay/{id}": "waiting timer",
		"/semaphore/{id}": "waiting semaphore", "/several/{id}": "waiting TaskCompletionSource",
		"/thread/{id}": "waiting ManualResetEventSlim.Wait", "/thread-later/{id}": "waiting ManualResetEventSlim.Wait",
		"/task/{id}": "waiting ManualResetEventSlim.Wait", "/upstream/{id}": "calls",
		"/answering/{id}": "waiting TaskCompletionSource",
	}
	moments.Each(t, "requests", func(t *testing.T, m *recorded.Moment) {
		r := moments.At[*snapshot.Requests](t, m, moments.Requests)
		requests := map[string]int{}
		for i := range r.Requests {
			g := &r.Requests[i]
			d := &g.Doing
			text := string(d.State)
			switch {
			case d.Call != nil:
				text = "calls"
			case d.Wait != nil:
				text += " " + string(d.Wait.Kind)
			case d.WaitsFor != nil:
				text += " " + string(d.WaitsFor.Kind)
			}
			if want[g.Path] != text {
				t.Errorf("%s: %q, want %q", g.Path, text, want[g.Path])
			}
			if !slices.ContainsFunc(d.Frames, func(f snapshot.Frame) bool {
				return strings.HasPrefix(f.Method, "Requests.Hanging")
			}) {
				t.Errorf("%s: none of its %d frames is its own", g.Path, len(d.Frames))
			}
			for _, x := range g.Requests {
				requests[g.Path]++
				if x.Method != "GET" || x.Query != "?key=secret" || x.Protocol != "HTTP/1.1" || x.Since.IsZero() ||
					x.Answering != (g.Path == "/answering/{id}") {
					t.Errorf("%+v", x)
				}
			}
		}
		all := 0
		for path := range want {
			if requests[path] == 0 {
				t.Errorf("no request of %s", path)
			}
			all += requests[path]
		}
		if all != len(m.Truths) {
			t.Errorf("%d requests, want %d", all, len(m.Truths))
		}
		calls := map[snapshot.CallPhase]int{}
		for i := range r.Calls {
			calls[r.Calls[i].Phase] += len(r.Calls[i].Calls)
		}
		if calls[snapshot.CallAnswer] != 2 || len(calls) != 2 || len(r.Pools) != 1 {
			t.Errorf("calls %v, pools %+v", calls, r.Pools)
		}
	})
}

// TestRecordedService: the failed background service of a recorded program is a failed task, with its exception.
func TestRecordedService(t *testing.T) {
	moments.Each(t, "hosted", func(t *testing.T, m *recorded.Moment) {
		f := moments.At[*requests.InFlight](t, m, moments.InFlight)
		if f.Tasks == nil || len(f.Tasks.Faults) == 0 {
			t.Fatalf("%+v", f.Tasks)
		}
		if x := &f.Tasks.Faults[0]; x.Service != "Depot.StockSync" || x.Exception == nil ||
			x.Exception.Message != "the warehouse does not answer" {
			t.Errorf("%+v, exception %+v", x, x.Exception)
		}
	})
}
