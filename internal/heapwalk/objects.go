package heapwalk

import (
	"cmp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/snapshot"
)

// visit sees the wanted objects of a region.
func (h *heapWalk) visit(r *heap.Region, objects []heap.Object) {
	for i := range objects {
		o := &objects[i]
		if o.Table.Addr == h.text && h.o.MaxStrings > 0 {
			h.strings.count(o)
		}
		if h.o.Type != nil {
			h.instance(r, o)
		}
	}
}

// instance keeps an object that is among the largest.
func (h *heapWalk) instance(r *heap.Region, o *heap.Object) {
	class := h.Known(o.Table.Addr)
	if !h.isChosen(o.Table.Addr) { // a string, wanted for the text
		return
	}
	h.matching.Add(snapshot.HeapAmount{Count: 1, Bytes: o.Size})
	h.instances = append(h.instances, snapshot.HeapInstance{
		Address: uint64(o.Addr), Type: class.Display, Bytes: o.Size, Generation: snapshot.Generation(r.Generation),
	})
	if len(h.instances) >= 2*h.maxInstances()+1000 {
		h.trim()
	}
}

func (h *heapWalk) isChosen(mt arch.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chosen[mt]
}

func (h *heapWalk) maxInstances() int { return cmp.Or(h.o.MaxInstances, 1000) }

// trim keeps the largest instances.
func (h *heapWalk) trim() {
	slices.SortFunc(h.instances, func(a, b snapshot.HeapInstance) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Address, b.Address))
	})
	h.instances = h.instances[:min(len(h.instances), h.maxInstances())]
}

// describe adds what the instances stand for. The texts of strings are shown only on request.
func (h *heapWalk) describe() {
	for i := range h.instances {
		x := &h.instances[i]
		at := arch.Addr(x.Address)
		class, err := h.p.Managed.Objects.Class(at)
		if err == nil && class.Display == x.Type && class.Table != stringType(h.p) {
			x.Of = meaning(h.p, at, class)
		}
	}
}

func (h *heapWalk) options() heap.Options {
	o := h.Options()
	if h.o.MaxStrings > 0 {
		h.text = stringType(h.p)
		o.Data = true
	}
	o.Graph = h.graph()
	if h.o.Type != nil || h.o.MaxStrings > 0 {
		o.Want, o.Visit = h.want, h.visit
	}
	return o
}

func (h *heapWalk) want(mt arch.Addr) bool {
	chosen := h.o.Type != nil && h.matches(h.o.Type, mt)
	h.mu.Lock()
	h.chosen[mt] = chosen
	h.mu.Unlock()
	return chosen || h.o.MaxStrings > 0 && mt == h.text
}
