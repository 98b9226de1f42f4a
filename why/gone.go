package why

import (
	"slices"

	"clrsnap/internal/gone"
	"clrsnap/profile"
)

// gone looks for requests that go on for gone clients, if no verdict so far has a reason why the requests wait.
func (e *evidence) gone(found []profile.Verdict) []profile.Verdict {
	list := slices.DeleteFunc(gone.Requests(&e.Evidence), func(v profile.Verdict) bool {
		return slices.ContainsFunc(found, func(o profile.Verdict) bool {
			return slices.Contains(amongCauses, o.Cause) && sharesOwnMethod(&v, &o)
		})
	})
	return list[:min(len(list), 1)]
}
