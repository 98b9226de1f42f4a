package session

import (
	"clrsnap/internal/awaits"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// BlockedStacks takes the stacks of blocked threads, without a stop.
type BlockedStacks struct{ g *gathering }

// BlockedStack is the stack of a blocked thread.
type BlockedStack struct {
	Frames []snapshot.Frame
	Sites  []awaits.Site // frames that run async methods; valid until the next stack is taken
	Proof  target.Proof  // that the thread has not run since; "": no proof
}

// NewBlockedStacks returns a taker of stacks with the threads' async methods.
func (p *Process) NewBlockedStacks() *BlockedStacks {
	return &BlockedStacks{p.gather(SnapshotOptions{Async: true})}
}

// Of takes the stack of a thread; false: the thread is not blocked. A thread of a dump counts as blocked.
func (b *BlockedStacks) Of(t *Thread) (BlockedStack, bool) {
	var st taken
	ok := true
	if b.g.room = maxStacks; b.g.moments.Changes() {
		st, _, ok = b.g.takeBlocked(t)
	} else {
		st = b.g.take(t)
	}
	return BlockedStack{st.Frames, st.sites, st.proof}, ok
}
