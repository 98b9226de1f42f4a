package heapwalk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Heap walks all objects of the managed heap. The program is not stopped unless Stop, Roots or
// Graph ask for a stop. If ctx ends, the result is Partial, with the objects walked until then.
func Heap(ctx context.Context, p *session.Process, o Options) (*snapshot.Heap, error) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("objects")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	o.Retained = o.Retained || o.Dominators
	h := newWalk(ctx, p, o)
	p.Engine.Begin()
	census, err := h.walk(ctx)
	if err != nil {
		return nil, p.WalkError(err)
	}
	if h.graph() {
		if census.Graph == nil {
			return nil, p.OrExit(fmt.Errorf("process %d: %w", p.PID(), heap.ErrTooLarge))
		}
	}
	out := h.result(census)
	if m, err := Memory(p); err == nil {
		out.Memory = &m
	}
	return out, p.Alive()
}

// walk walks over all objects, of one moment if that is wanted and possible.
func (h *heapWalk) walk(ctx context.Context) (*heap.Census, error) {
	if h.o.Stop && h.p.Moments().Changes() {
		if census, err := h.atOnce(ctx); census != nil || err != nil {
			return census, err
		}
		h.instances, h.matching, h.strings = nil, snapshot.HeapAmount{}, stringCounts{}
		h.began = time.Time{}
	}
	h.noteEpoch() // the GC epoch of now, not of before a stop: objects may have been moved since
	return h.p.WalkHeap(h.options())
}

// result describes the findings of the walk.
func (h *heapWalk) result(c *heap.Census) *snapshot.Heap {
	out := &snapshot.Heap{
		Process: h.p.Info(), CapturedAt: h.Begin, Duration: time.Since(h.Begin),
		HasInstances: h.o.Type != nil, HasPaths: h.o.Roots != nil, HasRetained: h.o.Retained,
		GraphCut: c.Graph != nil && c.Graph.Full, Collecting: c.Collecting, Partial: c.Stopped, Matching: h.matching,
	}
	out.Stop = h.stop
	if !h.began.IsZero() {
		out.CapturedAt = h.began
	}
	out.CapturedAt = h.p.CapturedAt(out.CapturedAt)
	if c.Size > 0 {
		out.ConsistentShare = float64(c.Consistent) / float64(c.Size)
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		out.Parts = append(out.Parts, snapshot.HeapPart{
			Heap: p.Heap, Generation: snapshot.Generation(p.Generation), Regions: p.Regions, Size: p.Size,
			Reserved: p.Reserved, Objects: snapshot.HeapAmount(p.Objects), Free: snapshot.HeapAmount(p.Free),
			Unused: p.Unused, ConsistentBytes: p.Consistent,
		})
	}
	if c.Graph != nil {
		h.linkTypes(c.Graph)
	}
	var retained *heap.Retained
	if h.o.Retained {
		roots := h.findRoots(c.Graph, false, out)
		if retained = c.Graph.Retained(roots.sure, heap.RetainedOptions{
			Last:     h.o.Roots == nil && !h.o.Graph && !h.o.Dominators,
			Progress: h.doing("what keeps what"), Stopped: h.Stopped,
		}); retained == nil {
			out.HasRetained, out.Partial = false, true
		}
	}
	out.Types = h.types(c, retained)
	if h.o.Roots != nil {
		h.paths(c.Graph, out)
	}
	if h.o.Dominators && retained != nil {
		h.dominators(c, retained, out)
	}
	if h.o.Graph {
		h.objects(c.Graph, out)
	}
	switch {
	case h.o.Type != nil && h.matching.Count == 0:
		out.Nearest = nearest(h.o.Type, out.Types)
	case h.o.Roots != nil && out.Kept.Count == 0:
		out.Nearest = nearest(h.o.Roots, out.Types)
	}
	h.trim()
	h.describe()
	out.Instances = h.instances
	out.Strings = h.strings.list(h.o.MaxStrings)
	return out
}

// types sums up by name and load context. of has the retained bytes; nil: unknown.
func (h *heapWalk) types(c *heap.Census, of *heap.Retained) []snapshot.HeapType {
	byName := map[typeKey]int{}
	var retained []uint64
	if of != nil {
		retained = of.ByTable(h.isStatics)
	}
	var out []snapshot.HeapType
	for _, t := range c.Tables {
		if t.Free || t.Index >= len(c.Counts) || c.Counts[t.Index] == ([heap.NumGenerations]heap.Tally{}) {
			continue
		}
		class := h.Name(t.Addr)
		key := h.typeKey(t.Addr)
		i, ok := byName[key]
		if !ok {
			i = len(out)
			byName[key] = i
			out = append(out, snapshot.HeapType{Name: key.name, Assembly: key.assembly, Context: key.context})
			if h.o.Owners {
				out[i].Owner = h.p.Owner(class.Assembly, class.Image)
			}
		}
		if retained != nil {
			out[i].Retained += retained[t.Index]
		}
		for g, n := range c.Counts[t.Index] {
			out[i].Generations[g].Add(snapshot.HeapAmount(n))
			out[i].Add(snapshot.HeapAmount(n))
		}
	}
	slices.SortFunc(out, func(a, b snapshot.HeapType) int {
		return cmp.Or(cmp.Compare(b.Retained, a.Retained), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Assembly, b.Assembly), cmp.Compare(a.Context, b.Context))
	})
	return out
}
