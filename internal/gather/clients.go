package gather

import (
	"context"
	"regexp"
	"time"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// clientHandler is the class whose objects each have a pool of connections (System.Net.Http).
const clientHandler = "System.Net.Http.SocketsHttpHandler"

// moreHandlers is how many more handlers of HttpClients are worth a word.
const moreHandlers = 5

// MoreHandlers is how many more handlers of HttpClients the heap has at the end than before; 0: few, or not known.
func (e *Evidence) MoreHandlers() (more int, over time.Duration) {
	if len(e.Heaps) < 2 {
		return 0, 0
	}
	first, last := &e.Heaps[0], &e.Heaps[len(e.Heaps)-1]
	for _, t := range Grown(first, last, func(t *snapshot.HeapType) snapshot.HeapAmount { return t.HeapAmount }) {
		if t.Name == clientHandler && t.Count >= moreHandlers {
			return int(t.Count), last.At - first.At
		}
	}
	return 0, 0
}

// handlers finds what keeps the most handlers of HttpClients, if handlers and descriptors become more.
func (g *Gatherer) handlers(ctx context.Context) {
	first, last, ok := g.Delta()
	if n, _ := g.MoreHandlers(); n == 0 || !ok || MoreFiles(first, last) == 0 {
		return
	}
	g.progress("what keeps objects")
	bounded, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	only := regexp.MustCompile("^" + regexp.QuoteMeta(clientHandler) + "$")
	h, err := g.p.Heap(bounded, clrsnap.HeapOptions{Roots: only})
	if err != nil || h.Partial {
		return // the verdict tells the number all the same
	}
	for i := range h.Paths {
		if p := &h.Paths[i]; g.Handlers == nil || p.Objects.Count > g.Handlers.Objects.Count {
			g.Handlers = p
		}
	}
}

// MakesHandlers is where most handlers of HttpClients are made, by the samples of allocations: the program's method
// above the handler's constructor, or above the allocation of a handler. nil: not known.
func (e *Evidence) MakesHandlers() *Site {
	r := e.Samples
	if !HasMode(r, profile.Alloc) {
		return nil
	}
	list := Sites(r, func(x *profile.Sample) bool {
		if x.Mode != profile.Alloc {
			return false
		}
		for n := x.Node; n > 0; n = r.Nodes[n].Parent {
			if f := r.Function(n); f.Display == clientHandler || f.Method == clientHandler+"..ctor" ||
				f.Method == "System.Net.Http.HttpClient..ctor" {
				return true
			}
		}
		return false
	})
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// Inside is how many connections have both ends in the process.
func (e *Evidence) Inside() (n int) {
	for i := range e.Sockets {
		if s := &e.Sockets[i]; s.Ours && s.Own {
			n++
		}
	}
	return n
}
