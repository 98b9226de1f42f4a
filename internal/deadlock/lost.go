package deadlock

import (
	"cmp"
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// Bounds of the search and of the report.
const (
	maxLost   = 16
	maxQueues = 256
	maxQueue  = 1 << 16 // waiters for one semaphore
	maxQueued = 1 << 20 // waiters for all semaphores
)

// findLost finds the semaphores whose permits nobody seems to have. A semaphore counts only if the first async method
// in the queue releases the semaphore later in the same method, as do all other methods that take a permit. Otherwise
// a permit is a signal from a method that takes no permit, or is handed over. findLost reports nothing if any
// possible holder of a permit was not seen. Async iterators that have a permit are always reported: whether somebody
// goes on with an iterator can be told without the other holders.
func (l *likely) findLost() {
	l.out.Lost, l.out.PermitQueues = nil, nil
	if l.out.Unsearched != "" {
		return
	}
	hidden := l.unsure || l.blind || len(l.f.duties.unsure) > 0 || l.out.Unlisted > 0 ||
		slices.ContainsFunc(l.out.Threads, hasMoreFrames)
	room := maxQueued
	for i, sem := range l.t.Objects[tasks.SemaphoreClass] {
		if i%64 == 0 && l.t.Stopped() || room <= 0 {
			break
		}
		first, n := l.queueOf(sem)
		if room -= n; n == 0 {
			continue
		}
		if l.waiting == nil {
			l.findWaiting()
			hidden = hidden || l.blind
		}
		if len(l.out.PermitQueues) < maxQueues {
			l.addQueue(sem, first, n)
		}
		if len(l.out.Lost) == maxLost || l.yields[sem] == nil && (hidden || len(l.holders[sem]) > 0) {
			continue
		}
		if lost, ok := l.lost(sem, first); ok {
			lost.Awaits = n
			l.out.Lost = append(l.out.Lost, lost)
		}
	}
	if !hidden {
		l.lostByThreads()
	}
	slices.SortStableFunc(l.out.Lost, func(a, b snapshot.Lost) int {
		return cmp.Compare(b.Awaits+b.Threads, a.Awaits+a.Threads)
	})
	slices.SortStableFunc(l.out.PermitQueues, func(a, b snapshot.PermitQueue) int {
		return cmp.Compare(b.Awaits, a.Awaits)
	})
}

// addQueue adds the queue of a semaphore.
func (l *likely) addQueue(sem, first arch.Addr, n int) {
	q := snapshot.PermitQueue{Object: uint64(sem), Awaits: n, Holders: slices.Clone(l.holders[sem])}
	for _, d := range l.known[sem] {
		q.Field = cmp.Or(q.Field, d.field)
	}
	var steps []async.Step
	stands := l.p.Moments().Read(func() error {
		class, err := l.p.Managed.Objects.Class(sem)
		if err != nil {
			return err
		}
		q.Type, steps = class.Display, nil
		box := l.waiting[first]
		if box == 0 {
			return nil
		}
		if steps, err = l.waitingSteps(box); err != nil {
			return err
		}
		chain, err := l.t.Reader.Awaiting(box)
		steps = append(steps, chain.Steps...)
		return err
	}, nil)
	if !stands {
		return
	}
	steps = l.p.ProgramSteps(steps)
	for i := range steps {
		q.Frames = append(q.Frames, l.t.Frame(steps, i))
	}
	l.out.PermitQueues = append(l.out.PermitQueues, q)
}

// hasMoreFrames reports whether a thread's stack may have unseen methods.
func hasMoreFrames(t snapshot.Thread) bool { return t.ThreadID != 0 && !t.Complete }

// queueOf returns the first task in the queue of a semaphore whose permits are all taken, and the length of the queue
// (SemaphoreSlim.cs: m_asyncHead, TaskNode.Next).
func (l *likely) queueOf(sem arch.Addr) (first arch.Addr, n int) {
	objects := l.p.Managed.Objects
	stands := l.p.Moments().Read(func() error {
		first, n = 0, 0
		class, err := objects.Class(sem)
		if err != nil {
			return err
		}
		if count, err := objects.Uint32(sem, class, "m_currentCount"); err != nil || count != 0 {
			return err
		}
		at, err := objects.Pointer(sem, class, "m_asyncHead")
		for first = at; err == nil && at != 0 && n < maxQueue; n++ {
			var c *object.Class
			if c, err = objects.Class(at); err == nil {
				at, err = objects.Pointer(at, c, "Next")
			}
		}
		return err
	}, nil)
	if !stands {
		return 0, 0
	}
	return first, n
}

// lost describes a semaphore, if the method that awaits the task releases the semaphore, or leases a permit, or if
// iterators have permits; false: neither.
func (l *likely) lost(sem, task arch.Addr) (out snapshot.Lost, ok bool) {
	box := l.waiting[task]
	yields := l.yields[sem]
	if box == 0 {
		return out, false
	}
	var steps []async.Step
	var of *lease
	stands := l.p.Moments().Read(func() error {
		ok, of = false, nil
		class, err := l.p.Managed.Objects.Class(sem)
		if err != nil {
			return err
		}
		out = snapshot.Lost{Object: uint64(sem), Type: class.Display, First: uint64(task)}
		if yields != nil {
			out.Iterators, out.Iterator = slices.Clone(yields.iterators), yields.method
		}
		if steps, err = l.waitingSteps(box); err != nil {
			return err
		}
		at, found := l.waitsAt(steps)
		if !found {
			return nil
		}
		if out.Field, ok = l.releasesAt(at, sem); !ok {
			of, ok = l.leaseAt(at, sem)
		}
		if out.Permits = l.permitsOf(sem, class); !ok && yields == nil {
			return nil
		}
		chain, err := l.t.Reader.Awaiting(box)
		steps = append(steps, chain.Steps...)
		return err
	}, nil)
	if !stands || !ok && yields == nil {
		return out, false
	}
	steps = l.p.ProgramSteps(steps)
	if yields == nil && of != nil && !l.leased(&out, of, steps) {
		return out, false
	}
	for i := range steps {
		out.Frames = append(out.Frames, l.t.Frame(steps, i))
	}
	return out, true
}

// waitingSteps are the methods suspended in an object: one method, or the methods that the runtime has suspended
// together.
func (l *likely) waitingSteps(box arch.Addr) ([]async.Step, error) {
	b, err := l.t.Reader.Box(box)
	if errors.Is(err, async.ErrNoBox) {
		steps, _, err := l.t.Reader.Methods(box)
		return steps, err
	}
	return []async.Step{{Box: b}}, err
}

// findWaiting finds the async methods that wait for semaphores, and the iterators at a yield return. An iterator at a
// yield return has given an element to the consumer, and the consumer is using the element.
func (l *likely) findWaiting() {
	l.waiting, l.yields = map[arch.Addr]arch.Addr{}, map[arch.Addr]*yielding{}
	for i, obj := range l.t.Objects[tasks.BoxClass] {
		if i%256 == 0 && l.t.Stopped() || i == maxSuspended || l.blind {
			l.blind = true // there are more boxes
			return
		}
		b, err := l.t.Reader.Box(obj)
		if errors.Is(err, async.ErrNoBox) {
			if task, box := l.resumedWaitsIn(obj); task != 0 {
				l.waiting[task] = box
			}
		}
		if err != nil || !b.HasState || b.Rests() {
			continue
		}
		if task, box := l.waitsIn(b); task != 0 {
			l.waiting[task] = box
		}
	}
	for i, obj := range l.t.Objects[tasks.IteratorClass] {
		if i%256 == 0 && l.t.Stopped() || i == maxSuspended || l.blind {
			l.blind = true
			return
		}
		l.findYields(obj)
	}
}

// waitsIn returns the task in the queue of a semaphore that an async method waits for, and the box of the method that
// has called WaitAsync. With a token, an async method of SemaphoreSlim waits in the queue, and the caller of
// WaitAsync awaits SemaphoreSlim's method. 0: the method waits for something else, or only for some time.
func (l *likely) waitsIn(b *async.Box) (task, box arch.Addr) {
	a, err := l.t.Reader.Awaited(b)
	if err != nil || a.Object == 0 {
		return 0, 0
	}
	if l.t.Semaphores[a.Object] != 0 {
		return a.Object, b.Object
	}
	promise := a
	if a, err = l.t.Permit(a); err != nil || l.t.Semaphores[a.Object] == 0 {
		return 0, 0
	}
	if _, timed := l.p.Reach(promise.Object, promise.Class, "_timer"); timed || b.Machine.Assembly != coreLib {
		return 0, 0
	}
	if box, err = l.t.Reader.Next(b.Object); err != nil || box == 0 {
		return 0, 0
	}
	return a.Object, box
}

// resumedWaitsIn is waitsIn for methods that the runtime has suspended together. With a token, SemaphoreSlim's
// waiting method is suspended together with the caller, unless SemaphoreSlim's method is compiled to a state machine.
func (l *likely) resumedWaitsIn(obj arch.Addr) (task, box arch.Addr) {
	a, err := l.t.Reader.AwaitedIn(obj)
	if err != nil || a.Object == 0 {
		return 0, 0
	}
	if l.t.Semaphores[a.Object] != 0 {
		return a.Object, obj
	}
	promise := a
	if a, err = l.t.Permit(a); err != nil || l.t.Semaphores[a.Object] == 0 {
		return 0, 0
	}
	if _, timed := l.p.Reach(promise.Object, promise.Class, "_timer"); timed {
		return 0, 0
	}
	steps, _, err := l.t.Reader.Methods(obj)
	if err != nil || len(steps) == 0 || !l.ofCoreLib(&steps[0]) {
		return 0, 0
	}
	if slices.ContainsFunc(steps, func(s async.Step) bool { return !l.ofCoreLib(&s) }) {
		return a.Object, obj
	}
	if box, err = l.t.Reader.Next(obj); err != nil || box == 0 {
		return 0, 0
	}
	return a.Object, box
}

// ofCoreLib reports whether a method that the runtime has suspended is in System.Private.CoreLib.
func (l *likely) ofCoreLib(s *async.Step) bool {
	return s.Resumption != nil && l.p.AsyncFrame(s).Module == coreLib
}

// yielding is the async iterators that are at a yield return, and have a permit of one semaphore.
type yielding struct {
	iterators []uint64
	method    string // of the first iterator
}

// findYields finds the semaphores whose permits an iterator has, by the place of the iterator's yield return. The
// place is known of async iterators only.
func (l *likely) findYields(iterator arch.Addr) {
	var has []duty
	unsure := false
	stands := l.p.Moments().Read(func() error {
		has, unsure = nil, false
		b, err := l.t.Reader.Iterator(iterator)
		if err != nil || !b.Yields() {
			return err
		}
		code, err := l.p.PermitReader().Code(b.Machine.Module, b.Machine.RID)
		if err != nil || code.Empty() {
			return err
		}
		at, ok := l.stateAt(b)
		if ok = ok && b.Async(); !ok {
			unsure = holdsSome(code)
			return nil
		}
		held, _ := code.At(at, at+1)
		has = l.dutiesIn(b, held, nil)
		unsure = missesPermit(held, has)
		return nil
	}, nil)
	l.blind = l.blind || !stands || unsure
	for i := range has {
		y := l.yields[has[i].object]
		if y == nil {
			y = &yielding{method: l.definition(has[i].of)}
			l.yields[has[i].object] = y
		}
		y.iterators = append(y.iterators, uint64(iterator))
	}
}

// waitsAt is the place at which the program waits: of methods that the runtime has suspended together, the methods of
// .NET in front of the first other method are the callees of that method. false: the place is not known.
func (l *likely) waitsAt(steps []async.Step) (out awaitPlace, ok bool) {
	for i := range steps {
		if b := steps[i].Box; b != nil {
			at, ok := l.stateAt(b)
			return awaitPlace{permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}, at, rootsIn(b)}, ok
		}
		at := steps[i].Resumption
		if at == nil {
			return out, false
		}
		if l.ofCoreLib(&steps[i]) {
			continue
		}
		of, awaits, err := l.awaitsAt(at, before(steps, i))
		if err != nil || len(awaits) != 1 {
			return out, false
		}
		return awaitPlace{permits.MethodID{Module: of.Module, RID: of.RID}, awaits[0], savedRoots(l.p, at)}, true
	}
	return out, false
}

// releasesAt reports whether a method that awaits a permit releases the permit behind the await, and the field of the
// semaphore. Only the code around the field uses the semaphore (permits.Use), and no method there takes a permit for
// another method to release.
func (l *likely) releasesAt(at awaitPlace, sem arch.Addr) (field string, ok bool) {
	reader := l.p.PermitReader()
	code, err := reader.Code(at.of.Module, at.of.RID)
	if err != nil || code.Empty() {
		return "", false
	}
	for _, s := range code.From(at.await) {
		use, err := reader.Use(at.of.Module, s.Object, at.roots)
		if err != nil || !use.Own || use.Uneven {
			continue
		}
		for _, d := range dutiesAt(l.p, at.of, []permits.Section{s}, nil, at.roots) {
			if d.object == sem {
				return d.field, true
			}
		}
	}
	return "", false
}
