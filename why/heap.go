package why

import (
	"context"
	"time"

	"clrsnap"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

const (
	// walkWithin is how long a walk of the heap may take. 1 GB takes up to a second.
	walkWithin = 1500 * time.Millisecond
	// leastConsistent is the share of the heap that has to be proved, so that counts of objects can be compared.
	leastConsistent = 0.9
)

// census counts the objects of the heap, as long as that is quick.
func (g *gatherer) census(ctx context.Context) {
	if g.heapMissing {
		return
	}
	g.progress("the heap")
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	h, err := g.p.Heap(bounded, clrsnap.HeapOptions{})
	switch {
	case err != nil:
		g.miss("The heap was not looked at: %v.", err)
	case h.Partial && ctx.Err() == nil:
		g.miss("The heap was not looked at: it is too large for %v. clrsnap heap %d --every 30s shows what grows.", walkWithin,
			g.e.process.PID)
	default:
		l := heapLook{at: time.Since(g.start), Heap: h}
		l.events, _ = g.s.Handlers(bounded)
		g.e.heaps = append(g.e.heaps, l)
		return
	}
	g.heapMissing = true
}

// calls finds the async methods that wait, if there are connections whose answer does not come.
func (g *gatherer) calls(ctx context.Context) {
	silent := 0
	for i := range g.e.sockets {
		if g.e.sockets[i].unanswered() {
			silent++
		}
	}
	if silent == 0 {
		return
	}
	g.progress("async calls")
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	t, err := g.p.Tasks(bounded, clrsnap.TasksOptions{})
	if err != nil {
		g.miss("Async methods that wait were not looked at: %v.", err)
		return
	}
	g.e.chains = t.Chains
}

// heapLook is what is on the heap at one moment.
type heapLook struct {
	at time.Duration
	*profile.Heap
	events []session.Handlers
}
