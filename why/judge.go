package why

import (
	"slices"

	"clrsnap/profile"
)

// A judge looks for one cause, and returns nothing where a healthy program could look the same.
type judge func(*evidence) []profile.Verdict

// judges are all of them.
var judges = []judge{
	judgeHeld, judgeDebugger, judgeDeadlock, judgeSuspension, judgeFinalizer, judgeThrottled, judgeMemory,
	judgeDescriptors, judgeRemote, judgeLocks, judgePool, judgeCPU, judgeGC, judgeExceptions, judgeGrowth,
}

// report is what the judges say together.
func (e *evidence) report() *Report {
	r := &Report{Process: e.process, At: e.began, Took: e.took, Looked: e.looked, Missing: e.missing}
	for _, j := range judges {
		r.Verdicts = append(r.Verdicts, j(e)...)
	}
	r.Verdicts = settle(r.Verdicts)
	return r
}

// explains has, for each cause, those that are nothing but its consequences where both are found.
var explains = map[profile.Cause][]profile.Cause{
	profile.CauseStopped:        profile.Causes[1:],
	profile.CauseDeadlock:       {profile.CausePoolStarvation, profile.CauseLockContention},
	profile.CauseSuspension:     {profile.CausePoolStarvation, profile.CauseLockContention, profile.CauseFinalizer, profile.CauseCPU},
	profile.CauseRemoteCall:     {profile.CausePoolStarvation, profile.CauseLockContention},
	profile.CauseLockContention: {profile.CausePoolStarvation},
	profile.CauseExceptions:     {profile.CauseCPU},
	profile.CauseGC:             {profile.CauseCPU},
}

// settle sorts verdicts by gravity, and adds those that are consequences of others to them.
func settle(all []profile.Verdict) []profile.Verdict {
	rank := func(c profile.Cause) int { return slices.Index(profile.Causes[:], c) }
	slices.SortStableFunc(all, func(a, b profile.Verdict) int {
		if d := order(a.Certainty) - order(b.Certainty); d != 0 && (a.Certainty == profile.Possible || b.Certainty == profile.Possible) {
			return d
		}
		return rank(a.Cause) - rank(b.Cause)
	})
	var out []profile.Verdict
	for _, v := range all {
		by := slices.IndexFunc(out, func(o profile.Verdict) bool {
			return o.Certainty != profile.Possible && slices.Contains(explains[o.Cause], v.Cause)
		})
		if by < 0 {
			out = append(out, v)
			continue
		}
		if out[by].Cause == profile.CauseStopped {
			continue // it explains everything
		}
		e := profile.Evidence{Text: "As a consequence: " + v.Text}
		out[by].Evidence = append(out[by].Evidence, e)
		out[by].Evidence = append(out[by].Evidence, v.Evidence...)
	}
	return out
}

func order(c profile.Certainty) int {
	return slices.Index([]profile.Certainty{profile.Certain, profile.Likely, profile.Possible}, c)
}
