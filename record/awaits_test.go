package record_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestAwaits records a program with async methods that block threads, or use a CPU for a few
// milliseconds at a time: the awaiting methods are as the program says, with the lines of their
// awaits.
func TestAwaits(t *testing.T) {
	testenv.EachOf(t, []string{testenv.DefaultRuntime, testenv.NewestRuntime}, checkAwaits)
}

func checkAwaits(t *testing.T, runtime string) {
	a := testenv.Start(t, "tasks", testenv.Options{
		Runtime: runtime, Args: []string{"--running", "--busy", "5000", "--loops", "1"},
	})
	p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
	blocked := map[string]string{}
	for _, truth := range a.Ask("truths") {
		name, methods, _ := strings.Cut(truth, "\t")
		methods, _, _ = strings.Cut(methods, "\t>") // the waiter of the outermost method
		blocked[name] = methods
	}
	seen := map[string]bool{}
	running, awaited := 0, 0
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{
			Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: 199, Duration: 2 * time.Second,
		})
		for i := range r.Samples {
			s := &r.Samples[i]
			methods := awaiting(r, s.Node)
			if want, ok := blocked[r.Threads[s.Thread].Name]; ok && s.Mode == profile.Wall &&
				s.State == profile.Waiting {
				if name := r.Threads[s.Thread].Name; !seen[name] {
					seen[name] = true
					if !sameMethods(methods, strings.Split(want, "\t")) {
						t.Errorf("%s: %q, want %q", name, methods, want)
					}
				}
			}
			if s.Mode == profile.CPU && calls(r, s.Node, "Tasks.Busy.LoadStock{async}", snapshot.Managed) {
				running++
				if awaitsStock(t, methods, calls(r, s.Node, "Tasks.Busy.HandleOrder{async}", snapshot.Managed)) {
					awaited++
				}
			}
		}
		if len(seen) < len(blocked) || running < 20 || awaited < running/2 {
			return fmt.Sprintf("%d of %d chains; %d of %d samples", len(seen), len(blocked), awaited, running)
		}
		return ""
	})
	t.Logf("%d blocked chains; %d of %d samples of LoadStock have what awaits it", len(seen), awaited, running)
	livetest.EndsWell(t, a)
}

// awaitsStock checks the methods that await Busy.LoadStock, and reports whether a sample has all these methods.
// inStack: Busy.HandleOrder did not have to wait, and is in the stack.
func awaitsStock(t *testing.T, methods []string, inStack bool) bool {
	t.Helper()
	switch {
	case len(methods) == 0:
		return false
	case inStack:
		methods = append([]string{"Busy.HandleOrder: in the stack"}, methods...)
	}
	if len(methods) == 1 && strings.HasPrefix(methods[0], "Busy.HandleOrder:") {
		return false // Busy.Serve does not await yet: its thread waits for a CPU
	}
	if len(methods) != 2 || !strings.HasPrefix(methods[0], "Busy.HandleOrder:") ||
		!strings.HasPrefix(methods[1], "Busy.Serve:") {
		t.Errorf("LoadStock is awaited by %q", methods)
	}
	return true
}

// TestAwaitsRuntimeAsync records a program with methods suspended by the runtime itself: below a
// resumed method, on a blocked thread or on a busy thread, are its awaiting methods.
func TestAwaitsRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--running", "--busy", "5000", "--loops", "1"},
			Compile: livetest.RuntimeAsync,
		})
		p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
		blocked := map[string]bool{}
		for _, truth := range a.Ask("truths") {
			name, _, _ := strings.Cut(truth, "\t")
			blocked[name] = false
		}
		running, awaited, stubs := 0, 0, 0
		testenv.UntilSeen(t, func() string {
			r := livetest.Recorded(t, p, record.Options{
				Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: 199, Duration: 2 * time.Second,
			})
			for i := range r.Samples {
				s := &r.Samples[i]
				methods := awaiting(r, s.Node)
				name := r.Threads[s.Thread].Name
				_, ok := blocked[name]
				if ok && s.Mode == profile.Wall && s.State == profile.Waiting && len(methods) > 0 {
					if blocked[name] = true; !strings.HasPrefix(methods[len(methods)-1], "Running.Root:") {
						t.Errorf("%s: %q", name, methods)
					}
				}
				if s.Mode != profile.CPU || !calls(r, s.Node, "Tasks.Busy.LoadStock", snapshot.Managed) {
					continue
				}
				running++
				if !awaitsStock(t, methods, calls(r, s.Node, "Tasks.Busy.HandleOrder", snapshot.Managed)) {
					continue
				}
				awaited++
				if stub, before := resumedBy(r, s.Node); stub {
					if stubs++; !before {
						t.Error("what awaits LoadStock is shown behind the stub that has resumed it")
					}
				}
			}
			for name, is := range blocked {
				if !is {
					return "what awaits " + name
				}
			}
			if len(blocked) < 40 || running < 20 || awaited < running/2 || stubs == 0 {
				return fmt.Sprintf("%d of %d samples, %d with a stub, %d chains", awaited, running, stubs, len(blocked))
			}
			return ""
		})
		t.Logf("%d of %d samples of LoadStock have what awaits it, %d a stub", awaited, running, stubs)
		livetest.EndsWell(t, a)
	})
}

