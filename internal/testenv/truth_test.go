package testenv

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// eachRuntime runs a test on every runtime of the kit that events and ordeal are
// meant for.
func eachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	EachOf(t, []string{"net10", "net11", "net9"}, test)
}

// counts sums up truths.
type counts []Truth

func (c counts) sum(kind string, methods ...string) (count, amount int64) {
	for _, t := range c {
		wanted := len(methods) == 0
		for _, m := range methods {
			wanted = wanted || t.Method == m
		}
		if t.Kind == kind && wanted {
			count, amount = count+t.Count, amount+t.Amount
		}
	}
	return count, amount
}

// TestEventsShort compares the counts of the program with each other and with those of
// the runtime.
func TestEventsShort(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		a := Start(t, "events", Options{Runtime: runtime, NoReady: true, Args: []string{"--short"}})
		if result, code := a.Wait(); result != "OK" || code != 0 {
			t.Fatalf("result %q, exit code %d\n%s", result, code, a.Stderr())
		}
		c := counts(a.Truths)

		thrown, _ := c.sum("exception")
		again, _ := c.sum("rethrow")
		caught, _ := c.sum("catch")
		uncaught, _ := c.sum("exception", "Events.Throw.Lose", "Events.Throw.InFilter")
		if uncaught == 0 || again == 0 || thrown+again != caught+uncaught {
			t.Errorf("%d exceptions, %d thrown again: %d caught, %d never", thrown, again, caught, uncaught)
		}

		collections, _ := c.sum("gc")
		if all := int64(a.Counts["gen-0"]); collections != all {
			t.Errorf("%d collections counted, the runtime had %d", collections, all)
		}

		for _, method := range []string{"MonitorShort", "MonitorLong", "LockShort", "LockLong"} {
			waits, ns := c.sum("contention", "Events.Contend."+method)
			held, heldNS := c.sum("holder", "Events.Contend."+method)
			if waits == 0 || ns == 0 || waits != held || ns != heldNS {
				t.Errorf("%s: %d waits of %d ns, of which %d of %d ns for a known thread", method, waits, ns,
					held, heldNS)
			}
		}

		for _, method := range []string{"Named", "Unnamed", "LongRunning"} {
			if n, _ := c.sum("thread", "Events.Starts."+method); n == 0 {
				t.Errorf("%s has started no thread", method)
			}
		}
	})
}

// TestEventsAlloc requires nearly all bytes that the process allocates to be
// counted by class and method.
func TestEventsAlloc(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		a := Start(t, "events", Options{Runtime: runtime, Args: []string{"--kinds", "alloc"}})
		before, truths := a.AskTruths()
		_, first := counts(truths).sum("alloc")
		for last := first; last < 50e6; {
			time.Sleep(100 * time.Millisecond) // its answers are not counted, and few
			var now time.Duration
			now, truths = a.AskTruths()
			_, bytes := counts(truths).sum("alloc")
			if first == 0 || now <= before || bytes < last {
				t.Fatalf("%d bytes at %v, then %d at %v", last, before, bytes, now)
			}
			before, last = now, bytes
		}
		if result, code := a.Stop(); result != "OK" || code != 0 {
			t.Fatalf("result %q, exit code %d\n%s", result, code, a.Stderr())
		}
		all := int64(a.Counts["allocated-bytes"])
		if _, bytes := counts(a.Truths).sum("alloc"); bytes > all || float64(bytes) < .97*float64(all) {
			t.Errorf("%d bytes counted of %d", bytes, all)
		}
	})
}

func TestEventsThroughput(t *testing.T) {
	a := Start(t, "events", Options{Args: []string{"--throughput"}})
	result, code := a.Stop()
	if result != "OK" || code != 0 || a.Counts["units-per-second"] == 0 {
		t.Errorf("result %q, exit code %d, counts %v\n%s", result, code, a.Counts, a.Stderr())
	}
}

// TestOrdealLasts requires the rounds of the program to come out right with
// nobody around.
func TestOrdealLasts(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		for _, mode := range []string{"faults", "gcstress", "churn", "all"} {
			for _, env := range []string{"DOTNET_gcServer=0", "DOTNET_gcServer=1"} {
				t.Run(mode+" "+env, func(t *testing.T) {
					a := Start(t, "ordeal",
						Options{Runtime: runtime, Args: []string{"--mode", mode}, Env: []string{env}})
					if result, code := a.Stop(); result != "OK" || code != 0 {
						t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
					}
					if len(a.Loads) == 0 {
						t.Error("no rounds")
					}
				})
			}
		}
	})
}

// TestOrdealDies requires the program to die as a .NET program does.
func TestOrdealDies(t *testing.T) {
	const aborted, terminated = 128 + 6, 128 + 15
	eachRuntime(t, func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			mode   string
			code   int
			stderr string
		}{
			{"overflow", aborted, "Stack overflow"},
			{"abort", aborted, "as it was told to"},
			{"unhandled", aborted, "thrown for nobody"},
			{"exit7", 7, ""},
			{"sigterm", terminated, ""},
		} {
			t.Run(tt.mode, func(t *testing.T) {
				a := Start(t, "ordeal", Options{Runtime: runtime, Args: []string{"--mode", tt.mode}})
				end := a.Stop
				if tt.mode == "sigterm" {
					if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					end = a.Wait
				}
				if result, code := end(); result != "" || code != tt.code || !strings.Contains(a.Stderr(), tt.stderr) {
					t.Errorf("result %q, exit code %d, want %d; stderr\n%s", result, code, tt.code, a.Stderr())
				}
			})
		}
	})
}

func TestParseTruthBad(t *testing.T) {
	for _, line := range []string{"", "gc M T 1", "gc M T 1 2 3", "gc M T x 1", "gc M T 1 x"} {
		if got, err := parseTruth(line); err == nil {
			t.Errorf("%q: got %+v, no error", line, got)
		}
	}
}
