package record_test

import (
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

// TestRecordAgain: the cache of one recording for the code of a process does not get into the next
// recording, which numbers everything anew.
func TestRecordAgain(t *testing.T) {
	testenv.EachOfKit(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "1"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		var before string
		for i, modes := range [][]profile.Mode{both, {profile.CPU}, {profile.Wall}, both} {
			var stack string
			testenv.UntilSeen(t, func() string {
				r := livetest.Recorded(t, p, record.Options{Modes: modes, Rate: 499, Duration: time.Second / 2})
				if stack = mostSampled(r); stack == "" {
					return "the thread that computes"
				}
				return ""
			})
			if i > 0 && stack != before {
				t.Errorf("recording %d: %s\nthe one before: %s", i, stack, before)
			}
			if before = stack; !strings.Contains(stack, "Descend") {
				t.Errorf("recording %d: %s", i, stack)
			}
		}
		livetest.EndsWell(t, a)
	})
}

// mostSampled are the managed methods of the program's stack with most samples of a running thread,
// leaf first; recursive methods are there once.
func mostSampled(r *profile.Recording) string {
	count := map[string]int{}
	for _, s := range r.Samples {
		if s.State != profile.Running {
			continue
		}
		var names []string
		for n := s.Node; n > 0; n = r.Nodes[n].Parent {
			if f := &r.Functions[r.Locations[r.Nodes[n].Location].Function]; f.Kind == snapshot.Managed {
				names = append(names, f.Display)
			}
		}
		if slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "Spin.") }) {
			count[strings.Join(slices.Compact(names), " < ")] += int(s.Count)
		}
	}
	most := ""
	for stack, n := range count {
		if n > count[most] || n == count[most] && stack < most {
			most = stack
		}
	}
	return most
}
