package report

import (
	"fmt"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// RecordingSummary returns a few lines: how much was recorded, the cost, and the recording's
// notes. The samples of time share a line; each kind of event has its own.
func RecordingSummary(r *profile.Recording) []string {
	var parts, events []string
	for i := range r.Modes {
		if m := &r.Modes[i]; m.Mode.OfEvents() {
			events = append(events, eventLine(r, m))
		} else {
			samples := display.Plural(m.Samples, "sample", "samples")
			parts = append(parts, fmt.Sprintf("%s %s %s", display.Number(m.Samples), m.Mode, samples)+flaws(m))
		}
	}
	line := r.Duration.Round(100 * time.Millisecond).String()
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	if d := r.Duration.Seconds(); d > 0 {
		line += fmt.Sprintf("; the program used %.2f of %d CPUs, clrsnap %.2f",
			r.Cost.TargetCPU.Seconds()/d, r.Cost.Processors, r.Cost.OwnCPU.Seconds()/d)
	}
	lines := append([]string{line}, events...)
	for _, n := range r.Notes {
		lines = append(lines, "note: "+display.OneLine(n))
	}
	return lines
}

// eventLine sums up a mode of events: "alloc: 1.23 GiB in 3,400 objects; 99 samples".
func eventLine(r *profile.Recording, m *profile.ModeStats) string {
	t := r.Totals(m.Mode)
	all := t.All.All()
	amount := display.AmountWithError(m.Mode, all, t.Error(all, t.Variance))
	if m.Mode == profile.ThreadStart {
		amount += " started"
	}
	return fmt.Sprintf("%s: %s; %s", m.Mode, amount, samplesText(m.Mode, m.Samples)) + SamplingText(m) + flaws(m)
}

// flaws returns how many samples of a mode are incomplete or lost.
func flaws(m *profile.ModeStats) string {
	s := ""
	if m.Broken > 0 {
		s += fmt.Sprintf(" (%s incomplete)", display.Number(m.Broken))
	}
	if m.Lost > 0 {
		s += fmt.Sprintf(", %s lost", display.Number(m.Lost))
	}
	return s
}
