package why

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// longList is the least number of references to the last element of a list: nobody looks up elements there.
const longList = 500

// linkedList is objects of one type that have become more, most often in a linked list that is no collection of .NET.
type linkedList struct {
	heapwalk.Row
	gather.GrownType
}

// keptTypes are the growing types whose objects are certainly kept.
func (e *evidence) keptTypes() (out []linkedList) {
	for _, p := range e.GrowingTypes() {
		i := slices.IndexFunc(e.Rows, func(r heapwalk.Row) bool { return r.Type == p.Type })
		if i >= 0 && e.Rows[i].Path.Kept() {
			out = append(out, linkedList{e.Rows[i], p})
		}
	}
	return out
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
		if l.Steps >= longList && l.grows(e.Age) && (out == nil || l.Own == out.Own && l.Steps < out.Steps) {
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
	return l.verdict(e, profile.Likely, "are kept in a linked list", fmt.Sprintf("The shortest way to the last one "+
		"leads over %s references, so the list is no cache and no index: more is put into the list than is taken out.",
		phrase.Number(int64(l.Steps))))
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
			l.Row.Type, kept, l.More(), l.SinceStart(e.Age), reason),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.Process.PID),
			fmt.Sprintf("clrsnap heap %d --roots '^%s$'", e.Process.PID, regexp.QuoteMeta(l.Row.Type))},
	}
	if l.Row.Bytes > 0 {
		v.Text += fmt.Sprintf(" The objects keep %s.", phrase.BytesOf(int64(l.Row.Bytes)))
	}
	v.Text += phrase.KeptBy(l.Path)
	v.Evidence = append([]profile.Evidence{{Text: "The way to the last one: " + phrase.Way(l.Path) + "."}},
		e.grownOld()...)
	return v
}
