package heapwalk

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// handlerFields are the fields of a delegate with several handlers: an array that begins with the handlers, and the
// number of handlers. In .NET 11, other delegates have something else in these fields.
var handlerFields = []struct{ list, count string }{
	{"_invocationList", "_invocationCount"}, {"_helperObject", "_extraData"},
}

// countables are the countable classes (dotnet/runtime: src/libraries/System.Private.CoreLib, System.Collections). A
// concurrent dictionary has many numbers, in its tables: see concurrentTables.
var countables = map[string]countable{
	tasks.MulticastClass: {kind: Event, eightBytes: true}, // by handlerFields
	concurrentTables:     {kind: Collection},

	"System.Collections.Concurrent.ConcurrentQueue`1": {
		kind: Collection, count: "_head", eightBytes: true, segments: true,
	},

	"System.Collections.Generic.Dictionary`2":    {kind: Collection, count: "_count", free: "_freeCount"},
	"System.Collections.Generic.HashSet`1":       {kind: Collection, count: "_count", free: "_freeCount"},
	"System.Collections.Generic.List`1":          {kind: Collection, count: "_size"},
	"System.Collections.Generic.Queue`1":         {kind: Collection, count: "_size"},
	"System.Collections.Generic.Deque`1":         {kind: Collection, count: "_size"}, // of channels
	"System.Collections.Generic.Stack`1":         {kind: Collection, count: "_size"},
	"System.Collections.Generic.LinkedList`1":    {kind: Collection, count: "count"},
	"System.Collections.Generic.SortedSet`1":     {kind: Collection, count: "count"},
	"System.Collections.Generic.SortedList`2":    {kind: Collection, count: "_size"},
	"System.Collections.Generic.PriorityQueue`2": {kind: Collection, count: "_size"},
	"System.Collections.Hashtable":               {kind: Collection, count: "_count"},
	"System.Collections.ArrayList":               {kind: Collection, count: "_size"},
}

// The tables of a ConcurrentDictionary are replaced as the dictionary grows. Each lock has the number of guarded
// elements.
const (
	concurrentTables = "System.Collections.Concurrent.ConcurrentDictionary`2+Tables"
	countPerLock     = "_countPerLock"
)

// Piles finds the large collections on the heap: events, collections and tokens with at least 100 elements, and the
// timers if there are as many. The larger collections come first: the largest event of each type and element, and the
// 16 largest of each other type. Collections that have been replaced by larger ones and are not collected yet count
// as well. If ctx ends, there is no result: a part of the collections cannot be compared with a later result.
func Piles(ctx context.Context, p *session.Process) ([]Pile, error) {
	if p.Runtime == nil {
		return nil, p.NoRuntimeError("collections")
	}
	w := p.NewHeapWalk(ctx, session.WalkOptions{})
	h := newPileWalk(p)
	p.Engine.Begin()
	o := heap.Options{
		Memory: p.Target(), Still: !p.Moments().Changes(), Threads: w.Threads, Check: p.Runtime.Types.Check,
		Want: h.want, Data: true, Visit: h.visit, Stopped: w.Stopped,
	}
	census, err := p.Managed.Heap.Walk(o)
	if err != nil {
		return nil, p.OrExit(err)
	}
	if census.Stopped {
		return nil, ctx.Err()
	}
	return append(h.result(), h.handles()...), p.Alive()
}

// want reports whether objects of a class have a count.
func (h *pileWalk) want(mt arch.Addr) bool {
	if len(h.classes) >= maxPileTypes {
		return false
	}
	c := h.class(mt)
	if c != nil {
		h.classes[mt] = c
	}
	return c != nil
}

// class returns the fields with the count of a class's objects; nil: the objects have no count.
func (h *pileWalk) class(mt arch.Addr) *pileClass {
	objects := h.p.Managed.Objects
	c, err := objects.Table(mt)
	if err != nil {
		return nil
	}
	out := &pileClass{Class: c}
	switch c.Display {
	case timerQueues:
		out.kind = Timers
		return out
	case callbackNode:
		out.kind = Token
		return out.bind(objects)
	}
	for b := range c.Bases {
		assembly, name, err := objects.FullName(b)
		if err != nil {
			return nil
		}
		if of, ok := countables[name]; ok && snapshot.Framework(assembly) {
			out.countable, out.element = of, objects.Argument(b)
			return out.bind(objects)
		}
	}
	return nil
}

