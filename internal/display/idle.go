package display

import (
	"fmt"
	"strings"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// mostIdle is how many kinds of idle thread to name.
const mostIdle = 4

// Idle lists in one line the idle threads in a mode of a recording, and their shares of all: "idle
// threads, 75.1 % of 120 s: pool workers 63.0 %, timer 12.1 %"; empty if there are none.
func Idle(r *profile.Recording, m profile.Mode) string {
	all, idle := r.Weight(m), r.IdleTotals(m)
	if all <= 0 || len(idle) == 0 {
		return ""
	}
	var parts []string
	sum, named := 0.0, 0.0
	for i := range idle {
		share := float64(idle[i].Total.All().Weight) / float64(all)
		if sum += share; i < mostIdle || len(idle) == mostIdle+1 {
			named = sum
			parts = append(parts, idleName(idle[i].Idle, m)+" "+Percent(share))
		}
	}
	if n := len(idle) - len(parts); n > 0 {
		parts = append(parts, fmt.Sprintf("%d other kinds %s", n, Percent(sum-named)))
	}
	of := " of " + Weight(m.Unit(), all)
	if len(parts) == 1 {
		return "idle " + parts[0] + of
	}
	return "idle threads, " + Percent(sum) + of + ": " + strings.Join(parts, ", ")
}

func idleName(idle snapshot.Idle, m profile.Mode) string {
	switch {
	case idle == snapshot.IdleWorker && m == profile.CPU:
		return "pool workers (they spin)"
	case idle == snapshot.IdleWorker, idle == snapshot.IdleWaiter:
		return string(idle) + "s"
	}
	return string(idle)
}

// Percent returns a share as text for people: "12.3 %".
func Percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