// resumedBy reports whether a stack has the runtime's stub for resuming methods, and whether awaiting
// methods come before the stub, from the leaf on.
func resumedBy(r *profile.Recording, node int32) (stub, before bool) {
	for l := range r.Stack(node) {
		f := &r.Functions[l.Function]
		if before = before || f.Kind == snapshot.Async; f.Method == "IL_STUB_AsyncResume" {
			return true, before
		}
	}
	return false, before
}

// TestAwaitsOfEvents records the events of async methods that have been suspended: the awaiting
// methods are as the program says, with the lines of their awaits.
func TestAwaitsOfEvents(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		checkAwaitsOfEvents(t, testenv.Options{Runtime: runtime, Args: []string{"--raising"}}, 4)
	})
}

// TestAwaitsOfEventsOptimized: the same for code that was optimised at once, with its arguments in
// registers.
func TestAwaitsOfEventsOptimized(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		checkAwaitsOfEvents(t, testenv.Options{
			Runtime: runtime, Args: []string{"--raising"}, Env: []string{"DOTNET_TieredCompilation=0"},
		}, 4)
	})
}

// TestAwaitsOfEventsCollecting: while the collector moves objects all the time, the shown methods are
// right.
func TestAwaitsOfEventsCollecting(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		checkAwaitsOfEvents(t, testenv.Options{
			Runtime: runtime, Args: []string{"--raising", "--collect", "--pause", "2"},
		}, 2)
	})
}

// TestAwaitsOfEventsRuntimeAsync: the same for methods suspended by the runtime itself, also while the
// collector moves objects all the time.
func TestAwaitsOfEventsRuntimeAsync(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    testenv.Options
		most int
		want []string
	}{
		{"tiered", testenv.Options{Args: []string{"--raising"}}, 4, resumedExactly},
		{
			"optimised", testenv.Options{Args: []string{"--raising"}, Env: []string{"DOTNET_TieredCompilation=0"}}, 4,
			resumedExactly,
		},
		{"compiled before", testenv.Options{Args: []string{"--raising"}, ReadyToRun: true}, 4, resumedExactly},
		{"collecting", testenv.Options{Args: []string{"--raising", "--collect", "--pause", "2"}}, 2, resumedExactly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
				tt.o.Runtime = runtime
				tt.o.Compile = livetest.RuntimeAsync
				checkAwaitsOfEvents(t, tt.o, tt.most, tt.want...)
			})
		})
	}
}

// resumedExactly are methods of shared generic code that need their type arguments after the await.
var resumedExactly = []string{"Levels.Generic<string>", "Held<string>.Go", "Held<string>.Two", "OfClass<string>.Go"}

// checkAwaitsOfEvents records the events of a program. In each mode at most one sample in so many may
// lack its awaiting methods: clrsnap learns the way to them from the first samples, and some samples
// come during collections. want are methods that must be met with their type arguments.
func checkAwaitsOfEvents(t *testing.T, o testenv.Options, most int, want ...string) {
	t.Helper()
	a := testenv.Start(t, "tasks", o)
	p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
	monitor := events.MonitorAllocations | events.MonitorExceptions | events.MonitorContention
	if testenv.Framework(o.Runtime) != "net8" {
		monitor |= events.MonitorWaits
	}
	truths := map[string][]string{}
	for _, truth := range a.Ask("truths") {
		words := strings.Split(truth, "\t")
		truths[words[0]] = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, ">") })
	}
	var e awaitsOfEvents
	lasts := 3 * time.Second // beside other programs there are fewer events, but no fewer to learn from
	testenv.UntilSeen(t, func() string {
		e = awaitsOfEvents{map[profile.Mode]looks{}, map[string]bool{}, map[string]bool{}}
		e.compare(t, livetest.Recorded(t, p, record.Options{
			Duration: lasts, Events: events.Options{Monitor: monitor, AllocationBytes: 100 << 10},
		}), truths)
		lasts *= 2
		for mode, c := range e.counts {
			if (c.all-c.shown)*most > c.all {
				return fmt.Sprintf("%v: %d of %d have what awaits them", mode, c.shown, c.all)
			}
		}
		if modes := bits.OnesCount(uint(monitor)); len(e.counts) != modes || len(e.chains) != len(truths) {
			missing := slices.DeleteFunc(slices.Sorted(maps.Keys(truths)), func(c string) bool { return e.chains[c] })
			return fmt.Sprintf("%d of %d modes, no %q", len(e.counts), modes, missing)
		}
		for _, name := range want {
			if !e.methods[name] {
				return "no " + name
			}
		}
		return ""
	})
	t.Logf("samples, and those that have what awaits them: %v", e.counts)
	livetest.EndsWell(t, a)
}

