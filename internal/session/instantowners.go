package session

import (
	"bytes"
	"cmp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/waits"
	"clrsnap/snapshot"
)

// The owner of a lock was read before the instant. Only a thread's own code takes and releases the
// thread's locks. So if the owner did not run from before the second read of the lock until after
// the instant, the owner held the lock at the instant. If the owner is stopped for the instant, the
// lock is copied while the owner stands still. If the owner is blocked, the lock is read again
// afterwards.

// near is the distance within which pieces of memory are copied as one, in bytes.
const near = 512

// ranges returns the ranges to copy for some pieces of memory.
func ranges(pieces []target.Region) (out []target.Range) {
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, func(a, b target.Region) int { return cmp.Compare(a.Base, b.Base) })
	for _, p := range pieces {
		end := p.Base + arch.Addr(len(p.Data))
		if n := len(out); n > 0 && p.Base-out[n-1].Addr <= arch.Addr(out[n-1].Len+near) {
			out[n-1].Len = max(out[n-1].Len, int(end-out[n-1].Addr))
			continue
		}
		out = append(out, target.Range{Addr: p.Base, Len: len(p.Data)})
	}
	return out
}

// exclusive are the waits for locks with an owner.
var exclusive = map[snapshot.WaitKind]bool{
	snapshot.MonitorEnter: true, snapshot.LockEnter: true, snapshot.ReadLock: true, snapshot.UpgradeableLock: true,
	snapshot.WriteLock: true,
}

// isMutex reports whether a wait for handles is a wait for a mutex with an owner.
func isMutex(w *snapshot.Wait) bool {
	return snapshot.LockKindOf(w) == snapshot.HandleLock && w.Owner != nil
}

// places returns the indices of members by thread id.
func (a *atOnce) places() map[int]int {
	places := make(map[int]int, len(a.members))
	for i := range a.members {
		places[a.members[i].thread.OSThreadID] = i
	}
	return places
}

// askOwners adds the lock that a blocked member waits for to the request of the lock's owner. The
// lock is copied if the owner has to be stopped.
func (a *atOnce) askOwners(reqs []target.Request) {
	places := a.places()
	for i := range a.members {
		m := &a.members[i]
		w := m.stack.Wait
		if m.proof == "" || len(m.owner) == 0 || w == nil || w.Owner == nil {
			continue
		}
		owner, ok := places[w.Owner.OSThreadID]
		if !ok {
			continue
		}
		req := &reqs[owner]
		wanted := slices.DeleteFunc(ranges(m.owner), func(r target.Range) bool { return slices.Contains(req.Extra, r) })
		if len(req.Extra)+len(wanted) <= live.MaxExtra { // else the owner at the instant is not certain
			req.Extra = append(req.Extra, wanted...)
		}
	}
}

// checkOwners takes back owners without a proof for the instant.
func (a *atOnce) checkOwners(captures []target.Capture, errs []error) {
	places := a.places()
	for i := range a.members {
		m := &a.members[i]
		w := m.stack.Wait
		if w == nil || !w.Certain || !exclusive[w.Kind] && !isMutex(w) {
			continue
		}
		if w.Owner == nil {
			if len(w.Readers) == 0 && w.Detail == "" { // the lock was free for a moment, but perhaps not at the instant
				waits.Doubt(w)
			}
			continue
		}
		owner, ok := places[m.stack.Wait.Owner.OSThreadID]
		if ok && len(m.owner) > 0 && a.owned(m, &a.members[owner], &captures[owner], errs[owner]) {
			continue
		}
		waits.Doubt(m.stack.Wait)
	}
}

// owned reports whether the owner of the lock that a member waits for held the lock at the instant.
func (a *atOnce) owned(m, owner *member, c *target.Capture, err error) bool {
	if err != nil {
		return false
	}
	if !owner.isNew(c) {
		return same(a.g.Live, m.owner) && a.g.Live.Holds(owner.thread.OSThreadID, owner.proof)
	}
	for _, p := range m.owner {
		if !copied(c, p) {
			return false
		}
	}
	return true
}

// copied reports whether a capture has the same memory.
func copied(c *target.Capture, p target.Region) bool {
	for _, e := range c.Stack.Extra {
		if from := uint64(p.Base - e.Base); from < uint64(len(e.Data)) {
			if part := e.Data[from:]; len(part) >= len(p.Data) && bytes.Equal(part[:len(p.Data)], p.Data) {
				return true
			}
		}
	}
	return false
}

// same reports whether memory is unchanged.
func same(mem target.Memory, pieces []target.Region) bool {
	now := make([]target.Region, len(pieces))
	for i, p := range pieces {
		now[i] = target.Region{Base: p.Base, Data: make([]byte, len(p.Data))}
	}
	if target.ReadMany(mem, now) != nil {
		return false
	}
	for i, p := range pieces {
		if !bytes.Equal(p.Data, now[i].Data) {
			return false
		}
	}
	return true
}
