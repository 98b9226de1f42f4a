package heapwalk

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/tasks"
)

// describe describes a large collection. It returns false if the memory has something else now.
func (h *pileWalk) describe(f *foundPile) (p Pile, ok bool) {
	p = Pile{At: f.at, Kind: f.class.kind, Type: f.class.Display, Count: f.count, Element: f.class.element}
	switch ok = true; p.Kind {
	case Event:
		p.Element, ok = h.targets(f)
	case Collection:
		p.Holds = h.lastOf(f)
	case Timers:
		p.Calls = h.timersCall(f.at)
	case Token:
		p.Type = registrations
		p.Calls = h.called(f.token.sample)
	}
	return p, ok
}

// lastOf names the class of most of the last elements of a list of references; "": no such list, or not known.
func (h *pileWalk) lastOf(f *foundPile) string {
	if !strings.HasPrefix(f.class.Display, "System.Collections.Generic.List<") {
		return ""
	}
	objects := h.p.Managed.Objects
	items, err := objects.Pointer(f.at, f.class.Class, "_items")
	if err != nil {
		return ""
	}
	at, n, size, err := objects.Elements(items)
	if err != nil || size != 8 || f.count > n {
		return ""
	}
	var names mostOf
	for i := max(f.count-sampledPile, 0); i < f.count; i++ {
		to, err := objects.Word(at + arch.Addr(8*i))
		if err != nil {
			return ""
		}
		if c, err := objects.Class(arch.Addr(to)); err == nil && to != 0 {
			names.add(c.Display)
		}
	}
	return names.best
}

// targets returns the class of the objects that most of a list's first delegates call. It returns false if there is
// no list, or if the list is too short: the object was moved, or is something else.
func (h *pileWalk) targets(f *foundPile) (string, bool) {
	objects := h.p.Managed.Objects
	at, err := objects.Pointer(f.at, f.class.Class, f.class.list)
	if err != nil {
		return "", false
	}
	list, err := objects.References(at, sampledPile)
	if err != nil || len(list) < min(f.count, sampledPile) {
		return "", false
	}
	var names mostOf
	for _, at := range list {
		c, err := objects.Class(at)
		if err != nil || c.Table != f.class.Table {
			return "", false
		}
		names.add(h.target(at, c))
	}
	return names.best, true
}

// target names the class of the object that a delegate calls, or the method of a lambda; "": the delegate of a static
// method is its own target.
func (h *pileWalk) target(delegate arch.Addr, c *object.Class) string {
	to, err := h.p.Managed.Objects.Pointer(delegate, c, tasks.DelegateTarget)
	if err != nil || to == delegate {
		return ""
	}
	class, err := h.p.Managed.Objects.Class(to)
	if err != nil {
		return ""
	}
	return h.delegates.TargetName(h.p, delegate, class)
}

// mostOf finds the most frequent name.
type mostOf struct {
	counts map[string]int
	best   string // "": there was no name
}

func (m *mostOf) add(name string) {
	if name == "" {
		return
	}
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	if m.counts[name]++; m.counts[name] > m.counts[m.best] {
		m.best = name
	}
}

// The queues of timers, and their fields (System.Private.CoreLib: Timer.cs). A queue has two lists.
const (
	timerQueues  = "System.Threading.TimerQueue[]"
	activeTimers = "<ActiveCount>k__BackingField"
	shortTimers  = "_shortTimers"
	longTimers   = "_longTimers"
	nextTimer    = "_next"
	staticTimer  = "System.Threading.TimerCallback" // a timer calls a static method
	maxQueues    = 1 << 12                          // in one array
)

// active is the sum of the active timers in the queues of an array; 0: the queues cannot be read.
func (h *pileWalk) active(array arch.Addr) (sum int64) {
	objects := h.p.Managed.Objects
	queues, err := objects.References(array, maxQueues)
	if err != nil {
		return 0
	}
	for _, at := range queues {
		class, err := objects.Class(at)
		if err != nil {
			return 0
		}
		off, err := objects.Offset(class, activeTimers)
		if err != nil {
			return 0
		}
		n, err := objects.Word(at + arch.Addr(off))
		if err != nil || n > mostPile {
			return 0
		}
		sum += int64(n)
	}
	return sum
}

