package gather

import (
	"cmp"
	"context"
	"slices"
	"strings"

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

// rows finds how the objects are kept whose number has grown.
func (g *Gatherer) rows(ctx context.Context) {
	var names []string
	list := g.GrowingTypes()
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
		g.Miss("What keeps the objects that become more was not found out: %v.", err)
	}
	g.Rows = rows
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
		p := Pile{Pile: heapwalk.Pile{Kind: heapwalk.Collection, Type: t.Name, Count: int(t.after)},
			Before: int(t.before), took: last.At - first.At, linked: true}
		if p.Grows(e.Age) {
			out = append(out, GrownType{p, own[t.Name]})
		}
	}
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
