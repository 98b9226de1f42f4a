package why

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"clrsnap/internal/heapwalk"
	"clrsnap/profile"
)

const (
	mostGrowing = 16  // types whose objects are looked for
	longList    = 500 // references to the last element: nobody looks up elements there
)

// grownType is a type whose objects have become more.
type grownType struct {
	pile
	own bool // not of .NET
}

// linkedList is objects of one type that have become more, in a linked list that is no collection of .NET.
type linkedList struct {
	heapwalk.Row
	grownType
}

// rows finds how the objects are kept whose number has grown.
func (g *gatherer) rows(ctx context.Context) {
	var names []string
	list := g.e.growingTypes()
	for i := range list[:min(len(list), mostGrowing)] {
		names = append(names, list[i].Type)
	}
	if len(names) == 0 {
		return
	}
	g.progress("what keeps objects")
	bounded, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	rows, err := heapwalk.Rows(bounded, g.s, names)
	if err != nil && ctx.Err() == nil {
		g.miss("What keeps the objects that become more was not found out: %v.", err)
	}
	g.e.rows = rows
}

// growingTypes are the types whose objects have become more all the time, as far as counts tell, own types first.
// Objects that nothing keeps count as well. The collections of .NET are piles.
func (e *evidence) growingTypes() (out []grownType) {
	if len(e.heaps) < 2 {
		return nil
	}
	first, last := &e.heaps[0], &e.heaps[len(e.heaps)-1]
	if last.at-first.at < leastBetween {
		return nil
	}
	own := map[string]bool{}
	all := func(t *profile.HeapType) profile.HeapAmount {
		if !profile.Framework(t.Assembly) {
			own[t.Name] = true
		} else if strings.HasPrefix(t.Name, "System.Collections.") {
			return profile.HeapAmount{}
		}
		return t.HeapAmount
	}
	for _, t := range grown(first, last, all) {
		p := pile{Pile: heapwalk.Pile{Kind: heapwalk.Collection, Type: t.name, Count: int(t.after)},
			before: int(t.before), took: last.at - first.at, linked: true}
		if p.grows(e.age) {
			out = append(out, grownType{p, own[t.name]})
		}
	}
	slices.SortStableFunc(out, func(a, b grownType) int {
		switch {
		case a.own == b.own:
			return 0
		case a.own:
			return -1
		}
		return 1
	})
	return out
}

// grownList is the linked list that has grown; nil: there is none. At the first count at most as many objects were kept
// as were counted, so that the other kept objects have come since. What an element keeps lies behind the element: the
// type that is reached first is the element's.
func (e *evidence) grownList() (out *linkedList) {
	for _, p := range e.growingTypes() {
		i := slices.IndexFunc(e.rows, func(r heapwalk.Row) bool { return r.Type == p.Type })
		if i < 0 || e.rows[i].Steps < longList || !e.rows[i].Path.Kept() {
			continue
		}
		l := &linkedList{e.rows[i], p}
		l.pile.Count = min(l.pile.Count, l.Row.Count)
		if l.grows(e.age) && (out == nil || p.own == out.own && l.Steps < out.Steps) {
			out = l
		}
	}
	return out
}

func (l *linkedList) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: profile.Likely,
		Text: fmt.Sprintf("Objects pile up: %s objects of %s are kept in a linked list, %s. %s The shortest way to the "+
			"last one leads over %s references, so the list is no cache and no index: more is put into the list than is "+
			"taken out.", number(int64(l.pile.Count)), l.Row.Type, l.more(), l.sinceStart(e.age), number(int64(l.Steps))),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.process.PID),
			fmt.Sprintf("clrsnap heap %d --roots '^%s$'", e.process.PID, regexp.QuoteMeta(l.Row.Type))},
	}
	if l.Row.Bytes > 0 {
		v.Text += fmt.Sprintf(" The objects keep %s.", bytesOf(int64(l.Row.Bytes)))
	}
	v.Text += keptBy(l.Path)
	v.Evidence = append([]profile.Evidence{{Text: "The way to the last one: " + wayText(l.Path) + "."}}, e.grownOld()...)
	return v
}
