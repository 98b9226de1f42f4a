package why

import (
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// lostGap is how long nobody may get a permit before the permit counts as lost. A holder may be at work unseen.
const lostGap = 2 * time.Second

// stillLost are the semaphores with the same first method in the queue in two looks.
func stillLost(before, now []profile.Lost) (out []profile.Lost) {
	for _, l := range now {
		if slices.ContainsFunc(before, func(b profile.Lost) bool {
			return b.Object == l.Object && b.First == l.First
		}) {
			out = append(out, l)
		}
	}
	return out
}

// judgeLost looks for async methods that wait for a permit that was never released.
func judgeLost(e *evidence) []profile.Verdict {
	if len(e.lost) == 0 {
		return nil
	}
	l := &e.lost[0]
	sem := objectOf(&profile.Wait{Type: l.Type, Object: l.Object, Field: l.Field}, "a SemaphoreSlim")
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for a permit of %s, and none has got one for at least %s. Nobody is seen who would "+
			"release one: no thread and no suspended method is between taking a permit and releasing it. Most "+
			"likely a permit was not released, as when an exception skips a Release that is in no finally block. The "+
			"first one waits in %s.",
			counted(l.Awaits, "async method waits", "async methods wait"), sem, seconds(lostGap),
			method(ownFrame(l.Frames))),
		Evidence: []profile.Evidence{{Text: "The one that has waited the longest:", Frames: l.Frames}},
		Commands: []string{"clrsnap tasks " + e.again()},
	}
	if left := len(e.lost) - 1; left > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("Likewise for %s %s.", display.Number(left),
				display.Plural(left, "other semaphore", "other semaphores")),
		})
	}
	return []profile.Verdict{v}
}
