package gather

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/heapwalk"
	"clrsnap/snapshot"
)

// mostGrowing bounds the types whose objects are looked for.
const mostGrowing = 16

// GrownType is a type whose objects have become more.
type GrownType struct {
	Pile
	Own bool // not of .NET
}

// InAny is the growth for an owner of any kind: a cache may fill up.
func (t *GrownType) InAny() Pile {
	p := t.Pile
	p.linked = false
	return p
}

// RowsLook is how objects were kept at the beginning, and until the end.
type RowsLook struct {
	Rows      []heapwalk.Row
	at, until time.Duration // since the start: this look, and the look at the end
}

// quickWalk is how long the count of the heap may have taken, so that a walk for what keeps objects is worth the time
// at the beginning.
const quickWalk = 50 * time.Millisecond

// earlyRows finds how many objects of the own types with many objects are kept at the beginning. The count of the heap
// has garbage as well.
func (g *Gatherer) earlyRows(ctx context.Context) {
	if g.heapMissing || len(g.Heaps) == 0 || g.Heaps[0].Duration > quickWalk {
		return
	}
	var names []string
	for i := range g.Heaps[0].Types {
		if t := &g.Heaps[0].Types[i]; !snapshot.Framework(t.Assembly) && t.Count >= manyPiled &&
			len(names) < mostGrowing {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	at := time.Since(g.start)
	if rows, err := heapwalk.Rows(bounded, g.s, names); err == nil && len(rows) > 0 {
		g.EarlyRows = &RowsLook{Rows: rows, at: at}
	}
}

// rows finds how the objects are kept whose number has grown.
func (g *Gatherer) rows(ctx context.Context) {
	var names []string
	list := g.GrowingTypes()
	for i := range list[:min(len(list), mostGrowing)] {
		names = append(names, list[i].Type)
	}
	if g.EarlyRows != nil {
		for i := range g.EarlyRows.Rows {
			if name := g.EarlyRows.Rows[i].Type; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		g.EarlyRows.until = time.Since(g.start)
	}
	if len(names) == 0 {
		return
	}
	g.progress("what keeps objects")
	bounded, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	rows, err := heapwalk.Rows(bounded, g.s, names)
	if err != nil && ctx.Err() == nil {
		g.Miss("What keeps the objects that become more was not found out: %v.", err)
	}
	g.Rows = rows
}

// ofType is the growth of the objects of a type, which may be a linked list.
func ofType(name string, before, now int, took time.Duration) Pile {
	return Pile{Pile: heapwalk.Pile{Kind: heapwalk.Collection, Type: name, Count: now}, Before: before, took: took,
		linked: true}
}

// kept replaces the growth of types by the growth of the objects that are kept, where that is known.
func (e *Evidence) kept(counted []GrownType) []GrownType {
	if e.EarlyRows == nil {
		return counted
	}
	for i := range e.Rows {
		now := &e.Rows[i]
		k := slices.IndexFunc(e.EarlyRows.Rows, func(r heapwalk.Row) bool { return r.Type == now.Type })
		if k < 0 || now.Path.Kept() != e.EarlyRows.Rows[k].Path.Kept() {
			continue
		}
		counted = slices.DeleteFunc(counted, func(t GrownType) bool { return t.Type == now.Type })
		p := ofType(now.Type, e.EarlyRows.Rows[k].Count, now.Count, e.EarlyRows.until-e.EarlyRows.at)
		if p.Grows(e.Age) {
			counted = append(counted, GrownType{p, true})
		}
	}
	return counted
}

// GrowingTypes are the types whose objects have become more all the time, as far as counts tell: first assemblies, then
// own types. Objects that nothing keeps count as well. The collections of .NET are piles.
func (e *Evidence) GrowingTypes() (out []GrownType) {
	if len(e.Heaps) < 2 {
		return nil
	}
	first, last := &e.Heaps[0], &e.Heaps[len(e.Heaps)-1]
	if last.At-first.At < leastBetween {
		return nil
	}
	own := map[string]bool{}
	all := func(t *snapshot.HeapType) snapshot.HeapAmount {
		if !snapshot.Framework(t.Assembly) {
			own[t.Name] = true
		} else if strings.HasPrefix(t.Name, "System.Collections.") {
			return snapshot.HeapAmount{}
		}
		return t.HeapAmount
	}
	for _, t := range Grown(first, last, all) {
		p := ofType(t.Name, int(t.before), int(t.after), last.At-first.At)
		if p.Grows(e.Age) {
			out = append(out, GrownType{p, own[t.Name]})
		}
	}
	out = e.kept(out)
	slices.SortStableFunc(out, func(a, b GrownType) int { return cmp.Compare(a.order(), b.order()) })
	return out
}

// order puts the types of most interest first.
func (t *GrownType) order() int {
	switch {
	case t.Type == AssemblyClass:
		return 0
	case t.Own:
		return 1
	}
	return 2
}
