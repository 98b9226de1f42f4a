package session

import (
	"cmp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// maxWanted bounds the locks that are read once more because threads wait for them.
const maxWanted = 1 << 10

// addWanted adds holds of threads that are known only from waiting threads: no stack has a lock whose entering method
// has returned, and only monitors are in a table. The lock is read again, and has to confirm its holder. If a waiting
// thread has found the field with the lock, the owner's hold and the other waits get the field as well.
func (p *Process) addWanted(out *snapshot.Snapshot) {
	if p.Runtime == nil {
		return
	}
	places := map[int]int{}
	for i := range out.Threads {
		places[out.Threads[i].OSThreadID] = i
	}
	var waits []*snapshot.Wait
	fields := map[ownedLock]string{}
	for i := range out.Threads {
		w := out.Threads[i].Wait
		if w == nil || !w.Certain || w.Object == 0 || w.Owner == nil || !exclusive[w.Kind] && !isMutex(w) {
			continue
		}
		waits = append(waits, w)
		if l := (ownedLock{w.Object, w.Owner.OSThreadID}); fields[l] == "" {
			fields[l] = w.Field
		}
	}
	wanted := map[uint64]bool{}
	for _, w := range waits {
		w.Field = cmp.Or(w.Field, fields[ownedLock{w.Object, w.Owner.OSThreadID}])
		at, ok := places[w.Owner.OSThreadID]
		if !ok || wanted[w.Object] || len(wanted) >= maxWanted {
			continue
		}
		wanted[w.Object] = true
		p.addWantedBy(&out.Threads[at], w)
	}
}

// ownedLock is the object of a lock, and the thread that owns the lock.
type ownedLock struct {
	object uint64
	thread int
}

// addWantedBy adds the lock of a wait to its owner's holds.
func (p *Process) addWantedBy(t *snapshot.Thread, w *snapshot.Wait) {
	k := slices.IndexFunc(t.Holds, func(h snapshot.Wait) bool {
		return h.Object == w.Object || h.Lock != 0 && h.Lock == w.Lock && h.Object == 0
	})
	if k >= 0 {
		h := &t.Holds[k]
		if h.Object == 0 {
			h.Object, h.Type = w.Object, w.Type
		}
		if h.Field == "" {
			h.Field = w.Field
		}
		return
	}
	ns, err := p.from.NSTid(t.OSThreadID)
	if err != nil {
		return
	}
	known, ok := p.known[ns]
	if !ok || uint64(known.Address) != t.ThreadID {
		return
	}
	h := p.WaitReader().HeldNow(arch.Addr(w.Object), &known)
	if h == nil || h.Lock != w.Lock {
		return
	}
	h.Field, h.Certain = w.Field, p.moments.Still(t.OSThreadID) // the thread may have entered the lock since
	t.Holds = append(t.Holds, *h)
}
