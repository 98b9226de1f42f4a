package record

import (
	"slices"
	"testing"
	"time"

	"clrsnap/events"
	"clrsnap/profile"
)

// TestThreadRemarks: the numbers of threads agree with their words, and with the number of samples.
func TestThreadRemarks(t *testing.T) {
	const others = "such threads are the runtime's own, or native ones that have called managed code"
	for _, c := range []struct {
		lives   lifetimes
		started int64
		want    []string
	}{
		{lifetimes{}, 0, nil},
		{lifetimes{created: 1, ended: 1}, 1, []string{"1 thread began and 1 ended."}},
		{
			lifetimes{created: 1, ended: 1, known: []time.Duration{2 * time.Millisecond}}, 0,
			[]string{"1 thread began and 1 ended. Managed code did not start 1 of them: " + others +
				". Those that were seen from beginning to end lived for 2ms (median)."},
		},
		{lifetimes{created: 3}, 7, []string{"3 threads began and 0 ended."}},
	} {
		e := newRecorder(Options{Events: events.Options{Monitor: events.MonitorThreads}}).events
		e.lives = c.lives
		e.counts[profile.ThreadStart].seen = c.started
		if got := e.remarks(); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
