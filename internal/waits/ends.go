package waits

import (
	"bytes"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
)

// From .NET 11 on a thread waits for the end of another thread by an event of the other thread's managed object. The
// event exists from the first such wait on (in native AOT programs: from the start of the thread), and nothing leads
// from the event to the thread. So a search looks at all threads.

// ends knows the events of the ends of threads, as of the latest search. Nothing here is a fact for long: objects are
// moved, threads start, and join others.
type ends struct {
	epoch  heap.Stamp                   // of all addresses; 0: not known
	of     map[arch.Addr]*thread.Thread // by awaited object
	plain  map[arch.Addr]bool           // awaited objects that are the end of no thread, and never will be
	rests  []target.Region              // the memory that the latest search rests on; nil: not known
	whole  bool                         // the latest search has read all threads
	looked int                          // threads that were looked at since the latest Refill
}

// maxEnds bounds the threads that searches look at between two calls of Refill.
const maxEnds = 1 << 17

// Refill begins a snapshot, with the full budget of threads to look at.
func (r *Reader) Refill() { r.ends.looked = 0 }

// joined returns the managed Thread object of the thread whose end an awaited object stands for; 0: no living thread.
// The answer 0 rests on the places of objects.
func (r *Reader) joined(o *pal.Object) (arch.Addr, error) {
	if o.Kind != pal.ManualResetEvent {
		return 0, nil
	}
	e := &r.ends
	if now := r.Managed.Heap.Begun(); e.of == nil || now != e.epoch || now == 0 && r.Live != nil {
		*e = ends{epoch: now, of: map[arch.Addr]*thread.Thread{}, plain: map[arch.Addr]bool{}, looked: e.looked}
	}
	if obj, ok := r.joinedBefore(o.At); ok {
		return obj, nil
	}
	if !e.plain[o.At] {
		if err := r.searchEnds(); err != nil {
			return 0, err
		}
		if obj, ok := r.joinedBefore(o.At); ok {
			return obj, nil
		}
		e.plain[o.At] = e.whole && (e.epoch == 0 || r.Live == nil || r.calm && r.Managed.Heap.Stands(r.Live))
	}
	r.searched = r.searched || e.epoch != 0
	r.unknown = r.unknown || !e.plain[o.At]
	return 0, nil
}

// joinedBefore returns the thread that the latest search has found for an awaited object, if the thread still has the
// event.
func (r *Reader) joinedBefore(awaited arch.Addr) (obj arch.Addr, ok bool) {
	t := r.ends.of[awaited]
	if t == nil {
		return 0, false
	}
	obj, err := r.managedThread(t)
	if err != nil || obj == 0 {
		return 0, false
	}
	event, _, err := r.endEvent(obj)
	if err != nil {
		return 0, false
	}
	at, err := r.behind(event)
	return obj, err == nil && at == awaited
}

// searchEnds finds the events of the ends of all threads. An event that a thread already waits for is among them. If
// the memory of the latest search is unchanged, so are the events.
func (r *Reader) searchEnds() (err error) {
	e := &r.ends
	if len(e.rests) > 0 && r.unchanged() {
		return nil
	}
	if r.Renew != nil {
		r.Renew() // the thread may have begun to wait after the memory in caches was read
	}
	list, err := r.Managed.Threads.List()
	if err != nil {
		return err
	}
	if e.looked += len(list); e.looked > maxEnds {
		e.whole = false
		return nil
	}
	search := func() { err = r.search(list) }
	if e.epoch == 0 {
		search() // evidence is all that tells of moved objects
	} else {
		r.Managed.Seen.Aside(search)
	}
	return err
}

// search is searchEnds for listed threads.
func (r *Reader) search(list []thread.Thread) error {
	e := &r.ends
	clear(e.of)
	e.whole, e.rests = true, nil
	objects, fields := make([]arch.Addr, len(list)), make([]target.Region, 0, len(list))
	for i := range list {
		obj, err := r.managedThread(&list[i])
		if objects[i] = obj; err == nil && obj == 0 {
			continue
		}
		event, at, err := r.endEvent(obj)
		if err == nil && event != 0 {
			var awaited arch.Addr
			if awaited, err = r.behind(event); err == nil && awaited != 0 {
				e.of[awaited] = &list[i]
			}
		}
		if err != nil {
			e.whole = e.whole && !list[i].Alive()
			continue
		}
		fields = append(fields, target.Region{Base: at, Data: binary.LittleEndian.AppendUint64(nil, uint64(event))})
	}
	if r.Live == nil || e.epoch == 0 || !e.whole {
		return nil
	}
	rests, err := r.Managed.Threads.Rests(list, objects)
	e.rests = append(rests, fields...)
	return err
}

// unchanged reports whether the memory of the latest search is unchanged.
func (r *Reader) unchanged() bool {
	e := &r.ends
	const forOne = 32 // to compare the memory of a thread takes so much less than a search
	if e.looked += len(e.rests) / forOne; e.looked > maxEnds {
		return false
	}
	now, buf := make([]target.Region, len(e.rests)), make([]byte, 8*len(e.rests))
	for i, p := range e.rests {
		now[i] = target.Region{Base: p.Base, Data: buf[8*i:][:len(p.Data)]}
	}
	if target.ReadMany(r.Live, now) != nil {
		return false
	}
	return slices.EqualFunc(e.rests, now, func(a, b target.Region) bool { return bytes.Equal(a.Data, b.Data) })
}

// endEvent returns the event of a thread's end, and the address of the field with the event. obj is the managed Thread
// object; 0: the thread has no event.
func (r *Reader) endEvent(obj arch.Addr) (event, field arch.Addr, err error) {
	name := "_joinEvent"
	if r.Managed.Threads.Ahead() {
		name = "_stopped"
	}
	f := r.fields(obj, threadClass)
	if f.err != nil {
		return 0, 0, f.err
	}
	at, err := r.Managed.Objects.Offset(f.class, name)
	if err != nil {
		return 0, 0, err
	}
	field = obj + arch.Addr(at)
	event, err = target.NewReader(r.Managed.Seen).Pointer(field)
	return event, field, err
}

// behind returns the object that threads wait for if they wait for an event; 0: none yet.
func (r *Reader) behind(event arch.Addr) (arch.Addr, error) {
	f := r.fields(event, waitHandleClass)
	if f.err != nil {
		return 0, f.err
	}
	handle, err := r.handleOf(&found{event, f.class})
	if err != nil || handle == 0 {
		return 0, err
	}
	return target.NewReader(r.Managed.Seen).Pointer(handle)
}