// bind finds the fields; nil: the class lacks a field.
func (c *pileClass) bind(objects *object.Reader) *pileClass {
	if c.kind == Event {
		for _, f := range handlerFields {
			if _, err := objects.Offset(c.Class, f.list); err == nil {
				c.list, c.countable.count = f.list, f.count
				break
			}
		}
		if c.list == "" {
			return nil
		}
	}
	for name, to := range c.fields() {
		if name == "" {
			continue
		}
		var err error
		if *to, err = objects.Offset(c.Class, name); err != nil {
			return nil
		}
	}
	return c
}

// fields are the fields to read, by name, and the places for their offsets.
func (c *pileClass) fields() map[string]*uint32 {
	switch {
	case c.kind == Token:
		return map[string]*uint32{
			"Registrations": &c.node.of, "Callback": &c.node.callback, "CallbackState": &c.node.state,
		}
	case c.perLock():
		return map[string]*uint32{countPerLock: &c.count}
	}
	return map[string]*uint32{c.countable.count: &c.count, c.countable.free: &c.free}
}

// perLock reports whether the numbers are counted per lock.
func (c *pileClass) perLock() bool { return c.kind == Collection && c.countable.count == "" }

// visit keeps the objects with many elements.
func (h *pileWalk) visit(_ *heap.Region, list []heap.Object) {
	for i := range list {
		o := &list[i]
		c := h.classes[o.Table.Addr]
		if c == nil {
			continue
		}
		if c.kind == Token {
			h.callback(c, o)
			continue
		}
		if n := h.count(c, o); n >= leastPile && n <= mostPile {
			h.keep(foundPile{class: c, at: o.Addr, count: int(n)})
		}
	}
}

// count is the number of an object's elements, by the object's own fields.
func (h *pileWalk) count(c *pileClass, o *heap.Object) int64 {
	if c.kind == Timers {
		return h.active(o.Addr)
	}
	n := number(o.Data, c.count, c.eightBytes || c.perLock())
	switch {
	case c.perLock():
		return h.sum(arch.Addr(n))
	case c.segments:
		return h.queued(arch.Addr(n))
	}
	if c.free != 0 {
		n -= number(o.Data, c.free, c.eightBytes)
	}
	return n
}

// sum adds up the numbers of an array; 0: the array cannot be read, or too many arrays have been read.
func (h *pileWalk) sum(array arch.Addr) (sum int64) {
	if h.tables++; h.tables > maxPileTables || array == 0 {
		return 0
	}
	at, n, size, err := h.p.Managed.Objects.Elements(array)
	if err != nil || size != 4 || n > maxPileLocks {
		return 0
	}
	for i := range arch.Addr(n) {
		v, err := h.p.Managed.Objects.Int32(at + 4*i)
		if err != nil {
			return 0
		}
		sum += int64(v)
	}
	return sum
}

// The fields of a segment of a ConcurrentQueue, and the places of the two numbers in _headAndTail (dotnet/runtime:
// ConcurrentQueueSegment.cs, PaddingHelpers). A segment with a successor is frozen: twice its length is added to its
// tail.
const (
	segmentNumbers = "_headAndTail"
	segmentFrozen  = "_frozenForEnqueues"
	segmentSlots   = "_slots"
	nextSegment    = "_nextSegment"
	segmentHead    = 64
	segmentTail    = 128

	maxSegments = 1 << 10 // of one queue
)

