package record_test

import (
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestAgentTime: the notes say how much of the CPU time was the agent's.
func TestAgentTime(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--max-seconds", "300"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	o := record.Options{Modes: []profile.Mode{profile.CPU}, Rate: 999, Duration: time.Second}
	if r := livetest.Recorded(t, p, o); len(said(r, ofAgent)) > 0 {
		t.Errorf("without events: %q", r.Notes)
	}
	o.Events = events.Options{Monitor: events.MonitorAll, AllocationBytes: 1 << 10}
	r := livetest.Recorded(t, p, o)
	var of, all int64
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.CPU {
			continue
		}
		all += x.Weight
		for l := range r.Stack(x.Node) {
			if r.Functions[l.Function].Module == "libclrsnap-agent.so" {
				of += x.Weight
				break
			}
		}
	}
	m := said(r, ofAgent)
	if len(m) != 1 || of == 0 {
		t.Fatalf("%v of %v in the agent; the notes are %q", time.Duration(of), time.Duration(all), r.Notes)
	}
	got, err := strconv.ParseFloat(m[0][1], 64)
	if want := 100 * float64(of) / float64(all); err != nil || math.Abs(got-want) > 0.051 {
		t.Errorf("%q, but the samples have %.2f %%", m[0][0], want)
	}
}

var ofAgent = regexp.MustCompile(`^About ([\d.]+) % of the CPU time \([\dms.]+\) is not the program's own: ` +
	`clrsnap's agent .*libclrsnap-agent\.so.*\.$`)

// said returns the matches in the notes.
func said(r *profile.Recording, what *regexp.Regexp) [][]string {
	var out [][]string
	for _, n := range r.Notes {
		if m := what.FindStringSubmatch(n); m != nil {
			out = append(out, m)
		}
	}
	return out
}
