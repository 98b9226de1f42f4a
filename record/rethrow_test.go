package record_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
)

// recordWays records the program rethrow, which throws exceptions in some ways, from its start to its
// end.
func recordWays(t *testing.T, runtime, ways string, o events.Options, compile ...string) *profile.Recording {
	t.Helper()
	kit := testenv.Kit(t)
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
	defer cancel()
	cmd := exec.Command(kit.Host(runtime), testenv.BuildWith(t, "rethrow", runtime, compile...), "--ways", ways)
	cmd.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
	o.Monitor |= events.MonitorExceptions
	r, err := record.Command(ctx, cmd, clrsnap.Options{Async: true}, record.Options{Events: o})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return r
}

var lambdaNumber = regexp.MustCompile(`\{lambda \w+\}`)

// thrown counts the exceptions of a recording by their leaf.
func thrown(r *profile.Recording) map[string]int64 {
	out := map[string]int64{}
	for i := range r.Samples {
		for l := range r.Stack(r.Samples[i].Node) {
			f := &r.Functions[l.Function]
			fate := lambdaNumber.ReplaceAllString(f.Fate, "{lambda}")
			out[f.Display+" ("+f.Module+"), "+fate] += r.Samples[i].Weight
			break
		}
	}
	return out
}

// TestRethrown: an exception counts once, with the stack of its first throw and with its last catcher,
// however often it is thrown again.
func TestRethrown(t *testing.T) {
	const ways = "once,again,throw-ex,filter,finally,new,wrap,dispatch,async,async-slow,async-collect,async-kept," +
		"async-alone,async-early,async-before,wait,all,never-thrown,thread,handler,stored,null,same-place"
	const class, by = "System.InvalidOperationException (System.Private.CoreLib), caught by ", "Rethrow.Program."
	const core = " (System.Private.CoreLib), caught by "
	want := map[string]int64{
		class + "System.Threading.Tasks.Task.ExecuteWithThreadLocal":  1,
		"System.ApplicationException" + core + by + "Wrapped":         1,
		"System.AggregateException" + core + by + "Waits":             1,
		"System.NullReferenceException" + core + by + "NullReference": 1,
	}
	for method, n := range map[string]int64{
		"Once": 1, "Again": 2, "ThrowEx": 1, "Filtered": 1, "Finally": 1, "NewInHandler": 2, "Wrapped": 1,
		"Dispatch": 1, "Async{async}": 1, "AsyncSlow{async}": 1, "AsyncCollect{async}": 1, "Kept{async}": 1,
		"Alone{async}": 1, "L1{async}": 1, "Before{async}": 1, "All{async}": 1, "L3{async}": 3,
		"NeverThrown{async}": 1, "OtherThread{lambda}": 1, "OtherThreadInHandler": 1,
		"OtherThreadInHandler{lambda}": 1, "Stored": 2, "SamePlace{async}": 2,
	} {
		want[class+by+method] = n
	}
	checkThrown := func(t *testing.T, r *profile.Recording, want map[string]int64) {
		t.Helper()
		got := thrown(r)
		for k := range got {
			if got[k] != want[k] {
				t.Errorf("%q: %d, not %d", k, got[k], want[k])
			}
		}
		for k := range want {
			if got[k] == 0 {
				t.Errorf("%q is missing", k)
			}
		}
	}
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		t.Run("runtime-async", func(t *testing.T) {
			times := int64(10)
			testenv.UntilSeen(t, func() string {
				times *= 2
				const ways = "once,async,async-slow,async-collect,async-alone,async-early,async-before,all," +
					"never-thrown,same-place,async-kept %d"
				r := recordWays(t, runtime, fmt.Sprintf(ways, times), events.Options{}, livetest.RuntimeAsync...)
				got := thrown(r)
				// L3 has thrown three exceptions before its suspension: two of All, and one of Before. As long as
				// the caller that awaits L3 is not known, L3 is the only known method of the task of Kept.
				const early, likely = 3, profile.LikelyCatcher
				first := got[class+by+"L3"+likely] - early
				if first == times {
					return fmt.Sprintf("%d exceptions, and nothing is known to await the methods that throw", times)
				}
				want := map[string]int64{class + by + "L3" + likely: early + first, class + by + "L1" + likely: 1}
				for method, n := range map[string]int64{
					"Once": 1, "Async": 1, "AsyncSlow": 1, "AsyncCollect": 1, "Alone": 1, "Before": 1, "All": 1,
					"NeverThrown": 1, "SamePlace": 2, "Kept": times - first,
				} {
					want[class+by+method] = n
				}
				if alone := class + by + "Alone"; got[alone+likely] > 0 { // as with L3
					delete(want, alone)
					want[alone+likely] = 1
				}
				checkThrown(t, r, want)
				return ""
			})
		})
	})
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		r := recordWays(t, runtime, ways, events.Options{})
		checkThrown(t, r, want)
		const rethrows = 29
		if m, _ := r.Mode(profile.Exception); m.Rethrown != rethrows || m.Seen != int64(m.Samples) {
			t.Errorf("%d rethrows, not %d; %d samples of %d", m.Rethrown, rethrows, m.Samples, m.Seen)
		}
		summary := strings.Join(report.RecordingSummary(r), "\n")
		if line := "exception: 33 exceptions; 33 samples, and 29 rethrows"; !strings.Contains(summary, line) {
			t.Errorf("%s lacks %q", summary, line)
		}
	})
}

