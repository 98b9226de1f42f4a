package record_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/record"
)

// TestExecute: a process executes another program. Its recording ends then, and says so: the rest is
// not .NET's work.
func TestExecute(t *testing.T) { testenv.EachRuntime(t, testExecute) }

func testExecute(t *testing.T, runtime string) {
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "1"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	var once sync.Once
	r := livetest.Recorded(t, p, record.Options{
		Modes: both, Rate: 99, Duration: testenv.Hang,
		Progress: func(pr record.Progress) {
			if pr.Samples > 50 {
				once.Do(func() { go a.Ask("exec") })
			}
		},
	})
	want := fmt.Sprintf("Process %d executed another program", a.PID)
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
		t.Errorf("after %v no note says so: %q", r.Duration, r.Notes)
	}
	if r.Duration >= testenv.Hang {
		t.Errorf("the recording has gone on for %v", r.Duration)
	}
}
