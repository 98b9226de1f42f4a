package session

import (
	"clrsnap/internal/arch"
	"clrsnap/profile"
)

// Chains are read together, some dozens in one consistent read: a second look at the memory takes two system calls,
// however many chains the look is for. Where the memory has changed, each of these chains is read by itself.

// maxTogether bounds the chains that are read together.
const maxTogether = 64

// chainRead is what was read of a chain.
type chainRead struct {
	chain  *profile.TaskChain // nil: the innermost method has ended
	first  arch.Addr          // the innermost method
	alive  bool               // the innermost method has not ended, as far as is known
	stands bool               // all of this was so at one moment
}

// readSome reads the chains of some nodes, at least of the first. of are indices of nodes.
func (t *taskWalk) readSome(nodes []node, of []int) []chainRead {
	of = of[:min(len(of), t.together)]
	if t.about != nil || len(of) == 1 {
		t.together = min(2*t.together, maxTogether)
		return []chainRead{t.readOne(nodes[of[0]].obj)}
	}
	out, ok := t.readTogether(nodes, of)
	if ok {
		t.together = min(2*t.together, maxTogether)
		return out
	}
	t.together = max(t.together/2, 1)
	t.p.Engine.Cache.Invalidate()
	for i := range out {
		out[i] = t.readOne(nodes[of[i]].obj)
	}
	return out
}

// readTogether reads chains in one consistent read, as many as there is room for. false: the memory has changed.
func (t *taskWalk) readTogether(nodes []node, of []int) (out []chainRead, ok bool) {
	out = make([]chainRead, 0, len(of))
	var failed []int
	ok = t.p.once(func() error {
		for i, at := range of {
			r, err := t.readAt(nodes[at].obj)
			if err != nil {
				failed = append(failed, i)
			}
			r.stands = err == nil
			if out = append(out, r); t.p.Managed.Seen.Crowded() {
				break
			}
		}
		return nil
	})
	if ok {
		for _, i := range failed {
			out[i] = t.readOne(nodes[of[i]].obj)
		}
	}
	return out, ok
}

// readOne reads a chain and its wait, in a consistent read of its own.
func (t *taskWalk) readOne(obj arch.Addr) (r chainRead) {
	stands := t.prove(func() (err error) {
		r, err = t.readAt(obj)
		return err
	})
	r.stands = stands
	return r
}

// readAt reads a chain and its wait as memory has them now.
func (t *taskWalk) readAt(obj arch.Addr) (r chainRead, err error) {
	at, err := t.current(obj)
	if err != nil || at == 0 {
		return chainRead{alive: err != nil}, err
	}
	r.chain, r.alive, err = t.readChain(at)
	r.first = t.first
	return r, err
}

// accept returns a chain that was read. nil: the chain changed all the time, its innermost method had ended by then, or
// the chain has been read before.
func (t *taskWalk) accept(r chainRead) (out *profile.TaskChain, ended bool) {
	switch out = r.chain; {
	case !r.stands && r.alive:
		t.unproven++
		return nil, false
	case !r.stands || !r.alive:
		return nil, !r.alive
	case out == nil || t.firsts[r.first]:
		return nil, false
	}
	t.firsts[r.first] = true
	if out.State == profile.TaskRunning && len(out.Threads) == 0 && t.about == nil {
		if th, ok := t.machineThread(r.first); ok {
			out.Threads = []profile.ThreadRef{th}
		}
	}
	t.lateSemaphore(out.WaitsFor)
	return out, false
}

// doing tells how many of all chains have been read.
func (t *taskWalk) doing(done, all int) {
	if t.o.Doing != nil {
		t.o.Doing("reading the async methods", float64(done)/float64(all))
	}
}
