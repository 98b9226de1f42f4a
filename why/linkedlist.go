package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// linkedList is objects of one type that have become more, most often in a linked list that is no collection of .NET.
type linkedList struct {
	heapwalk.Row
	gather.GrownType
}

// keptTypes are the growing types whose objects are certainly kept, or are a long list that has survived collections.
func (e *evidence) keptTypes() (out []linkedList) {
	for _, p := range e.GrowingTypes() {
		i := slices.IndexFunc(e.Rows, func(r heapwalk.Row) bool { return r.Type == p.Type })
		if i < 0 {
			continue
		}
		l := linkedList{e.Rows[i], p}
		if l.Path.Kept() || l.Steps >= heapwalk.LongList && 2*e.survivors(p.Type) >= l.Steps {
			out = append(out, l)
		}
	}
	return out
}

// survivors is how many objects of a type have survived a collection.
func (e *evidence) survivors(typ string) (n int) {
	types := e.Heaps[len(e.Heaps)-1].Types
	for i := range types {
		if types[i].Name == typ {
			n += int(gather.Old(&types[i]).Count)
		}
	}
	return n
}

// grows reports whether the kept objects have become more. At the first count at most as many objects were kept as were
// counted, so that the other kept objects have come since.
func (l *linkedList) grows(age time.Duration) bool {
	l.Pile.Count = min(l.Pile.Count, l.Row.Count)
	return l.Grows(age)
}

// grownList is the linked list that has grown; nil: there is none. What an element keeps lies behind the element: the
// type that is reached first is the element's.
func (e *evidence) grownList() (out *linkedList) {
	for _, l := range e.keptTypes() {
		if l.Steps >= heapwalk.LongList && l.grows(e.Age) && (out == nil || l.Own == out.Own && l.Steps < out.Steps) {
			out = &l
		}
	}
	return out
}

// grownObjects are the own objects that have become more and keep the most bytes, whatever keeps the objects; nil:
// there are none. Many small collections, or a tree, have no large collection.
func (e *evidence) grownObjects() (out *linkedList) {
	for _, l := range e.keptTypes() {
		l.Pile = l.InAny()
		if l.Own && l.grows(e.Age) && (out == nil || l.Bytes > out.Bytes) {
			out = &l
		}
	}
	return out
}

// listVerdict tells of a linked list that has grown.
func (l *linkedList) listVerdict(e *evidence) profile.Verdict {
	certainty := profile.Likely
	if !l.Path.Kept() {
		certainty = profile.Possible
	}
	kept := "are kept in a linked list"
	if !l.Path.Kept() {
		kept = "are there, many of them in a linked list"
	}
	if c, own, n := e.deepest(); c != nil && throughAwaits(l.Path) {
		v := l.verdict(e, certainty, "are kept by async methods that await one another", fmt.Sprintf("%s awaits "+
			"itself, %d calls deep or deeper, as when a method calls itself in the place of a loop. Each call keeps "+
			"its locals until the innermost has ended.", phrase.Method(own), n))
		v.Evidence = append([]profile.Evidence{{Text: "The innermost calls:", Frames: c.Frames[:min(len(c.Frames),
			maxShown)]}}, v.Evidence...)
		return v
	}
	return l.verdict(e, certainty, kept, fmt.Sprintf("The shortest way to the last one "+
		"leads over %s references, so the list is no cache and no index: more is put into the list than is taken out.",
		phrase.Number(int64(l.Steps))))
}

// deepCalls is how many calls of one async method, each of which awaits the next, are no design.
const deepCalls = 50

// deepest is the chain with the most calls of one own method, and the calls; nil: there are few in all chains.
func (e *evidence) deepest() (chain *snapshot.TaskChain, own *snapshot.Frame, most int) {
	l := e.LastFlight()
	if l == nil {
		return nil, nil, 0
	}
	most = deepCalls - 1
	for i := range l.Tasks.Chains {
		c, calls := &l.Tasks.Chains[i], map[string]int{}
		for k := range c.Frames {
			f := &c.Frames[k]
			if f.Origin() != snapshot.OfUser {
				continue
			}
			if calls[f.Display]++; calls[f.Display] > most {
				chain, own, most = c, f, calls[f.Display]
			}
		}
	}
	return chain, own, most
}

// throughAwaits reports whether a path leads through suspended async methods.
func throughAwaits(path *snapshot.HeapPath) bool {
	return slices.ContainsFunc(path.Steps, func(s snapshot.HeapStep) bool {
		return strings.Contains(s.Type, "AsyncStateMachineBox<") ||
			strings.HasPrefix(s.Type, "System.Runtime.CompilerServices.Continuation")
	})
}

// objectsVerdict tells of objects that have become more.
func (l *linkedList) objectsVerdict(e *evidence) profile.Verdict {
	return l.verdict(e, l.Certainty(e.Age, l.Path), "are kept",
		"Objects are added and not removed, unless they are meant to become more.")
}

func (l *linkedList) verdict(e *evidence, c profile.Certainty, kept, reason string) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: c,
		Text: fmt.Sprintf("Objects pile up: %s objects of %s %s, %s. %s %s", phrase.Number(int64(l.Pile.Count)),
			l.Row.Type, kept, l.More(), l.Whole(e.Age), reason),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.Process.PID),
			fmt.Sprintf("clrsnap heap %d --roots '^%s$'", e.Process.PID, regexp.QuoteMeta(l.Row.Type))},
	}
	if l.Row.Bytes > 0 {
		v.Text += fmt.Sprintf(" The objects keep %s.", phrase.BytesOf(int64(l.Row.Bytes)))
	}
	v.Evidence = e.grownOld()
	if l.Path.Kept() {
		v.Text += phrase.KeptBy("The last one is", l.Path)
		if flight := e.LastFlight(); flight != nil && throughChannel(l.Path) {
			e.addReaders(&v, flight.Tasks)
		}
		v.Evidence = slices.Insert(v.Evidence, 0,
			profile.Evidence{Text: "The way to the last one: " + phrase.Way(l.Path) + "."})
		return v
	}
	if field := phrase.OwnField(l.Path); field != "" {
		v.Text += " The last one is in " + field + "."
	}
	v.Text += " Many of the objects have survived collections."
	if l.Path.Conservative() {
		v.Text += " The first one is on the " + l.Path.Beginning() + "."
	} else {
		v.Text += " What keeps the first one was not found: perhaps a method that runs, or an AsyncLocal of the method."
	}
	return v
}
