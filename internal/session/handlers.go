package session

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
)

// Handlers is a delegate that calls many others: what an event with many handlers is.
type Handlers struct {
	Type    string // of the delegate
	Count   int
	Targets string // the class of the objects that most of them call, of a sample; "": of static methods
}

// Bounds of Handlers.
const (
	leastHandlers    = 100
	mostHandlers     = 1 << 26
	maxHandlers      = 1 << 10 // delegates that are kept
	sampledHandlers  = 64
	maxDelegateTypes = 1 << 14
)

// multicast is what is read of delegates (System.Private.CoreLib: MulticastDelegate.CoreCLR.cs, Delegate.CoreCLR.cs).
// A delegate of several has them in an array, of which the first so many count.
const (
	multicastClass = "System.MulticastDelegate"
	handlerList    = "_invocationList"
	handlerCount   = "_invocationCount"
	handlerTarget  = "_target"
)

// Handlers finds the delegates on the heap that call at least 100 others, the largest of each type and target first.
// Those that have been replaced by larger ones and are not collected yet count as well. If ctx ends, there are none: a
// part of them cannot be compared with what is found another time.
func (p *Process) Handlers(ctx context.Context) ([]Handlers, error) {
	if p.Runtime == nil {
		return nil, p.NoRuntimeError()
	}
	w := heapWalk{p: p}
	h := handlerWalk{p: p, classes: map[arch.Addr]*object.Class{}}
	p.Engine.Begin()
	census, err := p.Runtime.Heap.Walk(heap.Options{
		Memory: p.from, Still: !p.from.changes(), Threads: w.threads, Check: p.Runtime.Types.Check,
		Want: h.want, Data: true, Visit: h.visit, Stopped: func() bool { return ctx.Err() != nil },
	})
	if err != nil {
		return nil, p.orExit(err)
	}
	if census.Stopped {
		return nil, ctx.Err()
	}
	return h.result(), p.Alive()
}

type handlerWalk struct {
	p       *Process
	classes map[arch.Addr]*object.Class // of delegates, by MethodTable
	found   []foundHandlers
}

type foundHandlers struct {
	class *object.Class
	list  arch.Addr
	count int
}

// want reports whether a class is one of delegates.
func (h *handlerWalk) want(mt arch.Addr) bool {
	c, err := h.p.Runtime.Objects.Table(mt)
	if err != nil || len(h.classes) >= maxDelegateTypes || !c.Is("System.Private.CoreLib", multicastClass) {
		return false
	}
	h.classes[mt] = c
	return true
}

// visit keeps the delegates that call many others.
func (h *handlerWalk) visit(_ *heap.Region, list []heap.Object) {
	for i := range list {
		o := &list[i]
		c := h.classes[o.Table.Addr]
		if c == nil {
			continue
		}
		count, ok1 := h.word(o, c, handlerCount)
		at, ok2 := h.word(o, c, handlerList)
		if ok1 && ok2 && count >= leastHandlers && count <= mostHandlers && at != 0 {
			h.keep(foundHandlers{c, arch.Addr(at), int(count)})
		}
	}
}

func (h *handlerWalk) word(o *heap.Object, c *object.Class, field string) (uint64, bool) {
	off, err := h.p.Runtime.Objects.Offset(c, field)
	if err != nil || int(off)+8 > len(o.Data) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(o.Data[off:]), true
}

// keep keeps the largest ones.
func (h *handlerWalk) keep(f foundHandlers) {
	h.found = append(h.found, f)
	if len(h.found) >= 2*maxHandlers {
		h.trim()
	}
}

func (h *handlerWalk) trim() {
	slices.SortFunc(h.found, func(a, b foundHandlers) int { return cmp.Compare(b.count, a.count) })
	h.found = h.found[:min(len(h.found), maxHandlers)]
}

// result names what was found: of each type and target the largest.
func (h *handlerWalk) result() []Handlers {
	h.trim()
	h.p.Engine.Cache.Invalidate()
	seen := map[[2]string]bool{}
	var out []Handlers
	for i := range h.found {
		f := &h.found[i]
		targets, ok := h.targets(f)
		if key := [2]string{f.class.Display, targets}; ok && !seen[key] {
			seen[key] = true
			out = append(out, Handlers{f.class.Display, f.count, targets})
		}
	}
	return out
}

// targets returns the class of the objects that most of the first delegates of a list call. It is false if the list is
// none, or shorter than it should be: the object was moved, or is something else.
func (h *handlerWalk) targets(f *foundHandlers) (string, bool) {
	objects := h.p.Runtime.Objects
	list, err := objects.References(f.list, sampledHandlers)
	if err != nil || len(list) < min(f.count, sampledHandlers) {
		return "", false
	}
	counts, best := map[string]int{}, ""
	for _, at := range list {
		c, err := objects.Class(at)
		if err != nil || c.Table != f.class.Table {
			return "", false
		}
		to, err := objects.Pointer(at, c, handlerTarget)
		if err != nil || to == at { // a static method's delegate is its own target
			continue
		}
		if of, err := objects.Class(to); err == nil {
			if counts[of.Display]++; counts[of.Display] > counts[best] {
				best = of.Display
			}
		}
	}
	return best, true
}
