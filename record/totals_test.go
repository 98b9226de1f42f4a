package record_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
)

// TestEventTotals: the counted events happened during the recording, although the agent was there
// before and afterwards.
func TestEventTotals(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--max-seconds", "300"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	o := record.Options{Duration: time.Second, Events: events.Options{Monitor: events.MonitorAll, RingBytes: 8 << 20}}
	for _, every := range []int64{1, 5} {
		o.Events.ExceptionEvery = every
		r := livetest.Recorded(t, p, o)
		// Reports of the agent before the recording are not in the recording.
		first := slices.DeleteFunc(slices.Clone(r.Samples), func(x profile.Sample) bool { return x.At > 0 })
		if len(first) > 1 {
			t.Errorf("%d of %d samples are of the moment at which the recording began", len(first), len(r.Samples))
		}
		for _, m := range r.Modes {
			t.Logf("%s: %d samples of %d, %d lost", m.Mode, m.Samples, m.Seen, m.Lost)
			switch {
			case m.Lost > 0 || m.Mode == profile.Alloc:
			case m.Samples == 0:
				t.Errorf("no %s", m.Mode)
			case m.Mode == profile.Exception && every > 1:
				if got := float64(m.Seen) / float64(m.Samples); got < 3 || got > 8 {
					t.Errorf("%d exceptions of %d, not one in %d", m.Samples, m.Seen, every)
				}
			case m.Seen != int64(m.Samples):
				t.Errorf("%s: %d samples of %d", m.Mode, m.Samples, m.Seen)
			}
		}
		if lines := strings.Join(report.RecordingSummary(r), "\n"); every == 1 &&
			!regexp.MustCompile(`(?m)^gc: \d.* in \d+ GCs?; \d+ pauses?$`).MatchString(lines) {
			t.Errorf("%s", lines)
		}
		if got := said(r, regexp.MustCompile("^An object was recorded")); len(got) > 0 {
			t.Errorf("the notes are %q", r.Notes)
		}
	}
	o.Events = events.Options{Monitor: events.MonitorAllocations, AllocationBytes: 1 << 10}
	r := livetest.Recorded(t, p, o)
	const often = `^An object was recorded for every 100 KiB of allocations, not for every 1 KiB: `
	if got := said(r, regexp.MustCompile(often)); len(got) != 1 {
		t.Errorf("the notes are %q", r.Notes)
	}
}

// TestThreadTotals: threads started by no managed code are told apart.
func TestThreadTotals(t *testing.T) {
	a := testenv.Start(t, "ordeal", testenv.Options{Args: []string{"--mode", "churn"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	r := livetest.Recorded(t, p, record.Options{
		Duration: time.Second, Events: events.Options{Monitor: events.MonitorThreads, RingBytes: 8 << 20},
	})
	const note = `^\d+ threads began and \d+ ended\. Managed code did not start \d+ of them: .*\.$`
	if got := said(r, regexp.MustCompile(note)); len(got) != 1 {
		t.Errorf("the notes are %q", r.Notes)
	}
	if lines := strings.Join(report.RecordingSummary(r), "\n"); !regexp.MustCompile(
		`(?m)^thread: [\d,]+ threads? started; [\d,]+ samples?`).MatchString(lines) {
		t.Errorf("%s", lines)
	}
}
