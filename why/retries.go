package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// fewRetries is how many exceptions each thread must have caught while it was looked at.
const fewRetries = 2

// retries is threads that have been in one own call since the first look, and try again and again.
type retries struct {
	own     *snapshot.Frame
	frames  []snapshot.Frame
	threads []snapshot.ThreadRef
	caught  int64
	node    int32 // the leaf of one of the exceptions
}

// judgeRetries looks for threads that sleep in one method, wake up, catch an exception there and sleep again: each try
// has failed. A loop at the base of a thread may as well ask for work, and is left out.
func judgeRetries(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 || e.Span() < gather.Enough || !gather.HasMode(e.Samples, profile.Exception) {
		return nil
	}
	groups, caught := map[string]*retries{}, e.caught()
	threads := e.Threads()
	for i := range threads {
		t, own := threads[i].Last(), sleepsWithin(&threads[i])
		if own == nil {
			continue
		}
		c := caught[catcher{t.OSThreadID, own.Display}]
		if c.n < fewRetries {
			continue
		}
		g := groups[own.Method]
		if g == nil {
			g = &retries{own: own, frames: t.Frames, node: c.node}
			groups[own.Method] = g
		}
		g.threads = append(g.threads, gather.Ref(t))
		g.caught += c.n
	}
	for _, g := range slices.SortedFunc(maps.Values(groups), func(a, b *retries) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.own.Method, b.own.Method))
	}) {
		if len(g.threads) >= fewWaiters {
			return []profile.Verdict{g.verdict(e)}
		}
	}
	return nil
}

// catcher is a method that has caught exceptions on a thread.
type catcher struct {
	thread int
	method string // display name
}

// caughtBy is how many exceptions a method has caught. node is the leaf of one of them.
type caughtBy struct {
	n    int64
	node int32
}

// caught counts the recorded exceptions by the methods that have caught them.
func (e *evidence) caught() map[catcher]caughtBy {
	r, out := e.Samples, map[catcher]caughtBy{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Exception || x.Node == 0 {
			continue
		}
		if method, ok := strings.CutPrefix(r.Function(x.Node).Fate, profile.CaughtBy); ok {
			of := catcher{r.Threads[x.Thread].OSThreadID, method}
			out[of] = caughtBy{out[of].n + x.Weight, x.Node}
		}
	}
	return out
}

// sleepsWithin is the own frame of a call in which a thread has been in all looks, asleep in most; nil: there is none,
// or the call is at the base of the thread.
func sleepsWithin(w *gather.Watched) *snapshot.Frame {
	first, asleep := gather.OwnFrame(w.Looks[0].Frames), 0
	for _, t := range w.Looks {
		own := gather.OwnFrame(t.Frames)
		if first == nil || own == nil || !gather.SameCall(own, first) ||
			gather.OutermostOwn(t.Frames) == own.Module+"!"+own.Method {
			return nil
		}
		if t.Wait != nil && t.Wait.Kind == snapshot.ThreadSleep {
			asleep++
		}
	}
	if 2*asleep <= len(w.Looks) {
		return nil
	}
	return first
}

func (g *retries) verdict(e *evidence) profile.Verdict {
	r := e.Samples
	return profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Text: fmt.Sprintf("%d threads try something again and again, and fail each time: all were in %s in %d of %d "+
			"looks, and sleep there between the tries. The method has caught %s in %s, such as %s.",
			len(g.threads), phrase.Method(g.own), len(e.Looks), len(e.Looks),
			phrase.Counted(int(g.caught), "exception", "exceptions"), phrase.Seconds(r.Duration),
			r.Function(g.node).Display),
		Evidence: []profile.Evidence{
			{Text: "One of them, " + phrase.ThreadName(g.threads[0]) + ":", Frames: g.frames, Threads: g.threads},
			{Text: "One of the exceptions was thrown here:", Frames: gather.WithoutEvents(gather.Frames(r, g.node))},
		},
		Commands: []string{
			fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID),
			"clrsnap stack " + e.Again() + " --group",
		},
	}
}
