package why

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// permitQueue is the queue of the semaphore that async methods wait for; nil: they wait for something else, or the
// queue is not known. A semaphore may have been moved between two looks: then the waiting method tells.
func (e *evidence) permitQueue(w *snapshot.Awaited, own *snapshot.Frame) *snapshot.PermitQueue {
	if e.Likely == nil || w == nil || w.Kind != snapshot.AwaitsSemaphore {
		return nil
	}
	list := e.Likely.PermitQueues
	at := slices.IndexFunc(list, func(q snapshot.PermitQueue) bool { return q.Object == w.Object && w.Object != 0 })
	if at < 0 && own != nil {
		at = slices.IndexFunc(list, func(q snapshot.PermitQueue) bool {
			of := gather.OwnFrame(q.Frames)
			return of != nil && of.Method == own.Method
		})
	}
	if at < 0 {
		return nil
	}
	return &list[at]
}

// addHolder says who holds the permit that async methods wait for. still: the holder is an async method, and has not
// gone on since the first look.
func (e *evidence) addHolder(v *profile.Verdict, w *snapshot.Awaited, own *snapshot.Frame) (still bool) {
	q := e.permitQueue(w, own)
	if q == nil || len(q.Holders) == 0 {
		return false
	}
	var who, does string
	ev := profile.Evidence{}
	if h := q.Holders[0]; h.Thread >= 0 {
		t := &e.Likely.Threads[h.Thread]
		who, does = phrase.ThreadName(gather.Ref(t)), phrase.Doing(t)
		ev.Frames, ev.Threads = t.Frames, []snapshot.ThreadRef{gather.Ref(t)}
	} else {
		a := &e.Likely.Awaits[h.Await]
		if len(a.Frames) == 0 {
			return false
		}
		who, does, ev.Frames = "suspended "+phrase.Method(&a.Frames[0]), "is suspended", a.Frames
		if a.WaitsFor != nil {
			does = awaits(a.WaitsFor)
		}
		if c, at := e.chainWith(&a.Frames[0]); c != nil {
			does, ev.Frames = chainDoes(c, at), c.Frames
			still = e.stoodStill()[tasks.ChainKey(c)] >= c.Count || e.requestStands(&a.Frames[0])
		}
	}
	permit := "The only permit"
	if n := len(q.Holders); n > 1 {
		permit = fmt.Sprintf("One of %d permits", n)
	}
	if q.Field != "" {
		permit += " of " + display.Field(q.Field)
	}
	v.Text += fmt.Sprintf(" %s is held, most likely, by %s, which %s.", permit, who, does)
	ev.Text = "The holder of the permit, most likely:"
	v.Evidence = append(v.Evidence, ev)
	return still
}

// requestStands reports whether the requests in a method, at one place, have been there since the first look.
func (e *evidence) requestStands(f *snapshot.Frame) bool {
	before, after, ok := e.Progressed()
	if !ok {
		return false
	}
	then := placesOf(before.Requests)
	for key, p := range placesOf(after.Requests) {
		if !slices.ContainsFunc(p.group.Doing.Frames, func(o snapshot.Frame) bool { return samePlace(&o, f) }) {
			continue
		}
		if then[key] == nil {
			return false
		}
		for id := range p.requests {
			if then[key].requests[id] == nil {
				return false
			}
		}
		return true
	}
	return false
}

// chainWith is the chain of async methods with a method at the same place, and the index of the method; nil: there is
// none, or several.
func (e *evidence) chainWith(f *snapshot.Frame) (out *snapshot.TaskChain, at int) {
	chains := e.LastFlight().Tasks.Chains
	for i := range chains {
		c := &chains[i]
		k := slices.IndexFunc(c.Frames, func(o snapshot.Frame) bool { return samePlace(&o, f) })
		switch {
		case k < 0:
		case out != nil:
			return nil, 0
		default:
			out, at = c, k
		}
	}
	return out, at
}

func samePlace(a, b *snapshot.Frame) bool {
	return a.Method == b.Method && a.Module == b.Module && (a.Line == nil) == (b.Line == nil) &&
		(a.Line == nil || *a.Line == *b.Line)
}

// ofClient is what an async method of Kestrel waits for: the rest of a request's body; "": something else.
func ofClient(frames []snapshot.Frame) string {
	if len(frames) > 0 && frames[0].Module == "Microsoft.AspNetCore.Server.Kestrel.Core" &&
		strings.Contains(frames[0].Method, "MessageBody") {
		return "the rest of a request's body, which the client has not sent"
	}
	return ""
}
