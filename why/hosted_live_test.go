package why_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/why"

	"golang.org/x/sys/unix"
)

// TestFaults: unobserved failed tasks are told with the exception, each kind once. Failed tasks are no verdict.
func TestFaults(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "stalls", testenv.Options{Runtime: runtime, Args: []string{"--of", "faults"}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: time.Second, NoAgent: true})
			for i := range r.Verdicts {
				t.Errorf("false: %s", shows(&r.Verdicts[i]))
			}
			if len(r.Exceptions) == 0 {
				return "failed tasks"
			}
			var all string
			for _, e := range r.Exceptions {
				all += shows(&profile.Verdict{Text: e.Text, Evidence: []profile.Evidence{e}}) + "\n"
			}
			for _, s := range []string{"3 calls of Depot.Methods.Consume{async} have ended with " +
				"System.InvalidOperationException: the queue is closed; nobody has observed the exception; the task " +
				"is kept by static field Depot.Methods.failed",
				"Depot.Methods.Take{async}", "1 call of Depot.Methods.Count has ended with System.ArgumentException"} {
				if !strings.Contains(all, s) {
					t.Errorf("%q is not in %s", s, all)
				}
			}
			for _, s := range []string{"TimeoutException", "OperationCanceledException", "of Depot.Methods.Take"} {
				if strings.Contains(all, s) {
					t.Errorf("%q is in %s", s, all)
				}
			}
			return ""
		})
	})
}

// TestServices: failed background services, and endless stops and starts, are told. A service after the end of its work
// is not, and a slow start is not.
func TestServices(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of     string
			cause  profile.Cause // "": nothing is wrong
			signal bool
			says   []string // in the verdict, or of the host
		}{
			{"failed", profile.CauseStalled, false, []string{
				"The background service Depot.StockSync has ended with an exception",
				"System.InvalidOperationException: the warehouse does not answer", "Depot.StockSync.Fetch",
			}},
			{"done", "", false, []string{"Depot.Migration has ended, without an exception"}},
			{"stop", profile.CauseShutdown, true, []string{"Depot.Exporter.", "Flush"}},
			{"stop", "", false, nil},
			{"deaf", profile.CauseShutdown, true, []string{"Depot.Pump.ExecuteAsync{async}", "waits for a channel"}},
			{"deaf", "", false, nil},
			{"start", profile.CauseStalled, false, []string{
				"The host has not started: the host waits for a service to start", "Depot.Berths.StartAsync{async}",
				"What starts after the service",
			}},
			{"starts", "", false, nil},
		} {
			t.Run(fmt.Sprint(tt.of, tt.signal), func(t *testing.T) {
				a := testenv.Start(t, "hosted", testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}})
				if tt.signal {
					if err := unix.Kill(a.PID, unix.SIGTERM); err != nil {
						t.Fatal(err)
					}
				}
				testenv.UntilSeen(t, func() string {
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					if tt.cause != "" && len(r.Verdicts) == 0 {
						return "a verdict"
					}
					for i := range r.Verdicts {
						v := &r.Verdicts[i]
						checkVerdict(t, v, v.Cause == tt.cause && v.Certainty == profile.Likely, tt.says)
					}
					for _, s := range tt.says {
						if tt.cause == "" && !strings.Contains(r.Activity.Host, s) {
							return s
						}
					}
					if tt.signal && !strings.Contains(r.Activity.Host, "it stops") {
						return "a host that stops"
					}
					return ""
				})
			})
		}
	})
}

// TestBlockedRequests: requests with blocked or sleeping threads stand still; requests with short sleeps end.
func TestBlockedRequests(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			path   string
			stands bool
			says   string
		}{
			{"sleep", true, "its thread, which sleeps, in Depot.Program.Pack"},
			{"block", true, "Depot.Program.Ask"},
			{"nap", false, ""},
		} {
			t.Run(tt.path, func(t *testing.T) {
				a := testenv.Start(t, "hosted", testenv.Options{Runtime: runtime})
				url := a.Ask("url")[0]
				stop := make(chan struct{})
				defer close(stop)
				const hang = 20
				for i := range hang {
					go func() { // again and again, if there is an answer
						for {
							r, err := http.Get(fmt.Sprintf("%s/%s/%d", url, tt.path, i))
							if err != nil {
								return // the program has ended
							}
							io.Copy(io.Discard, r.Body)
							r.Body.Close()
							select {
							case <-stop:
								return
							default:
							}
						}
					}()
				}
				livetest.Await(t, "requests have begun", func() bool { return answered(t, a, "BEGUN") >= hang })
				testenv.UntilSeen(t, func() string {
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					i := slices.IndexFunc(r.Verdicts, func(v profile.Verdict) bool {
						return v.Cause == profile.CauseStalled
					})
					switch {
					case !tt.stands && i >= 0:
						t.Errorf("false: %s", shows(&r.Verdicts[i]))
					case !tt.stands && r.Activity.RequestsEnded <= 0:
						return "requests that end"
					case tt.stands && i < 0:
						return "a verdict"
					case tt.stands && (!strings.Contains(shows(&r.Verdicts[i]), tt.says) ||
						!strings.Contains(r.Verdicts[i].Text, "20 requests for GET /"+tt.path+"/{id:int} stand still")):
						t.Errorf("not %q: %s", tt.says, shows(&r.Verdicts[i]))
					}
					return ""
				})
			})
		}
	})
}
