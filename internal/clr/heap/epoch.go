package heap

import "clrsnap/internal/arch"

// epoch is a moment. quiet tells later whether there has been a collection since the moment.
type epoch struct {
	contexts []context // before regions was read
	regions  []Region
}

// quiet reports whether there has certainly been no collection since a moment, and no collection is moving objects
// now.
//
// A collection takes the allocation contexts away from all threads. A thread that allocates then gets a new context,
// and the thread's count of given bytes has grown. So one unchanged context proves that there was no collection. If
// all threads with a context have got new contexts, quiet adds up the bytes that the threads were given: without a
// collection, the regions that are being filled have grown by the sum.
func (w *walk) quiet(e *epoch) bool {
	if w.o.Still {
		return true
	}
	w.looking.Lock()
	defer w.looking.Unlock()
	if !w.r.Settled(w.o.Memory) {
		return false
	}
	any := false
	given := uint64(0)
	for _, c := range e.contexts {
		now, ok := w.contexts.read(w.r.mem, c.owner)
		if !ok {
			return false
		}
		if c.next != 0 && now.limit == c.limit && now.given == c.given {
			return true
		}
		given += now.given - c.given
		any = any || now != c
	}
	if !any {
		return w.unchanged(e)
	}
	return w.grown(e, given)
}

// unchanged reports whether the young regions are unchanged.
func (w *walk) unchanged(e *epoch) bool {
	grown, ok := w.growth(e)
	return ok && grown == 0
}

// Bounds of the sum: the bytes that threads are given while their contexts are read one after the other, and the
// least fill of a region that cannot by chance be reached again after a collection.
const (
	maxSkew  = 256 << 10
	minGiven = 1 << 20
)

// grown reports whether the regions that are being filled have grown by the bytes that the threads were given, and
// were already so full that a collection, after which filling starts anew, cannot explain the growth.
func (w *walk) grown(e *epoch, given uint64) bool {
	filled := uint64(0)
	for _, r := range e.regions {
		if r.Generation == Gen0 {
			filled = max(filled, uint64(r.End-r.Start))
		}
	}
	grown, ok := w.growth(e)
	return ok && filled >= minGiven && given <= grown+maxSkew
}

// growth returns the growth of the youngest regions in bytes; false: the regions are not the same as before.
func (w *walk) growth(e *epoch) (uint64, bool) {
	now, err := w.r.Regions()
	if err != nil {
		return 0, false
	}
	end := map[arch.Addr]*Region{}
	for i := range now {
		end[now[i].Start] = &now[i]
	}
	grown := uint64(0)
	for _, r := range e.regions {
		if !r.young() {
			continue
		}
		n := end[r.Start]
		if n == nil || n.Generation != r.Generation || n.End < r.End {
			return 0, false
		}
		grown += uint64(n.End - r.End)
		delete(end, r.Start)
	}
	for _, n := range end {
		if n.Generation == Gen0 {
			grown += uint64(n.End - n.Start)
		}
	}
	return grown, true
}