// timersCall names the callee of most timers of a sample.
func (h *pileWalk) timersCall(array arch.Addr) string {
	objects := h.p.Managed.Objects
	queues, err := objects.References(array, maxQueues)
	if err != nil {
		return ""
	}
	var names mostOf
	each := max(sampledPile/max(len(queues), 1), 1) // of each list
	for _, queue := range queues[:min(len(queues), sampledPile)] {
		class, err := objects.Class(queue)
		if err != nil {
			continue
		}
		for _, list := range []string{shortTimers, longTimers} {
			at, _ := objects.Pointer(queue, class, list) // 0 on error
			for n := 0; at != 0 && n < each; n++ {
				c, err := objects.Class(at)
				if err != nil {
					break
				}
				if name, err := tasks.TimerCalls(h.p, at, c, h.delegates); err == nil && name != staticTimer {
					names.add(name)
				}
				at, _ = objects.Pointer(at, c, nextTimer)
			}
		}
	}
	return names.best
}

// Callbacks of a CancellationTokenSource are nodes of a list. The nodes belong to the source's registrations. A free
// node has no callback (System.Private.CoreLib: CancellationTokenSource.cs).
const (
	registrations = "System.Threading.CancellationTokenSource+Registrations"
	callbackNode  = "System.Threading.CancellationTokenSource+CallbackNode"
	maxTokens     = 1 << 16 // bounds the tokens with counted callbacks
)

// callback counts a registered callback.
func (h *pileWalk) callback(c *pileClass, o *heap.Object) {
	of := arch.Addr(number(o.Data, c.node.of, true))
	one := calledBack{
		arch.Addr(number(o.Data, c.node.callback, true)), arch.Addr(number(o.Data, c.node.state, true)),
	}
	if of == 0 || one.delegate == 0 {
		return
	}
	t := h.tokens[of]
	if t == nil {
		if len(h.tokens) >= maxTokens {
			return
		}
		t = &tokenCallbacks{class: c}
		h.tokens[of] = t
	}
	if t.count++; len(t.sample) < sampledPile {
		t.sample = append(t.sample, one)
	}
}

// addTokens adds the tokens with many callbacks to the large collections.
func (h *pileWalk) addTokens() {
	for at, t := range h.tokens {
		if t.count >= leastPile {
			h.found = append(h.found, foundPile{class: t.class, at: at, count: t.count, token: t})
		}
	}
	h.trim()
}

// called names the most frequent class of the callbacks' arguments. Without an argument, the class of the object that
// the callback calls counts.
func (h *pileWalk) called(sample []calledBack) string {
	var names mostOf
	for _, one := range sample {
		if one.state == 0 {
			one.state = one.delegate
		}
		c, err := h.p.Managed.Objects.Class(one.state)
		switch {
		case err != nil:
		case c.Is(coreLib, tasks.MulticastClass): // the argument of Register, if Register got no state
			names.add(h.target(one.state, c))
		default:
			names.add(c.Display)
		}
	}
	return names.best
}

// handles are the handles that keep objects, if there are many; nil: few, or some cannot be read.
func (h *pileWalk) handles() []Pile {
	list, err := h.p.Managed.Heap.Handles(h.p.Target())
	list = slices.DeleteFunc(list, func(one heap.Handle) bool { return !one.Keeps() })
	if err != nil || len(list) < leastPile {
		return nil
	}
	var names mostOf
	for i := range sampledPile {
		if c, err := h.p.Managed.Objects.Class(list[i*len(list)/sampledPile].Object); err == nil {
			names.add(c.Display)
		}
	}
	return []Pile{{Kind: Handles, Count: len(list), Element: names.best}}
}
