package heapwalk

import (
	"context"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Row says how the objects of one class are kept.
type Row struct {
	Type  string
	Count int // objects that are certainly kept; if the root in Path keeps nothing for certain, all objects
	// Steps is the number of references on the shortest way to the farthest object. Many steps are a linked list: the
	// program has no shorter way to the object either.
	Steps int
	Bytes uint64             // that all objects of the class retain; 0: not known
	Path  *snapshot.HeapPath // to the farthest object
}

// LongList is the least number of references to the last element of a list: nobody looks up elements there. The root of
// a list may be a stack, or not known: the last element passes from one running method to the next, for instance with
// an AsyncLocal.
const LongList = 500

// Rows finds how the objects of some classes are kept, in one walk of the heap. Classes without a kept object, and
// without a long list, are left out. Like Options.Roots, Rows takes memory for the references between all objects.
func Rows(ctx context.Context, p *session.Process, types []string) (out []Row, err error) {
	if p.Runtime == nil {
		return nil, p.NoRuntimeError("references")
	}
	w := newWalk(ctx, p, Options{Graph: true})
	p.Engine.Begin()
	census, err := w.references(w.options())
	if err != nil {
		return nil, err
	}
	var all snapshot.Heap
	ways := w.findWays(census.Graph, &all)
	if ways == nil {
		return nil, ctx.Err()
	}
	reaches, known, unkept := ways.Reaches()
	for _, wider := range [][]heap.Reach{known, unkept} {
		for i, r := range wider {
			if reaches[i].Steps < LongList && r.Steps >= LongList {
				reaches[i] = r
			}
		}
	}
	at := map[string]int{}
	for _, t := range types {
		at[t] = -1
	}
	var of []int // of out: the index of the class with the farthest object
	for i, t := range census.Graph.Tables {
		name, r := w.Name(t.Addr).Display, &reaches[i]
		k, wanted := at[name]
		switch {
		case !wanted || r.Count == 0:
		case k < 0:
			at[name] = len(out)
			out, of = append(out, Row{Type: name, Count: r.Count, Steps: int(r.Steps)}), append(of, i)
		default: // a class with the same name in another load context
			if out[k].Count += r.Count; int(r.Steps) > out[k].Steps {
				out[k].Steps, of[k] = int(r.Steps), i
			}
		}
	}
	for k := range out {
		byKey := map[string]*snapshot.HeapPath{}
		w.addPath(census.Graph, ways, reaches[of[k]].To, byKey, &all)
		for _, path := range byKey {
			out[k].Path = path
		}
	}
	if retained := census.Graph.Retained(w.roots.sure, heap.RetainedOptions{Stopped: w.Stopped}); retained != nil {
		bytes := retained.ByTable(w.isStatics)
		for i, t := range census.Graph.Tables {
			if k, wanted := at[w.Name(t.Addr).Display]; wanted && k >= 0 {
				out[k].Bytes += bytes[i]
			}
		}
	}
	return out, p.Alive()
}
