package record

import (
	"math/rand/v2"
	"time"

	"clrsnap/events"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// maxFollowed is how many sampled objects of one process are followed at a time. It bounds the
// collector's work for their handles: the collector looks at the handles of a generation when it
// collects the generation.
const maxFollowed = 1 << 15

// Looks at the handles of a process. Nothing dies without a collection, so looks come only after
// collections.
const (
	lookAfter = time.Second
	lookFrom  = maxFollowed / 2     // with so many objects a look is not put off
	thinFrom  = maxFollowed / 4 * 3 // if so many are alive, half of them are followed no more
)

// maxFreesWaiting is how many unneeded handles are collected before the agent is told.
const maxFreesWaiting = 256

// liveHeap follows the sampled objects of one process, by the weak handles that the agent has made.
// The objects still alive at the end become samples of profile.Live.
type liveHeap struct {
	p       *session.Process // nil: the process cannot be read yet
	b       *profile.Builder
	destroy func(slots []uint32) error // has the agent destroy handles
	objects map[uint32]*followed       // by the slot of the handle
	frees   []uint32                   // slots of unneeded handles
	every   int                        // one in so many sampled objects is followed; every doubles if there are many
	random  *rand.Rand

	collections collections
	examined    examined      // collections.examined at the last look at the handles
	looked      time.Duration // when the last look was; 0: never
	stale       bool          // a collection has ended since
	over        bool          // the samples have been made
	ended       bool          // the process has ended, or its handles cannot be read
	deaf        bool          // the agent does not answer; when the agent goes, the handles are not true any more
	collected   time.Duration // how long the collection at the end took; 0: there was none

	sum liveSum
}

// followed is a sampled object that was alive when its handle was last looked at.
type followed struct {
	handle   heapwalk.Handle
	slot     uint32
	sample   profile.Sample // of profile.Alloc
	at       time.Duration
	size     uint64
	where    heapwalk.Followed // as of the last look
	factor   int               // how many sampled objects this object stands for
	callers  int32             // the node of the stack without the leaf
	function profile.Function  // the leaf
}

// liveSum is the fate of the sampled objects of a process, in bytes that the objects stand for.
type liveSum struct {
	sampled  int64
	alive    int64
	young    int64 // alive, but no collection has looked at them, and they are left out
	unproven int64 // alive, but no collection has looked at them, and they are shown
	missed   int   // objects without a handle, because all handles were in use
	unread   int   // objects with an unreadable handle: not known to be alive or dead
	in       [snapshot.Generations]int64
	unplaced int64
	samples  int
	broken   int
}

func newLiveHeap(b *profile.Builder, destroy func([]uint32) error) *liveHeap {
	return &liveHeap{
		b: b, destroy: destroy, objects: map[uint32]*followed{}, every: 1,
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
}

// allocated begins to follow a sampled object. sample is the object's sample of profile.Alloc.
func (l *liveHeap) allocated(n *notification, sample *profile.Sample, leaf profile.Function, callers int32) {
	h := heapwalk.Handle{Address: arch.Addr(n.record.Handle.Address), Table: arch.Addr(n.Class)}
	l.sum.sampled += sample.Weight
	switch {
	case n.record.Handle == agent.Handle{}:
		l.sum.missed++
		return
	case !h.Sound() || l.over || l.every > 1 && l.random.IntN(l.every) != 0:
		l.refuse(n.record)
		return
	}
	l.objects[n.record.Handle.Slot] = &followed{
		handle: h, slot: n.record.Handle.Slot, sample: *sample, at: n.At, size: n.Size, factor: l.every,
		callers: callers, function: leaf,
	}
}

// refuse gives back the handle of an object that is not to be followed.
func (l *liveHeap) refuse(r *agent.Record) {
	if r.HasHandle && r.Handle.Address != 0 {
		l.frees = append(l.frees, r.Handle.Slot)
	}
}

// drop follows an object no more.
func (l *liveHeap) drop(f *followed) {
	delete(l.objects, f.slot)
	l.frees = append(l.frees, f.slot)
}

// tend looks at the handles from time to time, and gives back unneeded handles.
func (l *liveHeap) tend(now time.Duration) {
	looks := l.stale && !l.deaf && (now >= l.looked+lookAfter || len(l.objects) >= lookFrom)
	if looks {
		l.look(func(h []heapwalk.Handle) ([]heapwalk.Followed, error) { return heapwalk.Follow(l.p, h) })
	}
	for len(l.objects) >= thinFrom {
		l.thin()
	}
	if looks || len(l.frees) >= maxFreesWaiting {
		l.free()
	}
}

// free has the agent destroy the unneeded handles. After a failure the agent is about to go, and
// destroys all handles, or the agent does not listen: it is not asked again, since each time would
// take long.
func (l *liveHeap) free() {
	if len(l.frees) > 0 && !l.deaf {
		l.deaf = l.destroy(l.frees) != nil
	}
	l.frees = l.frees[:0]
}

// look forgets the objects that are dead. It is false if the handles cannot be read.
func (l *liveHeap) look(follow func([]heapwalk.Handle) ([]heapwalk.Followed, error)) bool {
	all := make([]*followed, 0, len(l.objects))
	handles := make([]heapwalk.Handle, 0, len(l.objects))
	for _, f := range l.objects {
		all, handles = append(all, f), append(handles, f.handle)
	}
	l.stale = false
	found, err := follow(handles)
	if err != nil {
		return false
	}
	l.looked, l.examined = live.Monotonic(), l.collections.examined
	for i, f := range all {
		if f.where = found[i]; f.where.Unread {
			l.sum.unread += f.factor
		}
		if f.where.Object == 0 {
			l.drop(f)
		}
	}
	return true
}

// thin follows one half of the objects no more, chosen by chance. The other half stands for them.
func (l *liveHeap) thin() {
	l.every *= 2
	for _, f := range l.objects {
		if l.random.IntN(2) == 0 {
			l.drop(f)
		} else {
			f.factor *= 2
		}
	}
	l.free()
}

// collections are the collections of one process since its agent is there.
type collections struct {
	begun    map[int]collectionBegun // under way, by number
	count    [snapshot.Gen2 + 1]int  // ended, by the oldest collected generation
	examined examined
}

// examined says for each generation up to what time of allocation a collection has looked at its
// objects.
type examined [snapshot.Gen2 + 1]time.Duration

type collectionBegun struct {
	at         time.Duration
	generation snapshot.Generation
}

// maxBegun bounds collections that are said to be under way: there are two at most.
const maxBegun = 16

// notified handles a report of a collection. It returns true if a collection has ended.
func (c *collections) notified(n *events.Notification) bool {
	switch n.Event {
	case events.GarbageCollectionStarted:
		if c.begun == nil || len(c.begun) >= maxBegun {
			c.begun = map[int]collectionBegun{}
		}
		if g := n.Collection.Generation; g >= 0 && g < len(c.count) {
			c.begun[n.Collection.Number] = collectionBegun{n.At, snapshot.Generation(g)}
		}
	case events.GarbageCollectionFinished:
		b, ok := c.begun[n.Collection.Number]
		if !ok {
			return false
		}
		delete(c.begun, n.Collection.Number)
		c.count[b.generation]++
		for g := range b.generation + 1 {
			c.examined[g] = max(c.examined[g], b.at)
		}
		return true
	}
	return false
}

// total is how many collections there were.
func (c *collections) total() int {
	sum := 0
	for _, n := range c.count {
		sum += n
	}
	return sum
}

// largeObject is the smallest size of large objects, in bytes, unless the program is configured
// otherwise (LARGE_OBJECT_SIZE in src/coreclr/gc/gcinterface.h).
const largeObject = 85_000

// proved reports whether a collection has found an object alive. Only collections of all generations
// look at large objects and at objects pinned for good.
func (l *liveHeap) proved(f *followed) bool {
	last := snapshot.Gen0
	switch {
	case f.where.Placed && (f.where.Generation == snapshot.LargeObjects ||
		f.where.Generation == snapshot.PinnedObjects),
		!f.where.Placed && f.size >= largeObject:
		last = snapshot.Gen2
	}
	return f.at < l.examined[last]
}

// isYoung reports whether the next collection looks at an object, whichever generations it collects.
func (f *followed) isYoung() bool {
	if f.where.Placed {
		return f.where.Generation == snapshot.Gen0
	}
	return f.size < largeObject
}

// finish makes samples of the live objects. Objects that no collection has looked at yet are marked.
// Young objects among them are left out, unless there was no collection at all: most young objects are
// garbage.
func (l *liveHeap) finish() {
	if l.over {
		return
	}
	l.over = true
	for _, f := range l.sortedObjects() {
		weight := f.sample.Weight * int64(f.factor)
		proved := l.proved(f)
		if !proved && f.isYoung() && l.collections.total() > 0 {
			l.sum.young += weight
			continue
		}
		leaf := f.function
		if !proved {
			l.sum.unproven += weight
			leaf.Display += unprovenSuffix
			leaf.Short += unprovenSuffix
		}
		l.sum.count(f, weight)
		s := f.sample
		s.Mode, s.Weight, s.Events = profile.Live, weight, s.Events*int64(f.factor)
		s.Node = l.b.Child(f.callers, l.b.Location(profile.Location{Function: l.b.Function(leaf)}))
		l.b.Add(s)
	}
}

// unprovenSuffix marks the class of objects that no collection has looked at.
const unprovenSuffix = " (not collected yet)"

func (s *liveSum) count(f *followed, weight int64) {
	s.alive += weight
	s.samples++
	if f.sample.Incomplete {
		s.broken++
	}
	if f.where.Placed && int(f.where.Generation) < len(s.in) {
		s.in[f.where.Generation] += weight
	} else {
		s.unplaced += weight
	}
}
