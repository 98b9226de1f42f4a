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

// piles says how sure it is that threads pile up, and how many more there are: the threads of the first look have not
// gone on, or most have not, and more have come than have gone. Of a thousand threads, some were just beginning to
// wait, or could not be looked at in each look.
func (g *standingThreads) piles(span time.Duration) (c profile.Certainty, more int) {
	share := float64(g.unmoved) / float64(max(g.first, 1))
	switch {
	case g.first < manyThreads:
		return "", 0
	case g.gone == 0 && share >= nearlyUnmoved:
		c, more = profile.Likely, g.more
	case share >= mostUnmoved:
		c, more = profile.Possible, len(g.threads)-g.first
	}
	if more < moreThreads || float64(more) < moreThreadsRate*span.Seconds() {
		return "", 0
	}
	return c, more
}

// Shares of the threads of the first look that have not moved.
const (
	nearlyUnmoved = 0.9
	mostUnmoved   = 0.7
)

// judgeThreads looks for threads that become more and more: all wait in one place, none or few have gone on, and new
// threads come. Threads that read from somebody serve a connection each, as some servers do.
func judgeThreads(e *evidence) (out []profile.Verdict) {
	if len(e.Looks) < 2 || e.Core() {
		return nil
	}
	span := e.Span()
	best, certainty, more := standingThreads{}, profile.Certainty(""), 0
	for _, g := range e.standingThreads() {
		c, n := g.piles(span)
		surer := c == profile.Likely && certainty == profile.Possible
		if c != "" && (surer || c == cmp.Or(certainty, c) && cmp.Or(g.first-best.first, n-more) > 0) {
			best, certainty, more = *g, c, n
		}
	}
	if best.example == nil {
		return nil
	}
	before := fmt.Sprintf("none of the %d before has gone on", best.first)
	if certainty == profile.Possible {
		before = fmt.Sprintf("%d of the %d before have not gone on", best.unmoved, best.first)
	}
	t := best.example
	return []profile.Verdict{{
		Cause: profile.CauseStalled, Certainty: certainty,
		Text: fmt.Sprintf("Threads pile up: %s wait in %s, %d more than %s before (%.1f a second), and %s. One of "+
			"them, %s, %s.", phrase.ThreadsOf(len(best.threads)), gather.Place(t.Frames), more,
			phrase.Seconds(span), float64(more)/max(span, time.Millisecond).Seconds(), before,
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

// unmovedOf says of threads, by id, whether they have not moved since the first look.
func unmovedOf(threads []gather.Watched) map[int]bool {
	out := make(map[int]bool, len(threads))
	for i := range threads {
		out[threads[i].Last().OSThreadID] = threads[i].Unmoved
	}
	return out
}

// standingThreads are the groups of waiting threads, by place.
func (e *evidence) standingThreads() map[string]*standingThreads {
	groups := map[string]*standingThreads{}
	last := e.Last().ByID()
	unmoved := unmovedOf(e.Threads())
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
