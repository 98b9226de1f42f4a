package why

import (
	"fmt"
	"regexp"
	"slices"

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

// grownList is the linked list that has grown; nil: there is none. At the first count at most as many objects were kept
// as were counted, so that the other kept objects have come since. What an element keeps lies behind the element: the
// type that is reached first is the element's.
func (e *evidence) grownList() (out *linkedList) {
	for _, p := range e.GrowingTypes() {
		i := slices.IndexFunc(e.Rows, func(r heapwalk.Row) bool { return r.Type == p.Type })
		if i < 0 || e.Rows[i].Steps < longList || !e.Rows[i].Path.Kept() {
			continue
		}
		l := &linkedList{e.Rows[i], p}
		l.Pile.Count = min(l.Pile.Count, l.Row.Count)
		if l.Grows(e.Age) && (out == nil || p.Own == out.Own && l.Steps < out.Steps) {
			out = l
		}
	}
	return out
}

// grownObjects are the own objects that have become more and keep the most bytes, whatever keeps the objects; nil:
// there are none. Many small collections, or a tree, have no large collection.
func (e *evidence) grownObjects() (out *linkedList) {
	for _, p := range e.GrowingTypes() {
		i := slices.IndexFunc(e.Rows, func(r heapwalk.Row) bool { return r.Type == p.Type })
		if !p.Own || i < 0 || !e.Rows[i].Path.Kept() {
			continue
		}
		l := &linkedList{e.Rows[i], p}
		l.Pile = p.InAny()
		l.Pile.Count = min(l.Pile.Count, l.Row.Count)
		if l.Grows(e.Age) && (out == nil || l.Bytes > out.Bytes) {
			out = l
		}
	}
	return out
}

// objectsVerdict tells of objects that have become more.
func (l *linkedList) objectsVerdict(e *evidence) profile.Verdict {
	v := l.verdict(e)
	v.Certainty = l.Certainty(e.Age, l.Path)
	v.Text = fmt.Sprintf("Objects pile up: %s objects of %s are kept, %s. %s Objects are added and not removed, unless "+
		"they are meant to become more.%s%s", phrase.Number(int64(l.Pile.Count)), l.Row.Type, l.More(),
		l.SinceStart(e.Age), l.keepText(), keptBy(l.Path))
	return v
}

// keepText says how much the objects keep. The text begins with a blank; "": not known.
func (l *linkedList) keepText() string {
	if l.Row.Bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" The objects keep %s.", phrase.BytesOf(int64(l.Row.Bytes)))
}

func (l *linkedList) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: profile.Likely,
		Text: fmt.Sprintf("Objects pile up: %s objects of %s are kept in a linked list, %s. %s The shortest way to the "+
			"last one leads over %s references, so the list is no cache and no index: more is put into the list than is "+
			"taken out.", phrase.Number(int64(l.Pile.Count)), l.Row.Type, l.More(), l.SinceStart(e.Age),
			phrase.Number(int64(l.Steps))),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.Process.PID),
			fmt.Sprintf("clrsnap heap %d --roots '^%s$'", e.Process.PID, regexp.QuoteMeta(l.Row.Type))},
	}
	v.Text += l.keepText() + keptBy(l.Path)
	v.Evidence = append([]profile.Evidence{{Text: "The way to the last one: " + wayText(l.Path) + "."}},
		e.grownOld()...)
	return v
}