// awaitsOfEvents is the result of a recording: by mode the number of samples, and of samples with
// awaiting methods; the chains, and the awaiting methods.
type awaitsOfEvents struct {
	counts  map[profile.Mode]looks
	chains  map[string]bool
	methods map[string]bool
}

type looks struct{ all, shown int }

// compare compares the samples of a recording with the program's words.
func (e *awaitsOfEvents) compare(t *testing.T, r *profile.Recording, truths map[string][]string) {
	t.Helper()
	for i := range r.Samples {
		s := &r.Samples[i]
		name := r.Threads[s.Thread].Name
		want, ok := truths[name]
		leaf := calls(r, s.Node, "Tasks.Running.Leaf{async}", snapshot.Managed)
		resumed := calls(r, s.Node, "Tasks.Running.Leaf", snapshot.Managed)
		if !ok || !leaf && !resumed {
			continue
		}
		c := e.counts[s.Mode]
		c.all++
		if got := awaiting(r, s.Node); len(got) > 0 {
			c.shown++
			e.chains[name] = true
			for _, method := range got {
				method, _, _ = cutLine(method)
				e.methods[method] = true
			}
			if leaf && !sameMethods(got, want) || resumed && !sameResumed(got, want) {
				t.Errorf("%s, %v: %q, want %q", name, s.Mode, got, want)
			}
		}
		e.counts[s.Mode] = c
	}
}

// awaiting returns the awaiting frames of a stack, with their lines, as the program notes them.
func awaiting(r *profile.Recording, node int32) (out []string) {
	for l := range r.Stack(node) {
		f := &r.Functions[l.Function]
		if f.Kind != snapshot.Async {
			continue
		}
		name, _, _ := strings.Cut(f.Short, "{async")
		if at := strings.Index(name, "{lambda "); at >= 0 {
			name = name[:at] + "{lambda}"
		}
		line := 0
		if l.Line > 0 {
			line = int(r.Lines[l.Line].Line)
		}
		out = append(out, name+":"+strconv.Itoa(line))
	}
	return out
}

// sameMethods compares methods with the program's words. There, line 0 stands for any line.
func sameMethods(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool {
		name, any := strings.CutSuffix(w, ":0")
		return g == w || any && strings.HasPrefix(g, name+":")
	})
}

// sameResumed is sameMethods for methods suspended by the runtime itself: a line may be unknown, and
// so may type arguments of shared code.
func sameResumed(got, want []string) bool {
	for _, g := range got {
		name, line, _ := cutLine(g)
		wanted, at := "", ""
		if len(want) > 0 {
			wanted, at, _ = cutLine(want[0])
		}
		if strings.Contains(name, "__Canon") {
			name, wanted = livetest.SharedName(name), livetest.SharedName(wanted)
		}
		if name != wanted {
			if slices.Contains(livetest.PassOn, name) {
				continue
			}
			return false
		}
		if line != at && line != "0" && at != "0" {
			return false
		}
		want = want[1:]
	}
	return len(want) == 0
}

// cutLine cuts a method of awaiting into its name and its line.
func cutLine(method string) (name, line string, ok bool) {
	at := strings.LastIndexByte(method, ':')
	if at < 0 {
		return method, "0", false
	}
	return method[:at], method[at+1:], true
}

// calls reports whether a stack has a function.
func calls(r *profile.Recording, node int32, display string, kind snapshot.Kind) bool {
	for l := range r.Stack(node) {
		if f := &r.Functions[l.Function]; f.Kind == kind && f.Display == display {
			return true
		}
	}
	return false
}
