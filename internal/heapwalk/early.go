package heapwalk

import "clrsnap/internal/clr/heap"

// isStatics reports whether an object without incoming references is a table in which the runtime
// keeps static fields: an array of objects, allocated so that the array never moves
// (src/coreclr/vm/appdomain.cpp, PinnedHeapHandleTable).
func (h *heapWalk) isStatics(o heap.Object, in heap.Generation) bool {
	if in != heap.Pinned {
		return false
	}
	if h.p.Runtime == nil {
		return h.p.Engine.Types.HasStatics(o.Table.Addr)
	}
	return h.Name(o.Table.Addr).Display == "object[]"
}

// moved reports whether objects may have been moved since the walk began.
func (h *heapWalk) moved() bool { return !h.p.Moments().Unmoved(h.epoch) }

// earlyRoots adds the objects that static fields referred to before the walk, if no object has been
// moved since.
func (h *heapWalk) earlyRoots(g *heap.Graph, r *rootsOf) {
	if len(h.early) == 0 || h.moved() {
		return
	}
	for _, s := range h.early {
		n, ok := g.Number(s.table)
		if !ok {
			continue
		}
		if table, in := g.Object(n); h.isStatics(table, in) {
			if to, ok := g.Number(s.to); ok {
				r.field(s.at, to)
			}
		}
	}
}
