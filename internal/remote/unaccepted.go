package remote

import (
	"fmt"
	"slices"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// Unaccepted looks for clients that wait because nobody accepts their connections. The kernel gives out the
// connections in their order: if one has waited all the time, none was accepted.
func Unaccepted(of *gather.Evidence) []profile.Verdict {
	e := &evidence{of}
	i := slices.IndexFunc(e.Unaccepted, func(u gather.Unaccepted) bool {
		return u.Count >= fewWaiters && u.Oldest >= e.Whole()
	})
	if i < 0 || e.Held() {
		return nil
	}
	u := &e.Unaccepted[i]
	return []profile.Verdict{{
		Cause: profile.CauseStalled, Certainty: profile.Likely,
		Text: fmt.Sprintf("Nobody accepts connections to %s: %d clients have connected and wait, one of them for %s "+
			"or longer, and none was accepted in %s.", u.Local, u.Count, phrase.Seconds(u.Oldest),
			phrase.Seconds(e.Whole())),
		Evidence: []profile.Evidence{{
			Text: fmt.Sprintf("The process listens at %s. The kernel keeps %d connections in its queue.",
				u.Local, u.Count),
		}},
		Commands: []string{"clrsnap stack " + e.Again() + " --group", "clrsnap tasks " + e.Again()},
	}}
}
