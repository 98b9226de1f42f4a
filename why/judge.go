package why

import (
	"cmp"
	"slices"

	"clrsnap/internal/activity"
	"clrsnap/internal/cpu"
	"clrsnap/internal/gather"
	"clrsnap/internal/limits"
	"clrsnap/internal/nativemem"
	"clrsnap/internal/remote"
	"clrsnap/internal/stopped"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// evidence is the input of the judges.
type evidence struct {
	gather.Evidence
	stood map[uint64]int // see stoodStill; nil: not yet known
}

// A judge looks for one cause, and returns nothing if a healthy program could look the same.
type judge func(*evidence) []profile.Verdict

// of makes a judge of a judge in another package.
func of(j func(*gather.Evidence) []profile.Verdict) judge {
	return func(e *evidence) []profile.Verdict { return j(&e.Evidence) }
}

// judges are all judges.
var judges = []judge{
	of(stopped.Held), of(stopped.Debugger), judgeDeadlock, judgeCircles, judgeCallbacks, of(stopped.Suspension),
	of(stopped.Finalizer), judgeShutdown, of(limits.Throttled), of(limits.Memory), of(limits.HeapLimit),
	of(limits.Descriptors), judgeBlockedIO, of(remote.Unaccepted), of(remote.Silent), of(remote.NameServers),
	of(remote.Queue), judgeLocks, judgeSpinLocks, judgeLost, judgePool, judgeStalled, judgeFullQueue, judgePulses,
	judgeRetries, judgeThreads, judgeServices, judgeYields, of(cpu.Loops), of(limits.GC), judgeExceptions,
	judgeRethrown, judgeAssemblies, judgeGrowth, of(nativemem.Growth),
}

// report is the judges' common result.
func (e *evidence) report() *Report {
	r := &Report{
		Process: e.Process, At: e.Began, Took: e.Took, Stops: e.Stops, Looked: e.Looked, Incomplete: e.Incomplete,
	}
	for _, j := range judges {
		r.Verdicts = append(r.Verdicts, j(e)...)
	}
	r.Verdicts = append(r.Verdicts, e.gone(r.Verdicts)...)
	r.Verdicts = append(r.Verdicts, e.standstill(r.Verdicts)...)
	r.Missing, r.Waits, r.Activity = e.Missing, activity.Waits(&e.Evidence), activity.Of(&e.Evidence)
	if r.Activity != nil {
		r.Activity.Host = e.hostNote()
	}
	r.Verdicts = settle(r.Verdicts)
	r.Exceptions = e.exceptions(r.Verdicts)
	return r
}

// explains has, for each cause, the causes that are mere consequences if both are found.
var explains = map[profile.Cause][]profile.Cause{
	profile.CauseStopped: profile.Causes[1:],
	profile.CauseDeadlock: {
		profile.CauseRemoteCall, profile.CausePoolStarvation, profile.CauseLockContention, profile.CauseStalled,
	},
	profile.CauseSuspension: {
		profile.CauseRemoteCall, profile.CausePoolStarvation, profile.CauseLockContention, profile.CauseFinalizer,
		profile.CauseStalled, profile.CauseCPU,
	},
	profile.CauseBlockedIO: {
		profile.CauseRemoteCall, profile.CausePoolStarvation, profile.CauseLockContention, profile.CauseStalled,
	},
	profile.CauseRemoteCall: {
		profile.CausePoolStarvation, profile.CauseLockContention, profile.CauseStalled,
	},
	profile.CauseLockContention: {profile.CauseRemoteCall, profile.CausePoolStarvation, profile.CauseStalled},
	profile.CausePoolStarvation: {profile.CauseRemoteCall, profile.CauseStalled},
	profile.CauseMemoryPressure: {profile.CauseGC},
	profile.CauseExceptions:     {profile.CauseCPU},
	profile.CauseCPU:            {profile.CauseLockContention, profile.CausePoolStarvation, profile.CauseStalled},
	profile.CauseGC:             {profile.CauseCPU},
}

// explained reports whether v is a mere consequence of o. If o is about waiting threads, both verdicts must have a
// thread in common. Verdicts on a thread's use of a CPU are a consequence of exceptions, or of garbage, only if the
// thread is in the method that makes the exceptions or the garbage. Requests that stand still may have no threads: then
// the method that waits is in the evidence of o. A process that does not answer itself has a reason for that.
func explained(v, o *profile.Verdict) bool {
	if o.Certainty == profile.Possible || !slices.Contains(explains[o.Cause], v.Cause) {
		return false
	}
	if v.Cause == profile.CauseRemoteCall && o.Cause != profile.CauseStopped {
		return remote.AsksItself(v)
	}
	if remote.AsksItself(o) && v.Cause != profile.CauseStalled {
		return false
	}
	switch o.Cause {
	case profile.CauseStopped, profile.CauseSuspension, profile.CausePoolStarvation:
		return true
	}
	switch v.Cause {
	case profile.CauseStalled:
		return sharesOwnMethod(v, o) || sharesThread(v, o)
	case profile.CauseCPU:
		return sharesOwnMethod(v, o)
	}
	switch o.Cause {
	case profile.CauseDeadlock, profile.CauseBlockedIO, profile.CauseRemoteCall, profile.CauseLockContention,
		profile.CauseCPU:
		return sharesThread(v, o)
	}
	return true
}

// sharesOwnMethod reports whether the own method of the first evidence of v is in the evidence of o.
func sharesOwnMethod(v, o *profile.Verdict) bool {
	own := gather.OwnFrame(v.Evidence[0].Frames)
	return own != nil && slices.ContainsFunc(o.Evidence, func(e profile.Evidence) bool {
		return slices.ContainsFunc(e.Frames, func(f snapshot.Frame) bool { return f.Method == own.Method })
	})
}

// sharesThread reports whether two verdicts have a thread in common.
func sharesThread(v, o *profile.Verdict) bool {
	of := map[int]bool{}
	for i := range o.Evidence {
		for _, t := range o.Evidence[i].Threads {
			of[t.OSThreadID] = true
		}
	}
	return slices.ContainsFunc(v.Evidence, func(e profile.Evidence) bool {
		return slices.ContainsFunc(e.Threads, func(t snapshot.ThreadRef) bool { return of[t.OSThreadID] })
	})
}

// settle sorts verdicts by gravity, and adds consequences to the verdict at their root.
func settle(all []profile.Verdict) []profile.Verdict {
	slices.SortStableFunc(all, func(a, b profile.Verdict) int {
		return cmp.Or(cmp.Compare(doubt(&a), doubt(&b)), cmp.Compare(rank(&a), rank(&b)))
	})
	by := make([]int, len(all)) // the verdict that explains each; -1: none
	for i := range all {
		by[i] = slices.IndexFunc(all, func(o profile.Verdict) bool { return explained(&all[i], &o) })
	}
	for i := range all {
		if by[i] < 0 {
			continue
		}
		root := by[i]
		for by[root] >= 0 { // "explains" has no circles
			root = by[root]
		}
		if all[root].Cause == profile.CauseStopped {
			continue // a stopped process explains everything
		}
		v := &all[i]
		all[root].Evidence = append(all[root].Evidence, profile.Evidence{Text: "As a consequence: " + v.Text})
		for _, e := range v.Evidence {
			if !hasStack(all[root].Evidence, e.Frames) {
				all[root].Evidence = append(all[root].Evidence, e)
			}
		}
	}
	var out []profile.Verdict
	for i := range all {
		if by[i] < 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// hasStack reports whether some evidence has a stack with equal methods. A stack without frames is in none.
func hasStack(list []profile.Evidence, frames []snapshot.Frame) bool {
	return len(frames) > 0 && slices.ContainsFunc(list, func(e profile.Evidence) bool {
		return slices.EqualFunc(e.Frames, frames, func(a, b snapshot.Frame) bool {
			return a.Method == b.Method && a.IP == b.IP
		})
	})
}

func rank(v *profile.Verdict) int { return slices.Index(profile.Causes[:], v.Cause) }

// doubt puts verdicts with certainty Possible last.
func doubt(v *profile.Verdict) int {
	if v.Certainty == profile.Possible {
		return 1
	}
	return 0
}
