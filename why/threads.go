package why

import (
	"cmp"
	"fmt"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of threads that pile up: so many in one place, and so many more in a second.
const (
	manyThreads     = 20
	moreThreads     = 3
	moreThreadsRate = 0.5
)

// standingThreads are the threads of a program, other than the pool's, that wait in one place of own code.
type standingThreads struct {
	example     *snapshot.Thread
	threads     []snapshot.ThreadRef
	first, more int // in the first look, and how many of the last look have begun since the first
	unmoved     int // of the first look: how many have not moved since, in any look
	gone        int // of the first look: how many have ended, or are elsewhere
}

// stand reports whether the threads of the first look have not gone on. Of a thousand threads, some were just beginning
// to wait, or could not be looked at in each look.
func (g *standingThreads) stand() bool {
	return g.gone == 0 && float64(g.unmoved) >= mostUnmoved*float64(g.first)
}

const mostUnmoved = 0.9

// judgeThreads looks for threads that become more and more: all wait in one place, none has gone on, and new threads
// come. Threads that read from somebody serve a connection each, as some servers do.
func judgeThreads(e *evidence) (out []profile.Verdict) {
	if len(e.Looks) < 2 || e.Core() {
		return nil
	}
	span := e.Span()
	best := standingThreads{}
	groups := e.standingThreads()
	for _, g := range groups {
		if g.stand() && g.first >= manyThreads && g.more >= moreThreads &&
			float64(g.more) >= moreThreadsRate*span.Seconds() && cmp.Or(g.first-best.first, g.more-best.more) > 0 {
			best = *g
		}
	}
	if best.example == nil {
		return nil
	}
	t := best.example
	return []profile.Verdict{{
		Cause: profile.CauseStalled, Certainty: profile.Likely,
		Text: fmt.Sprintf("Threads pile up: %s wait in %s, %d more than %s before (%.1f a second), and none of the %d "+
			"before has gone on. One of them, %s, %s.", phrase.ThreadsOf(len(best.threads)),
			phrase.Method(gather.OwnFrame(t.Frames)),
			best.more, phrase.Seconds(span), float64(best.more)/max(span, time.Millisecond).Seconds(), best.first,
			phrase.ThreadName(gather.Ref(t)), phrase.Doing(t)),
		Evidence: []profile.Evidence{{
			Text: "One of them, " + phrase.ThreadName(gather.Ref(t)) + ":", Frames: t.Frames,
			Threads: best.threads[:min(len(best.threads), mostListed)],
		}},
		Commands: []string{"clrsnap stack " + e.Again() + " --group",
			fmt.Sprintf("clrsnap record %d --event thread", e.Process.PID)},
	}}
}

// mostListed bounds the threads of one piece of evidence.
const mostListed = 10000

// standingThreads are the groups of waiting threads, by place.
func (e *evidence) standingThreads() map[string]*standingThreads {
	groups := map[string]*standingThreads{}
	last := e.Last().ByID()
	unmoved := map[int]bool{}
	threads := e.Threads()
	for i := range threads {
		unmoved[threads[i].Last().OSThreadID] = threads[i].Unmoved
	}
	first := map[int]bool{}
	for i := range e.First().Snap.Threads {
		t := &e.First().Snap.Threads[i]
		first[t.OSThreadID] = true
		key := gather.PlaceOf(t)
		if key == "" {
			continue
		}
		g := groups[key]
		if g == nil {
			g = &standingThreads{}
			groups[key] = g
		}
		g.first++
		if unmoved[t.OSThreadID] {
			g.unmoved++
		}
		if now := last[t.OSThreadID]; now == nil || gather.PlaceOf(now) != key {
			g.gone++
		}
	}
	for i := range e.Last().Snap.Threads {
		t := &e.Last().Snap.Threads[i]
		if g := groups[gather.PlaceOf(t)]; g != nil {
			g.threads = append(g.threads, gather.Ref(t))
			if g.example == nil {
				g.example = t
			}
			if !first[t.OSThreadID] {
				g.more++
			}
		}
	}
	return groups
}
