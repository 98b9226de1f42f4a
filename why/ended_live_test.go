package why_test

import (
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/why"
)

// TestTasksEnded: the number of ended async methods is no greater than the program's, also if the collector moves
// objects; without moves the number is exact.
func TestTasksEnded(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			name  string
			args  []string
			exact bool
			o     testenv.Options
		}{
			{"steady", nil, true, testenv.Options{}},
			{"collecting", []string{"--collect"}, false, testenv.Options{}},
			{"runtime async", nil, true, testenv.Options{Compile: livetest.RuntimeAsync}},
		} {
			if tt.o.Compile != nil && runtime != testenv.NewestRuntime {
				continue
			}
			t.Run(tt.name, func(t *testing.T) {
				tt.o.Runtime, tt.o.Args = runtime, append([]string{"--of", "ends"}, tt.args...)
				a := testenv.Start(t, "stalls", tt.o)
				testenv.UntilSeen(t, func() string {
					before := answered(t, a, "ENDED")
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					after := answered(t, a, "ENDED")
					for i := range r.Verdicts {
						t.Errorf("false: %s", shows(&r.Verdicts[i]))
					}
					x := r.Activity
					if x.TasksEnded < 0 {
						return "two looks at async methods"
					}
					if x.TasksExact != tt.exact {
						t.Errorf("exact: %v", x.TasksExact)
					}
					if int64(x.TasksEnded) > after-before+1 {
						t.Errorf("%d methods are said to have ended, of %d", x.TasksEnded, after-before)
					}
					n, is := 2_000-before, int64(x.TasksInFlight)
					if is > n+1 || is < n-(after-before)-1 {
						t.Errorf("%d methods are in flight, of %d", x.TasksInFlight, n)
					}
					if x.TasksEnded == 0 {
						return "methods that end"
					}
					return ""
				})
			})
		}
	})
}
