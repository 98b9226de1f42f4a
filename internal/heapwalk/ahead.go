package heapwalk

import (
	"cmp"
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// The heap of a native AOT program has other roots than the heap of CoreCLR. The static fields of a class lie in an
// object that the program lists, the static fields of a thread in objects that the Thread leads to. The objects that
// the compiler has made are part of the program, and are never collected.

// Bounds of the static fields of a native AOT program.
const (
	maxHolders      = 1 << 18 // classes with static fields
	maxHolderFields = 1 << 20 // fields in all
)

// errNoStatics: the program was built without the names of its methods and types.
var errNoStatics = errors.New("the program has no description of classes")

// readHolders reads the static fields before the walk. See readSlots.
func (h *heapWalk) readHolders() {
	if h.p.Engine.Ahead == nil || h.p.Engine.Types == nil || !h.p.Moments().Changes() {
		return
	}
	h.p.Engine.Cache.Invalidate()
	_ = h.eachHolder(func(holder, at, to arch.Addr) { h.early = append(h.early, slot{holder, at, to}) })
}

// eachHolder visits the static fields that refer to objects: the object with the field, the field's address, and the
// object in the field. A field that cannot be read is left out.
func (h *heapWalk) eachHolder(visit func(holder, at, to arch.Addr)) error {
	holders, err := h.p.Engine.Ahead.Statics(h.p.Engine.Cache)
	left := maxHolderFields
	for _, obj := range holders[:min(len(holders), maxHolders)] {
		if h.Stopped() || left <= 0 {
			break
		}
		left -= h.eachReference(obj, func(at, to arch.Addr) { visit(obj, at, to) })
	}
	return err
}

// aheadStatics finds the classes of the objects with static fields.
func (h *heapWalk) aheadStatics() *statics {
	s := &statics{ahead: map[arch.Addr]aot.StaticFields{}}
	if h.p.Engine.Ahead == nil || h.p.Engine.Types == nil || h.p.Found == nil || h.p.Found.Module == nil {
		return s
	}
	in := h.p.Found.Module
	list, _ := h.p.Engine.Ahead.StaticFields(h.p.Engine.Cache, in.Start, in.End) // a partial list counts
	for _, f := range list[:min(len(list), maxHolders)] {
		s.bases = append(s.bases, staticBase{at: f.Object})
		s.ahead[f.Object] = f
	}
	slices.SortFunc(s.bases, byAddress)
	return s
}

// aheadField names the static field at an offset of an object with static fields; "": not even the class is known.
func (h *heapWalk) aheadField(obj arch.Addr, off uint32) string {
	f := h.static.ahead[obj]
	class := f.Name
	if f.Table != 0 {
		if c, err := h.p.Engine.Types.Class(f.Table); err == nil {
			class = c.Display
		}
	}
	if class == "" {
		return ""
	}
	return class + "." + cmp.Or(f.Names[off], snapshot.UnknownField)
}

// eachReference visits the references in an object that has no elements, and returns the number of places for
// references.
func (h *heapWalk) eachReference(obj arch.Addr, visit func(at, to arch.Addr)) int {
	class, err := h.p.Managed.Objects.Class(obj)
	if err != nil {
		return 1
	}
	places, err := h.p.Engine.Types.Places(class.Table)
	if err != nil {
		return 1
	}
	for _, off := range places {
		at := obj + arch.Addr(off)
		if to, err := h.p.Managed.Objects.Word(at); err == nil && to != 0 {
			visit(at, to)
		}
	}
	return 1 + len(places)
}

// aheadRoots adds the static fields of a native AOT program.
func (h *heapWalk) aheadRoots(g *heap.Graph, r *rootsOf, lack func(string, error)) {
	if h.p.Engine.Ahead == nil || h.p.Engine.Types == nil {
		lack("static fields", errNoStatics)
		return
	}
	lack("static fields", h.eachHolder(func(_, at, to arch.Addr) {
		if n, ok := g.Number(to); ok {
			r.field(at, n)
		}
	}))
	var holders []int
	g.Of(heap.Pinned, func(t *heap.Table) bool { return h.isStatics(heap.Object{Table: t}, heap.Pinned) },
		func(n int) { holders = append(holders, n) })
	for _, n := range holders { // as the walk has met the fields
		o, _ := g.Object(n)
		g.References(n, func(to int) {
			r.add(&r.sure, to, root{kind: snapshot.RootStatic,
				slots: []arch.Addr{o.Addr}})
		})
	}
	h.earlyRoots(g, r)
	for _, n := range holders {
		r.add(&r.sure, n, root{kind: snapshot.RootHandle, handle: snapshot.HandleStrong})
	}
	lack("static fields of threads", h.blockRoots(g, r))
}

// blockRoots adds the static fields of threads.
func (h *heapWalk) blockRoots(g *heap.Graph, r *rootsOf) error {
	if err := h.p.ReadThreadStore(); err != nil {
		return err
	}
	for _, t := range h.p.ThreadsByID() {
		ref := h.p.ThreadRef(&t)
		add := func(to arch.Addr) {
			if n, ok := g.Number(to); ok {
				r.add(&r.sure, n, root{kind: snapshot.RootThreadStatic, thread: ref})
			}
		}
		for _, to := range h.p.Managed.ThreadObjects(t.Address) {
			add(to)
		}
		for _, block := range h.p.Managed.Threads.Blocks(t.Address) {
			add(block)
		}
	}
	return nil
}

// frozenRoots adds the objects that the compiler has made, as far as nothing else keeps the objects.
func (h *heapWalk) frozenRoots(g *heap.Graph, r *rootsOf) {
	all := func(*heap.Table) bool { return true }
	g.Of(heap.Frozen, all, func(n int) { r.add(&r.sure, n, root{kind: snapshot.RootFrozen}) })
}

// meaning describes what an object stands for: the text of a string, for example. "": nothing else.
func meaning(p *session.Process, obj arch.Addr, class *object.Class) string {
	switch {
	case p.Runtime != nil:
		return p.Runtime.Meaning(obj, class)
	case class.Assembly == coreLib && class.Display == "string":
		return clr.TextMeaning(p.Managed.Objects, obj)
	case class.Is(coreLib, tasks.MulticastClass):
		return p.AheadDelegate(obj, class)
	}
	return ""
}
