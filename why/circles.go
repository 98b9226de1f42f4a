package why

import (
	"cmp"
	"fmt"

	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
)

// judgeCircles looks for async methods that wait for one another in a circle, such as a method that awaits its own
// task.
func judgeCircles(e *evidence) (out []profile.Verdict) {
	if _, _, ok := e.Progressed(); !ok {
		return nil
	}
	stood, chains := e.stoodStill(), e.LastFlight().Tasks.Chains
	for i := range chains {
		c := &chains[i]
		if !c.Circular || len(c.Frames) == 0 || stood[tasks.ChainKey(c)] < c.Count || len(out) == maxDeadlocks {
			continue
		}
		first, last := &c.Frames[0], &c.Frames[len(c.Frames)-1]
		text := fmt.Sprintf("Deadlock: an async method waits for its own end. It is %s, and waits",
			phrase.Method(first))
		if c.Count > 1 {
			text = fmt.Sprintf("Deadlock: %d async methods wait for their own end, each in %s. Each waits",
				c.Count, phrase.Method(first))
		}
		target := cmp.Or(c.WaitsFor.Target, last.Display)
		text += fmt.Sprintf(" for %s, which awaits %s, directly or not. None has gone on in %s.", target, first.Display,
			phrase.Seconds(e.LastFlight().At-e.Flights[0].At))
		out = append(out, profile.Verdict{
			Cause: profile.CauseDeadlock, Certainty: profile.Certain, Text: text,
			Evidence: []profile.Evidence{{Text: "The circle:", Frames: c.Frames}},
			Commands: []string{"clrsnap tasks " + e.Again()},
		})
	}
	return out
}
