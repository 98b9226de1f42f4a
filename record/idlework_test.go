package record_test

import (
	"fmt"
	"slices"
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

// TestIdleIsNotWork: without idle threads, a recording of a web server has all code of the program and
// of Kestrel, no spinning worker, and no waiting thread of the runtime. The runtime's work on its own
// behalf has a name.
func TestIdleIsNotWork(t *testing.T) {
	testenv.EachAspNet(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "web", testenv.Options{
			Runtime: runtime, Env: []string{"DOTNET_gcServer=1", "DOTNET_GCgen0size=100000"},
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		defer livetest.Visit(t, a)()
		seen := idleSeen{idle: map[profile.Mode]time.Duration{}}
		testenv.UntilSeen(t, func() string {
			r := livetest.Recorded(t, p, record.Options{Modes: both, Rate: 199, Duration: 2 * time.Second})
			seen.idleSamples(t, r)
			seen.work(t, r)
			return seen.missing()
		})
		t.Logf("%+v", seen)
	})
}

// idleSeen counts in recordings: samples of the async Main; samples of spinning workers, with
// everything inlined, and with code being compiled; the time in which the runtime compiles methods
// again; and idle time.
type idleSeen struct {
	mains, spinning, inlined, compiling int
	tiering                             time.Duration
	idle                                map[profile.Mode]time.Duration
}

// missing is what the counts still lack: workers spin between two requests, and a program that has
// just started compiles methods again.
func (n *idleSeen) missing() string {
	switch {
	case n.mains == 0:
		return "the thread of the async Main, which is idle"
	case n.spinning == 0:
		return "a worker that spins"
	case n.idle[profile.CPU] == 0 || n.idle[profile.Wall] == 0:
		return fmt.Sprintf("idle time in each mode: %v", n.idle)
	case n.tiering == 0:
		return "tiered compilation"
	}
	return ""
}

// idleSamples requires that a sample is idle if and only if it is of a pool worker without a piece of
// work.
func (n *idleSeen) idleSamples(t *testing.T, r *profile.Recording) {
	t.Helper()
	for i := range r.Samples {
		x := &r.Samples[i]
		methods, jit := []string{}, false
		for l := range r.Stack(x.Node) {
			f := &r.Functions[l.Function]
			if jit = jit || f.Module == "libclrjit.so"; f.Kind == snapshot.Managed {
				methods = append(methods, f.Method)
			}
		}
		if r.Idle(x) == snapshot.IdleMain {
			n.mains++
			if !slices.Contains(methods, "Web.Program.<Main>") {
				t.Errorf("no async Main:\n%s", strings.Join(methods, "\n"))
			}
		}
		worker := slices.Index(methods, "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart")
		if x.Incomplete || worker < 0 {
			continue
		}
		atWork := slices.ContainsFunc(methods[:worker], func(m string) bool {
			return strings.HasPrefix(m, "System.Threading.ThreadPoolWorkQueue.Dispatch")
		})
		switch idle := r.Idle(x); {
		case idle != "" && (idle != snapshot.IdleWorker || atWork):
			t.Errorf("%q: %v\n%s", idle, x.State, strings.Join(methods, "\n"))
		case jit:
			n.compiling++
		case idle != "" && x.State == profile.Running:
			n.spinning++
			if worker == 0 {
				n.inlined++
			}
		case idle == "" && worker == 0 && x.State == profile.Running:
			t.Errorf("a worker that does nothing is not idle")
		}
	}
}

// inRuntime reports whether a running thread is in the runtime's own code: the first call of a method prepares the
// method, also below a wait.
func inRuntime(r *profile.Recording, x *profile.Sample) bool {
	for l := range r.Stack(x.Node) {
		return x.State == profile.Running && r.Functions[l.Function].Module == "libcoreclr.so"
	}
	return false
}

// stackText is a sample's stack, leaf first.
func stackText(r *profile.Recording, x *profile.Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %v\n", x.Mode, x.State)
	for l := range r.Stack(x.Node) {
		fmt.Fprintf(&b, "\t%s  %s\n", r.Functions[l.Function].Display, r.Functions[l.Function].Module)
	}
	return b.String()
}

// work looks at the basis of tables.
func (n *idleSeen) work(t *testing.T, r *profile.Recording) {
	t.Helper()
	work := r.Select(profile.Selection{Working: true, Roles: true})
	has := func(r *profile.Recording, m profile.Mode, name string) (weight int64) {
		for _, f := range r.Totals(m).Functions {
			if r.Functions[f.Function].Display == name {
				weight += f.Total.All().Weight
			}
		}
		return weight
	}
	for _, m := range r.SampledModes() {
		idle := int64(0)
		for _, k := range r.IdleTotals(m) {
			idle += k.Total.All().Weight
		}
		if got, want := work.Weight(m), r.Weight(m)-idle; got != want {
			t.Errorf("%v: %d are left of %d without %d", m, got, r.Weight(m), idle)
		}
		n.idle[m] += time.Duration(idle)
		for _, name := range []string{"Web.Orders.Price", "Common.App.WaitForEnd"} {
			if got, want := has(work, m, name), has(r, m, name); got != want {
				t.Errorf("%v: %s has %d of %d", m, name, got, want)
			}
		}
	}
	for i := range work.Samples {
		x := &work.Samples[i]
		role := work.Threads[x.Thread].Role
		if waits := framesOf(work, x, "System.Threading.LowLevelLifoSemaphore.Wait"); waits > 0 && !x.Incomplete &&
			work.Function(x.Node).Display != "[JIT]" && !inRuntime(work, x) {
			t.Errorf("an idle worker is still there:\n%s", stackText(work, x))
		}
		if !x.Mode.OfEvents() && (role == "GC" || role == "Tiered compilation") {
			first := ""
			for l := range work.Stack(x.Node) {
				first = work.Functions[l.Function].Display
			}
			if want := map[string]string{"GC": "[GC]",
				"Tiered compilation": "[tiered compilation]"}[role]; first != want {
				t.Errorf("%s begins with %q", role, first)
			}
		}
		if x.Mode == profile.Wall && role == "GC" && x.State == profile.Waiting {
			t.Error("a thread of the garbage collector that waits is not idle")
		}
	}
	t.Logf("CPU time: [GC] %v, [JIT] %v, [tiered compilation] %v", time.Duration(has(work, profile.CPU, "[GC]")),
		time.Duration(has(work, profile.CPU, "[JIT]")), time.Duration(has(work, profile.CPU, "[tiered compilation]")))
	n.tiering += time.Duration(has(work, profile.CPU, "[tiered compilation]"))
	if has(work, profile.CPU, "[libclrjit.so]") > 0 {
		t.Error("the JIT compiler has no name")
	}
}
