// Package gone has the judge of requests that go on although the clients have gone.
package gone

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of requests for clients that have gone.
const (
	manyGone   = 10 // requests in both looks
	goneShare  = 3  // at least 1 of 3 requests for the path
	maxShown   = 8  // places
	goneLikely = 3  // more clients have gone meanwhile: if the program noticed, some requests would have ended
)

// abandoned is the requests for a path with clients that have gone.
type abandoned struct {
	method  string
	path    string
	all     int // requests in flight for the path
	gone    int
	stayed  int                     // of gone, also for gone clients at the first look
	streams int                     // of gone, the answer has begun
	ended   bool                    // a request for a gone client has ended
	places  []snapshot.RequestGroup // of the gone requests, by own method
	in      map[string]int          // indexes in places
}

// Requests looks for requests that go on for clients that have gone: a verdict for each path, the path with the most
// such requests first.
func Requests(e *gather.Evidence) (out []profile.Verdict) {
	before, after, ok := e.Progressed()
	if !ok {
		return nil
	}
	if e.Early != nil && !e.Early.Requests.Partial {
		before = e.Early
	}
	for _, a := range abandonedOf(before, after) {
		out = append(out, a.verdict(e, after.At-before.At))
	}
	return out
}

// abandonedOf returns the paths with many requests for gone clients, if no request for a gone client has ended since
// the first look. The path with the most comes first.
func abandonedOf(before, after *gather.FlightLook) (out []*abandoned) {
	was := map[string]*abandoned{} // by the ids of requests for gone clients at the first look; nil: not seen again
	for _, r := range before.RequestsNow() {
		if r.Aborted {
			was[r.ID] = nil
		}
	}
	by := map[string]*abandoned{}
	pathOf := func(g *snapshot.RequestGroup) string { return g.Method + "\x00" + g.Path }
	for i := range after.Requests.Requests {
		g := &after.Requests.Requests[i]
		a := by[pathOf(g)]
		if a == nil {
			a = &abandoned{method: g.Method, path: g.Path, in: map[string]int{}}
			by[pathOf(g)], out = a, append(out, a)
		}
		a.add(g, was)
	}
	for i := range before.Requests.Requests {
		g := &before.Requests.Requests[i]
		ended, paths := false, []*abandoned{by[pathOf(g)]} // a path without an endpoint may have other requests now
		for k := range g.Requests {
			if a, known := was[g.Requests[k].ID]; a != nil {
				paths = append(paths, a)
			} else if known {
				ended = true
			}
		}
		for _, a := range paths {
			if a != nil {
				a.ended = a.ended || ended
			}
		}
	}
	out = slices.DeleteFunc(out, func(a *abandoned) bool {
		return a.ended || a.stayed < manyGone || a.gone*goneShare < a.all
	})
	slices.SortStableFunc(out, func(a, b *abandoned) int { return cmp.Compare(b.gone, a.gone) })
	return out
}

// add counts the requests of a group.
func (a *abandoned) add(g *snapshot.RequestGroup, was map[string]*abandoned) {
	a.all += len(g.Requests)
	for _, r := range g.Requests {
		if !r.Aborted {
			continue
		}
		a.gone++
		if _, known := was[r.ID]; known {
			was[r.ID] = a
			a.stayed++
		}
		if r.Answering {
			a.streams++
		}
		key := ""
		if f := placeOf(g.Doing.Frames); f != nil {
			key = f.Module + "\x00" + f.Method // without the line: a request goes from line to line
		}
		at, ok := a.in[key]
		if !ok {
			at = len(a.places)
			a.in[key], a.places = at, append(a.places, snapshot.RequestGroup{Doing: g.Doing})
		}
		a.places[at].Requests = append(a.places[at].Requests, r)
	}
}

func (a *abandoned) verdict(e *gather.Evidence, span time.Duration) profile.Verdict {
	slices.SortStableFunc(a.places, func(x, y snapshot.RequestGroup) int {
		return cmp.Compare(len(y.Requests), len(x.Requests))
	})
	in := ""
	if f := placeOf(a.places[0].Doing.Frames); f != nil {
		if in = ", in " + phrase.Method(f); len(a.places) > 1 {
			in = ", most of all in " + phrase.Method(f)
		}
	}
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Text: fmt.Sprintf("%s of %s for %s %s are for clients that have gone. The program goes on%s: of the %s "+
			"for clients gone %s ago, none has ended", phrase.Number(int64(a.gone)), phrase.Counted(a.all, "request",
			"requests"), a.method, a.path, in, phrase.Counted(a.stayed, "request", "requests"), phrase.Seconds(span)),
		Commands: []string{"clrsnap requests " + e.Again(), "clrsnap tasks " + e.Again()},
	}
	more := a.gone - a.stayed
	if more > 0 {
		v.Text += fmt.Sprintf(", and %s gone meanwhile", phrase.Counted(more, "more client has", "more clients have"))
	}
	v.Text += ". Long work should end when HttpContext.RequestAborted is cancelled."
	switch {
	case more >= goneLikely:
		v.Certainty = profile.Likely
	case a.streams*2 < a.gone:
		v.Text += " Work to be done without a client, too, looks the same."
	}
	for i := range a.places[:min(len(a.places), maxShown)] {
		p := &a.places[i]
		x := profile.Evidence{
			Text:   fmt.Sprintf("%s for gone clients:", phrase.Counted(len(p.Requests), "request", "requests")),
			Frames: p.Doing.Frames,
		}
		for k := range p.Requests {
			if t := p.Requests[k].Thread; t != nil {
				x.Threads = append(x.Threads, *t)
			}
		}
		v.Evidence = append(v.Evidence, x)
	}
	return v
}

// Text says how many of some requests are for gone clients; "": none.
func Text(gone, all int) string {
	switch {
	case gone == 0:
		return ""
	case gone == all:
		return " All these requests are for clients that have gone."
	}
	return fmt.Sprintf(" %s of the requests %s.", phrase.Number(int64(gone)), phrase.Verb(gone,
		"is for a client that has gone", "are for clients that have gone"))
}

// placeOf is the own method of a stack, or else the innermost method; nil: the stack is empty.
func placeOf(frames []snapshot.Frame) *snapshot.Frame {
	if own := gather.OwnFrame(frames); own != nil || len(frames) == 0 {
		return own
	}
	return &frames[0]
}
