package tasks

import (
	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// chainRead is what was read of a chain.
type chainRead struct {
	chain *snapshot.TaskChain // nil: the innermost method has ended
	first arch.Addr           // the innermost method
	alive bool                // the innermost method has not ended, as far as is known
}

// readChains reads the chains of the first of some nodes. of are indices of nodes.
func (t *Walk) readChains(b *batch[chainRead], nodes []node, of []int) ([]chainRead, []bool) {
	most := maxBatch
	if t.About != nil {
		most = 1 // what is read about the methods of a chain is used before the next chain is read
	}
	objs := make([]arch.Addr, min(len(of), most))
	for i := range objs {
		objs[i] = nodes[of[i]].obj
	}
	return b.some(objs)
}

// readChainOf reads the chain of a method, and what the chain waits for, as memory has them now.
func (t *Walk) readChainOf(obj arch.Addr) (r chainRead, err error) {
	at, err := t.current(obj)
	if err != nil || at == 0 {
		return chainRead{alive: err != nil}, err
	}
	r.chain, r.alive, err = t.readChain(at)
	r.first = t.First
	return r, err
}

// accept returns a chain that was read. nil: the chain changed all the time, its innermost method had ended by then, or
// the chain has been read before.
func (t *Walk) accept(r chainRead, stands bool) (out *snapshot.TaskChain, ended bool) {
	switch out = r.chain; {
	case !stands && r.alive:
		t.Unproven++
		return nil, false
	case !stands || !r.alive:
		return nil, !r.alive
	case out == nil || t.Firsts[r.first]:
		return nil, false
	}
	t.Firsts[r.first] = true
	if out.State == snapshot.TaskRunning && len(out.Threads) == 0 && t.About == nil {
		if th, ok := t.machineThread(r.first); ok {
			out.Threads = []snapshot.ThreadRef{th}
		}
	}
	t.lateSemaphore(out.WaitsFor)
	t.noteSource(out, r.first)
	return out, false
}

// doing tells how many of all chains have been read.
func (t *Walk) doing(done, all int) {
	if t.o.Doing != nil {
		t.o.Doing("reading the async methods", float64(done)/float64(all))
	}
}
