package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestBlockedIO: a read or a write with a wait for another process is the finding, with the action of this process and
// the number of waiters. Moving and idle calls are no finding.
func TestBlockedIO(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of   string
			says []string // CHILD stands for the number of the child; none: nothing is wrong
		}{
			{"log", []string{"log-writer (", "writes to a pipe", "LogQueue.Write",
				"sleep (CHILD), at the other end, does not read: it is sleeping (clock_nanosleep)",
				"12 threads most likely wait for log-writer"}},
			{"lock", []string{"writes to a pipe", "Depot.Pipes.Put", "sleep (CHILD)", "5 threads wait for clerk-"}},
			{"undrained", []string{"yes (CHILD), a child of the process, writes to a pipe",
				"no thread of the process reads there", "1 thread of this process waits for the end of a child",
				"Depot.Pipes.Convert"}},
			{"undrained-async", []string{"yes (CHILD), a child of the process",
				"1 async method of this process waits for the end of a child", "Depot.Pipes.ConvertAsync"}},
			{"circle", []string{"filter (",
				"cat (CHILD), at the other end, is blocked as well: that process writes to a pipe",
				"This process has the other end", "Each waits for the other"}},
			{"errors", []string{"reader (", "reads from a pipe",
				"sh (CHILD), at the other end, is blocked as well: that process writes to a pipe",
				"Each waits for the other"}},
			{"relay", []string{"sender (", "(CHILD), at the other end, does not read: it sleeps in Depot.Pipes.Nap"}},
			{"socket", []string{"sender (", "a socket to 127.0.0.1:", "no thread of the process reads there",
				"Depot.Pipes.Send"}},
			{"own-pipe", []string{"sender (", "writes to a pipe", "no thread of the process reads there"}},
			{"both-send", []string{"a socket to 127.0.0.1:", "has the other end and writes there as well, in " +
				"Depot.Pipes.Send", "each waits for the other to read", "sender (", "answerer ("}},
			{"slow-reader", nil},
			{"listener", nil},
			{"child", nil},
		} {
			t.Run(tt.of, func(t *testing.T) {
				t.Parallel()
				a := testenv.Start(t, "stalls", testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}})
				testenv.UntilSeen(t, func() string { // until the pipe is full, and has been for a look
					r := look(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
					if len(tt.says) == 0 {
						for i := range r.Verdicts {
							t.Errorf("false: %s", shows(&r.Verdicts[i]))
						}
						const child = "waits for the end of a child process, sleep ("
						if tt.of == "child" && !slices.ContainsFunc(r.Waits, func(e profile.Evidence) bool {
							return strings.Contains(e.Text, child)
						}) {
							return fmt.Sprintf("%q in %+v", child, r.Waits)
						}
						return ""
					}
					if len(r.Verdicts) == 0 {
						return "a verdict"
					}
					v := &r.Verdicts[0]
					if v.Cause == profile.CauseLockContention { // its holder wrote the last bytes during the look
						return "a call without a byte in a whole look: " + shows(v)
					}
					if len(r.Verdicts) > 1 || v.Cause != profile.CauseBlockedIO || v.Certainty != profile.Likely {
						t.Errorf("%s, %s and %d others: %s", v.Cause, v.Certainty, len(r.Verdicts)-1, shows(v))
					}
					for _, s := range tt.says {
						if strings.Contains(s, "CHILD") {
							s = strings.ReplaceAll(s, "CHILD", fmt.Sprint(answered(t, a, "CHILD")))
						}
						if !strings.Contains(shows(v), s) { // the last thread may have come to wait during the look
							return fmt.Sprintf("%q in %s", s, shows(v))
						}
					}
					return ""
				})
			})
		}
	})
}
