package why_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/snapshot"
	"clrsnap/why"
)

// lookAhead looks at a native AOT program.
func lookAhead(t *testing.T, pid int) *why.Report {
	t.Helper()
	r, err := why.Look(t.Context(), pid, why.Options{For: time.Second, NoAgent: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestNativeAOT: the deadlock of a native AOT program, a task that has failed unnoticed, and requests that stand still
// are told.
func TestNativeAOT(t *testing.T) {
	t.Run("deadlock", func(t *testing.T) {
		pid, _ := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeDeadlocked(t), "600")
		testenv.UntilSeen(t, func() string {
			r := lookAhead(t, pid)
			if len(r.Verdicts) == 0 {
				return "a verdict"
			}
			v := &r.Verdicts[0]
			checkVerdict(t, v, v.Cause == profile.CauseDeadlock && v.Certainty == profile.Certain, []string{
				"held by waiter", "held by holder", "in Hello.Program.HoldTheLock", "in Hello.Program.WaitForPulse",
				"1 more thread waits for them", "directly or not, in Hello.Program.WantTheLock",
			})
			return ""
		})
	})
	t.Run("failed", func(t *testing.T) {
		pid, _ := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeFailed(t), "600")
		testenv.UntilSeen(t, func() string {
			r := lookAhead(t, pid)
			if len(r.Exceptions) == 0 {
				return "the failed task"
			}
			x := r.Exceptions[0]
			if len(r.Exceptions) > 1 || !strings.Contains(x.Text, "System.NullReferenceException") ||
				!strings.Contains(x.Text, "Hello.Program.Outer") ||
				!slices.ContainsFunc(x.Frames, func(f snapshot.Frame) bool {
					return f.Display == "Hello.Program.Inner{async}"
				}) {
				t.Errorf("%d verdicts, and exceptions %+v", len(r.Verdicts), r.Exceptions)
			}
			return ""
		})
	})
	t.Run("requests", func(t *testing.T) {
		pid, said := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeNewest(t, "slim"), "0", "600")
		words := strings.Fields(said[0]) // "pid N runtime V listening URL"
		url := words[len(words)-1] + "/wait/600000"
		for range 6 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if answer, err := http.DefaultClient.Do(request); err == nil {
					answer.Body.Close()
				}
			}()
		}
		testenv.UntilSeen(t, func() string {
			r := lookAhead(t, pid)
			i := slices.IndexFunc(r.Verdicts, func(v profile.Verdict) bool {
				return strings.Contains(v.Text, "6 requests for GET /wait/{ms:int} stand still")
			})
			if i < 0 {
				return "requests that stand still"
			}
			v := &r.Verdicts[i]
			checkVerdict(t, v, v.Cause == profile.CauseStalled, []string{
				"has blocked its thread", "in Slim.Program.BlockFor", "No request ended meanwhile.",
			})
			return ""
		})
	})
}
