package why

import (
	"cmp"
	"fmt"
	"slices"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// judgeServices looks for services of the host that have ended with an exception. A host that ignores exceptions goes
// on without the service, silently.
func judgeServices(e *evidence) (out []profile.Verdict) {
	l := e.LastFlight()
	if l == nil {
		return nil
	}
	for i := range l.Tasks.Faults {
		f := &l.Tasks.Faults[i]
		if f.Service == "" {
			continue
		}
		if len(out) > 0 {
			out[0].Evidence = append(out[0].Evidence, e.faultEvidence(f))
			continue
		}
		out = []profile.Verdict{{
			Cause: profile.CauseStalled, Certainty: profile.Likely,
			Text: fmt.Sprintf("The background service %s has ended with an exception, and the process goes on without "+
				"it: %s. What the service is there for is not done any more.", f.Service,
				phrase.Exception(f.Exception)),
			Evidence: []profile.Evidence{e.faultEvidence(f)},
			Commands: []string{"clrsnap tasks " + e.Again()},
		}}
	}
	return out
}

// faultEvidence tells of a failed task.
func (e *evidence) faultEvidence(f *snapshot.TaskFault) profile.Evidence {
	what := cmp.Or(f.Method, "a task")
	text := fmt.Sprintf("%s of %s %s ended with %s", phrase.Counted(f.Count, "call", "calls"), what,
		phrase.Verb(f.Count, "has", "have"), phrase.Exception(f.Exception))
	if f.Service == "" && !f.Observed {
		text += "; nobody has observed the exception" + e.keeperText(f)
	}
	if f.Exception.Uncertain != "" {
		text += " (uncertain: " + f.Exception.Uncertain + ")"
	}
	return profile.Evidence{Text: text + ":", Frames: f.Exception.Shown()}
}

// unnoticed are the tasks that have failed without anybody's notice, unless a verdict tells of the task. A task that
// nobody keeps is garbage, and need not matter.
func (e *evidence) unnoticed(verdicts []profile.Verdict) (out []profile.Evidence) {
	l := e.LastFlight()
	if l == nil {
		return nil
	}
	for i := range l.Tasks.Faults {
		f := &l.Tasks.Faults[i]
		if f.Observed || f.Service != "" || len(out) == gather.ShownFaults {
			continue
		}
		x := e.faultEvidence(f)
		if !slices.ContainsFunc(verdicts, func(v profile.Verdict) bool {
			return slices.ContainsFunc(v.Evidence, func(o profile.Evidence) bool { return o.Text == x.Text })
		}) {
			out = append(out, x)
		}
	}
	return out
}

// thrownMeanwhile are the exceptions of the recording. A process that is well throws exceptions, too.
func (e *evidence) thrownMeanwhile() (out []profile.Evidence) {
	if !gather.HasMode(e.Samples, profile.Exception) {
		return nil
	}
	for _, t := range e.Throws() {
		if len(out) == gather.ShownFaults {
			break
		}
		stack := gather.WithoutEvents(gather.Frames(e.Samples, t.Node))
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s of %s, thrown %s%s:", phrase.Counted(int(t.Weight), "exception", "exceptions"),
				t.Type, gather.ThrownAt(stack), t.Caught()),
			Frames: stack,
		})
	}
	return out
}

// exceptions are the exceptions below the verdicts: failed tasks always, and the recorded exceptions only beside a
// verdict, if no verdict lists these already.
func (e *evidence) exceptions(verdicts []profile.Verdict) []profile.Evidence {
	out := e.unnoticed(verdicts)
	if len(verdicts) == 0 {
		return out
	}
	for i := range verdicts {
		if verdicts[i].Cause == profile.CauseExceptions {
			return out
		}
	}
	return append(out, e.thrownMeanwhile()...)
}
