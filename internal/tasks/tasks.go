package tasks

import (
	"cmp"
	"context"
	"slices"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Find finds the async methods on the managed heap that have not ended, and their waits, without stopping the
// program. With WalkOptions.Stop the last look is taken while all threads stand still. If ctx ends, the result has
// everything found until then, and is Partial.
func Find(ctx context.Context, p *session.Process, o session.WalkOptions) (*snapshot.Tasks, error) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("async methods")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	p.Engine.Begin()
	pace := p.NewHeapWalk(ctx, o) // of all looks
	var best *snapshot.Tasks
	for vain := 0; vain < vainLooks; {
		out, err := look(ctx, p, o)
		switch {
		case err != nil && best != nil:
			return best, p.Alive()
		case err != nil:
			return nil, p.WalkError(err)
		}
		if o.Stop && p.Moments().Changes() {
			best = atRest(ctx, p, o, out)
			break
		}
		if vain++; best == nil || lacking(out) < lacking(best) && !out.Partial {
			best, vain = out, 0
		}
		rest := max(pace.Ahead(), 0)
		if lacking(best) == 0 || best.Partial || !p.Moments().Changes() || time.Since(pace.Begin)+rest > RewalkWithin ||
			!session.Sleep(ctx, rest) {
			break
		}
		p.Engine.Cache.Invalidate()
	}
	best.Duration = time.Since(pace.Begin)
	return best, p.Alive()
}

// look is one look of Tasks.
func look(ctx context.Context, p *session.Process, o session.WalkOptions) (*snapshot.Tasks, error) {
	t := NewWalk(ctx, p, o)
	census, err := t.WalkHeap()
	if err != nil {
		return nil, err
	}
	return t.Result(census), nil
}

// atRest looks once more, while all threads stand still. before is a look while the threads ran.
func atRest(ctx context.Context, p *session.Process, o session.WalkOptions, before *snapshot.Tasks) *snapshot.Tasks {
	o.Progress, o.Doing, o.MaxCPU = nil, nil, 0
	held, stop := session.AtRest(ctx, p, o.MaxPause, before, func(ctx context.Context) (*snapshot.Tasks, error) {
		return look(ctx, p, o)
	})
	held.Stop = stop
	return held
}

// vainLooks bounds the number of successive looks that find no more than an earlier look: then the missing methods
// change all the time.
const vainLooks = 8

// lacking counts the methods that could not be read: collections had moved the methods' objects, or the methods
// changed all the time. In a heap that is not consistent, further methods may be missing without a trace.
func lacking(t *snapshot.Tasks) int {
	n := t.Unproven + t.Unread
	if t.ConsistentShare < 1 {
		n++
	}
	return n
}

// Result describes the tasks.
func (t *Walk) Result(c *heap.Census) *snapshot.Tasks {
	t.Seen, t.Unproven, t.Unread, t.Sources = nil, 0, 0, nil // Find has read the same objects
	out := &snapshot.Tasks{
		Process: t.p.Info(), CapturedAt: t.p.CapturedAt(t.Begin), Partial: c.Stopped || t.Full,
		ConsistentShare: ConsistentShare(c),
	}
	t.p.Engine.Cache.Invalidate()
	t.FindSemaphores()
	t.findRunning()
	out.Chains = t.chains(out)
	out.Unproven, out.Unread = t.Unproven, t.Unread
	out.Faults, out.Ended = t.faults(), t.ended()
	t.p.NoteGaps(out)
	out.Pool = t.Pool()
	out.Timers = t.timers()
	out.Partial = out.Partial || t.Ended
	out.Duration = time.Since(t.Begin)
	return out
}

// chains follows the chains from their innermost methods, and counts equal chains.
func (t *Walk) chains(out *snapshot.Tasks) []snapshot.TaskChain {
	before := t.p.Moments().Epoch()
	nodes := t.nodes()
	if out.Methods = len(nodes); t.Notes {
		t.Noted = t.noteObjects(nodes, before)
	}
	byKey := map[string]*snapshot.TaskChain{}
	var list []*snapshot.TaskChain
	out.Partial = !t.eachChain(nodes, func(c *snapshot.TaskChain) (cost int) {
		key := KeyOf(c, true)
		if same := byKey[key]; same != nil {
			Merge(same, c)
			return 0
		}
		byKey[key] = c
		list = append(list, c)
		return len(key) + FramesCost(c.Frames)
	}) || out.Partial
	list = joinTargets(list)
	slices.SortStableFunc(list, func(a, b *snapshot.TaskChain) int {
		return cmp.Or(cmp.Compare(farFromProgram(a), farFromProgram(b)), cmp.Compare(b.Count, a.Count))
	})
	chains := make([]snapshot.TaskChain, len(list))
	for i, c := range list {
		chains[i] = *c
	}
	return chains
}

// farFromProgram is 0 for a chain with a method of the program itself, 1 for another chain with a method of a package
// that the program uses, and 2 for a chain of .NET alone.
func farFromProgram(c *snapshot.TaskChain) int {
	far := 2
	for i := range c.Frames {
		switch c.Frames[i].Origin() {
		case snapshot.OfUser:
			return 0
		case snapshot.OfPackage:
			far = 1
		}
	}
	return far
}