// queued is the number of elements of a ConcurrentQueue, by its segments; 0: the segments cannot be read, or too many
// have been read.
func (h *pileWalk) queued(segment arch.Addr) (sum int64) {
	objects := h.p.Managed.Objects
	for range maxSegments {
		if h.tables++; segment == 0 || h.tables > maxPileTables {
			break
		}
		class, err := objects.Class(segment)
		if err != nil {
			return 0
		}
		at, err := objects.Offset(class, segmentNumbers)
		if err != nil {
			return 0
		}
		head, err1 := objects.Int32(segment + arch.Addr(at) + segmentHead)
		tail, err2 := objects.Int32(segment + arch.Addr(at) + segmentTail)
		frozen, err3 := objects.Uint32(segment, class, segmentFrozen) // a byte
		slots, err4 := objects.Pointer(segment, class, segmentSlots)
		if errors.Join(err1, err2, err3, err4) != nil {
			return 0
		}
		_, length, _, err := objects.Elements(slots)
		if err != nil {
			return 0
		}
		n := int64(tail - head)
		if byte(frozen) != 0 {
			n -= 2 * int64(length)
		}
		if n < 0 || n > int64(length) {
			return 0 // the segment changes
		}
		sum += n
		if segment, err = objects.Pointer(segment, class, nextSegment); err != nil {
			return 0
		}
	}
	return sum
}

// result names the large collections: the largest of each kind, type and element.
func (h *pileWalk) result() []Pile {
	h.addTokens()
	h.p.Engine.Cache.Invalidate()
	seen := map[Pile]int{}
	var out []Pile
	for i := range h.found {
		f := &h.found[i]
		pile, ok := h.describe(f)
		key := Pile{Kind: pile.Kind, Type: pile.Type, Element: pile.Element}
		if ok && (seen[key] == 0 || pile.Kind != Event && seen[key] < mostAlike) {
			seen[key]++
			out = append(out, pile)
		}
	}
	return out
}

// PilePath returns the path that keeps a large collection, or the largest similar collection; nil: none of them was
// found to be kept, or the heap cannot tell. A path from a thread's stack comes last. count is the number of elements
// of that collection. PilePath holds the references between all objects for a while: it takes the memory and the time
// of Options.Roots.
func PilePath(ctx context.Context, p *session.Process, like Pile) (
	keeper *snapshot.HeapPath, count int, err error,
) {
	switch {
	case p.Runtime == nil:
		return nil, 0, p.NoRuntimeError("collections")
	case like.Kind == Handles:
		return nil, 0, nil // the runtime keeps the handles
	}
	w := newWalk(ctx, p, Options{Roots: regexp.MustCompile("^" + regexp.QuoteMeta(like.Type) + "$")})
	h := newPileWalk(p)
	p.Engine.Begin()
	o := w.options()
	o.Data, o.Visit = true, h.visit
	wanted := like.Type
	if like.Kind == Token {
		wanted = callbackNode
	}
	o.Want = func(mt arch.Addr) bool { return w.Name(mt).Display == wanted && h.want(mt) }
	census, err := w.references(o)
	if err != nil {
		return nil, 0, err
	}
	h.addTokens()
	slices.SortStableFunc(h.found, func(a, b foundPile) int { // like itself comes first, if like has not moved
		return cmp.Compare(absent(a.at == like.At), absent(b.at == like.At))
	})
	var all snapshot.Heap
	ways := w.findWays(census.Graph, &all)
	if ways == nil {
		return nil, 0, ctx.Err()
	}
	onStack, of := (*snapshot.HeapPath)(nil), 0
	for i := range h.found {
		n, ok := census.Graph.Number(h.found[i].at)
		if pile, same := h.describe(&h.found[i]); !ok || !same || pile.Kind != like.Kind ||
			pile.Element != like.Element {
			continue
		}
		byKey := map[string]*snapshot.HeapPath{}
		w.addPath(census.Graph, ways, n, byKey, &all)
		for _, path := range byKey {
			if path.Kept() {
				return path, h.found[i].count, nil
			}
			if onStack == nil && path.Conservative() && h.found[i].at == like.At {
				onStack, of = path, h.found[i].count
			}
		}
	}
	return onStack, of, nil
}

// absent is 0 if there is true, and 1 otherwise.
func absent(there bool) int {
	if there {
		return 0
	}
	return 1
}
