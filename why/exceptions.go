package why

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// Thresholds of exceptions, a second. Each half of the recording must have so many exceptions.
const (
	manyExceptions = 300
	mostExceptions = 1000
	thrownCPU      = 0.30 // of the CPU time, where exceptions are not counted
)

// judgeExceptions looks for a program that throws exceptions all the time.
func judgeExceptions(e *evidence) []profile.Verdict {
	r := e.Samples
	if r == nil || r.Duration < gather.Enough {
		return nil
	}
	if !gather.HasMode(r, profile.Exception) {
		return judgeThrowing(e)
	}
	halves := [2]int64{}
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == profile.Exception {
			half := 0
			if x.At >= r.Duration/2 {
				half = 1
			}
			halves[half] += x.Weight
		}
	}
	least := phrase.Rate(min(halves[0], halves[1]), r.Duration/2)
	if least < manyExceptions {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseExceptions, Certainty: profile.Likely,
		Commands: []string{fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID)},
	}
	if least >= mostExceptions {
		v.Certainty = profile.Certain
	}
	all := phrase.Rate(halves[0]+halves[1], r.Duration)
	v.Text = fmt.Sprintf("The program throws %s exceptions a second, all the time.", phrase.Number(all))
	e.addThrows(&v)
	if share := gather.ThrowingShare(r); share > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s of the CPU time goes into throwing and catching them.", phrase.Percent(share)),
		})
	}
	return []profile.Verdict{v}
}

// Thresholds of exceptions that are kept and thrown again.
const (
	fewRethrows = 2 // a second
	// Each await throws an exception again. An exception that was on its way when the look began passes fewer awaits.
	manyAwaits = 100
)

// keepers are methods of .NET that keep an exception and throw the exception again at each use, and what that means.
var keepers = []struct{ method, text string }{
	{"System.Lazy<", "A Lazy keeps the exception of its first attempt: each use throws the exception again, and only " +
		"a new Lazy tries again."},
	{"System.Runtime.CompilerServices.TaskAwaiter", "The exception is a failed task's: each use of the task throws " +
		"the exception again."},
}

// judgeRethrown looks for exceptions that somebody keeps and throws again and again, although nothing fails any more.
func judgeRethrown(e *evidence) []profile.Verdict {
	r := e.Samples
	if r == nil || r.Duration < gather.Enough {
		return nil
	}
	m, _ := r.Mode(profile.Exception)
	rate, unseen := phrase.Rate(m.Rethrown, r.Duration), int64(0)
	list := e.Throws()
	for _, t := range list {
		if strings.HasPrefix(t.Fate, profile.UnseenThrow) {
			unseen += t.Weight
		}
	}
	if rate < fewRethrows || m.Rethrown < manyAwaits*unseen || 2*unseen < r.Weight(profile.Exception) {
		return nil
	}
	for _, t := range list {
		if !strings.HasPrefix(t.Fate, profile.UnseenThrow) {
			continue
		}
		stack := gather.WithoutEvents(gather.Frames(r, t.Node))
		v := profile.Verdict{
			Cause: profile.CauseExceptions, Certainty: profile.Likely,
			Text: fmt.Sprintf("An exception from before is thrown again and again, %s times a second: %s, thrown %s%s.",
				phrase.Number(rate), t.Type, gather.ThrownAt(stack), t.Caught()),
			Evidence: []profile.Evidence{{Text: "It is thrown again here:", Frames: stack}},
			Commands: []string{fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID)},
		}
		for i := range stack {
			k := slices.IndexFunc(keepers, func(k struct{ method, text string }) bool {
				return strings.HasPrefix(stack[i].Display, k.method)
			})
			if k >= 0 {
				v.Text += " " + keepers[k].text
				break
			}
		}
		return []profile.Verdict{v}
	}
	return nil
}

// addThrows adds the methods that throw the most.
func (e *evidence) addThrows(v *profile.Verdict) {
	r := e.Samples
	for n, t := range e.Throws() {
		if n == phrase.ShownSites || n > 0 && phrase.Rate(t.Weight, r.Duration) < 1 {
			break
		}
		stack := gather.WithoutEvents(gather.Frames(r, t.Node))
		text := fmt.Sprintf("%s a second are %s, thrown %s%s", phrase.Number(phrase.Rate(t.Weight, r.Duration)), t.Type,
			gather.ThrownAt(stack), t.Caught())
		if n == 0 {
			v.Text += " " + strings.ToUpper(text[:1]) + text[1:] + "."
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: text + ":", Frames: stack})
	}
}

// judgeThrowing is judgeExceptions without counts of exceptions: the judge uses the exceptions' CPU
// time.
func judgeThrowing(e *evidence) []profile.Verdict {
	r := e.Samples
	share := gather.ThrowingShare(r)
	used := gather.AtOnce(r.Weight(profile.CPU), r.Duration)
	if share < thrownCPU || share*used < 0.1 {
		return nil
	}
	list := gather.Sites(r, func(x *profile.Sample) bool { return x.Mode == profile.CPU && gather.Throws(r, x.Node) })
	if len(list) == 0 {
		return nil
	}
	s := &list[0]
	return []profile.Verdict{{
		Cause: profile.CauseExceptions, Certainty: profile.Likely,
		Text: fmt.Sprintf("Exceptions take %s of the CPU time, %.2f CPUs. Most are thrown in or below %s.",
			phrase.Percent(share),
			share*used, phrase.Method(s.Frame(r))),
		Evidence: []profile.Evidence{{
			Text: "The stack of most samples:", Frames: gather.Frames(r, s.Leaf),
		}},
		Commands: []string{fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID)},
	}}
}