// TestRethrownChosen: if not every exception is recorded, the recorded exceptions still count once,
// and have their last catcher.
func TestRethrownChosen(t *testing.T) {
	layer.Live(t)
	const times, every = 600, 3
	r := recordWays(t, testenv.DefaultRuntime, fmt.Sprintf("async %d,again %d", times, times),
		events.Options{ExceptionEvery: every, RingBytes: 4 << 20})
	m, _ := r.Mode(profile.Exception)
	if m.Lost > 0 || m.Seen != 2*times {
		t.Errorf("%d exceptions, and %d is true; %d are lost", m.Seen, 2*times, m.Lost)
	}
	got := thrown(r)
	const class, by = "System.InvalidOperationException (System.Private.CoreLib), caught by ", "Rethrow.Program."
	for _, method := range []string{"Async{async}", "Again"} {
		// A third of 600 throws is chosen, give or take: five standard deviations are 173.
		if n := got[class+by+method]; n < times-180 || n > times+180 {
			t.Errorf("%d exceptions caught by %s, and %d is true: %v", n, method, times, got)
		}
	}
	// The garbage collector may have moved an exception, which then seems to end at its first handler.
	if others := int64(m.Samples)*every - got[class+by+"Async{async}"] - got[class+by+"Again"]; others > times/20 {
		t.Errorf("%d exceptions have another end: %v", others, got)
	}
	// Three rethrows by await are seen for every exception, two by "throw;" for chosen exceptions.
	if n := m.Rethrown; n < 3*times+2*(times-180) || n > 3*times+2*(times+180) {
		t.Errorf("%d rethrows, and %d is true", n, 5*times)
	}
}

// TestMessages: messages are recorded by value, with bounds to their length and their number.
func TestMessages(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		r := recordWays(t, runtime, "once 3,overridden,nested-type,null,async,hostile 1200",
			events.Options{RingBytes: 16 << 20})
		if m, _ := r.Mode(profile.Exception); m.Lost > 0 {
			t.Fatalf("%d exceptions are lost", m.Lost)
		}
		got, hostile := map[string]int64{}, int64(0)
		for _, m := range r.Messages.Counts {
			if strings.HasPrefix(m.Text, "\x1b[31mred\r\nline\u202e \ufffd ") {
				if n := len([]rune(m.Text)); !m.Cut || m.Count != 1 || n != 256 {
					t.Errorf("%d times, cut: %v, %d characters", m.Count, m.Cut, n)
				}
				hostile++
				continue
			}
			if m.Cut {
				t.Errorf("%q is cut", m.Text)
			}
			got[m.Type+" ("+m.Module+"): "+m.Text] += m.Count
		}
		if want := map[string]int64{
			"System.InvalidOperationException (System.Private.CoreLib): once":  3,
			"System.InvalidOperationException (System.Private.CoreLib): async": 1,
			"Rethrow.Overridden (rethrow): stored":                             1,
			"Rethrow.Outer+Nested (rethrow): nested":                           1,
			"System.NullReferenceException (System.Private.CoreLib): " +
				"Object reference not set to an instance of an object.": 1,
		}; !maps.Equal(got, want) {
			t.Errorf("the messages are %v, not %v", got, want)
		}
		if n := hostile + r.Messages.Others; n != 1200 || r.Messages.Others < 200 || len(r.Messages.Counts) != 1000 {
			t.Errorf("%d different messages, %d others", len(r.Messages.Counts), r.Messages.Others)
		}
		var table bytes.Buffer
		if err := report.Top(&table, r, report.TopOptions{Terminal: report.Terminal{Width: 80}, Rows: 3}); err != nil {
			t.Fatal(err)
		}
		if text := table.String(); !strings.Contains(text, "\n           3  InvalidOperationException: once\n") ||
			strings.ContainsAny(text, "\x1b\r\u202e") || strings.Contains(text, strings.Repeat("x", 80)) {
			t.Errorf("the table is %q", text)
		}
		r = recordWays(t, runtime, "once", events.Options{NoMessages: true})
		if m, _ := r.Mode(profile.Exception); m.Samples != 1 || len(r.Messages.Counts) != 0 || r.Messages.Others != 0 {
			t.Errorf("%d exceptions, with the messages %+v, which were not asked for", m.Samples, r.Messages)
		}
	})
}

// TestFirstEvents: exceptions have their module from the first exception on, also in an attached
// running program.
func TestFirstEvents(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "events", testenv.Options{
			Runtime: runtime, Args: []string{"--kinds", "exception", "--max-seconds", "300"},
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		r := livetest.Recorded(t, p, record.Options{
			Duration: 500 * time.Millisecond, Events: events.Options{Monitor: events.MonitorAll, RingBytes: 8 << 20},
		})
		n := 0
		for i := range r.Functions {
			f := &r.Functions[i]
			if f.Fate == "" {
				continue
			}
			if n++; f.Module == "" {
				t.Errorf("%s, %s has no module", f.Display, f.Fate)
			}
		}
		if n == 0 {
			t.Error("no exceptions")
		}
		for _, m := range r.Messages.Counts {
			if m.Module == "" {
				t.Errorf("%s with the message %q has no module", m.Type, m.Text)
			}
		}
	})
}
