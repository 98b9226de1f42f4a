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
	i := slices.IndexFunc(e.lost, func(l profile.Lost) bool { return l.Threads == 0 })
	if i < 0 {
		return nil // judgeLocks tells of threads
	}
	l := &e.lost[i]
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for a permit of %s, and none has got one for at least %s. ",
			counted(l.Awaits, "async method waits", "async methods wait"),
			objectOf(&profile.Wait{Type: l.Type, Object: l.Object, Field: l.Field}, "a SemaphoreSlim"),
			seconds(lostGap)) + lostText(l) + fmt.Sprintf(" The first one waits in %s.", method(ownFrame(l.Frames))),
		Evidence: []profile.Evidence{{Text: "The one that has waited the longest:", Frames: l.Frames}},
		Commands: []string{"clrsnap tasks " + e.again()},
	}
	if left := len(e.lost) - 1 - i; left > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("Likewise for %s %s.", display.Number(left),
				display.Plural(left, "other semaphore", "other semaphores")),
		})
	}
	return []profile.Verdict{v}
}

// lostOf is the lost lease for which threads wait; nil: none is known.
func (e *evidence) lostOf(object uint64) *profile.Lost {
	i := slices.IndexFunc(e.lost, func(l profile.Lost) bool { return l.Threads > 0 && l.Object == object })
	if i < 0 || object == 0 {
		return nil
	}
	return &e.lost[i]
}

// lostText says who takes and releases the permits, and that nobody is seen to have one.
func lostText(l *profile.Lost) string {
	if !l.Leased {
		return "Nobody is seen who would release one: no thread and no suspended method is between taking a permit and " +
			"releasing it. Most likely a permit was not released, as when an exception skips a Release that is in no " +
			"finally block."
	}
	permits := "The permits are"
	switch {
	case l.Permits == 1:
		permits = "The only permit is"
	case l.Permits > 1:
		permits = fmt.Sprintf("All %s permits are", display.Number(l.Permits))
	}
	text := fmt.Sprintf("%s taken, in %s, and %s given back in %s. ", permits, list(names(l.Takes)),
		verb(l.Permits, "is", "are"), list(names(l.Gives)))
	if l.Again != "" {
		return text + fmt.Sprintf("Nobody but those who wait is seen in code that leads from the one to the other. But %s "+
			"takes permits in several places, so those who wait may have permits themselves: then none of them goes on. "+
			"Otherwise permits were not given back, as when an exception skips the call that gives back.", l.Again)
	}
	return text + "Nobody is seen who would give one back: no thread and no suspended method is in code that has got a " +
		"permit there. Most likely permits were not given back, as when an exception skips the call that gives back; or " +
		"an object keeps what belongs to a permit."
}

// names are the first of some names.
func names(all []string) []string {
	if more := len(all) - maxShown; more > 0 {
		return append(slices.Clone(all[:maxShown]), fmt.Sprintf("%d others", more))
	}
	return all
}
