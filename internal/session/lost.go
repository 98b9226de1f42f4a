package session

import (
	"cmp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/profile"
)

// maxLost bounds the semaphores that are told.
const maxLost = 16

// findLost finds the semaphores whose permits nobody seems to have. The ones that async methods wait for are looked at:
// those in whose queue the first one releases it later in the same method. Else a permit is a signal, which somebody
// gives who does not take any.
func (l *likely) findLost() {
	l.out.Lost = nil
	if l.unsure || len(l.p.duties.unsure) > 0 || l.out.Unsearched != "" {
		return // somebody has a permit, and it is not known of which
	}
	for _, sem := range l.t.objects[semaphoreClass] {
		if len(l.out.Lost) == maxLost {
			return
		}
		first, n := l.queueOf(sem)
		if n == 0 || len(l.holders[sem]) > 0 {
			continue
		}
		if lost, ok := l.lost(sem, first); ok {
			lost.Awaits = n
			l.out.Lost = append(l.out.Lost, lost)
		}
	}
	slices.SortStableFunc(l.out.Lost, func(a, b profile.Lost) int { return cmp.Compare(b.Awaits, a.Awaits) })
}

// queueOf returns the first task in the queue of a semaphore, of those whose permits are all taken, and how long the
// queue is (SemaphoreSlim.cs: m_asyncHead, TaskNode.Next).
func (l *likely) queueOf(sem arch.Addr) (first arch.Addr, n int) {
	objects := l.p.Runtime.Objects
	stands := l.p.steadily(func() error {
		first, n = 0, 0
		class, err := objects.Class(sem)
		if err != nil {
			return err
		}
		if count, err := objects.Uint32(sem, class, "m_currentCount"); err != nil || count != 0 {
			return err
		}
		at, err := objects.Pointer(sem, class, "m_asyncHead")
		for first = at; err == nil && at != 0 && n < maxWaiters; n++ {
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

// lost describes a semaphore that the method releases that awaits a task; false: it does not.
func (l *likely) lost(sem, task arch.Addr) (out profile.Lost, ok bool) {
	box := l.waitingAt(task)
	if box == 0 || l.yields(sem) {
		return out, false
	}
	var chain async.Chain
	stands := l.p.steadily(func() error {
		ok = false
		b, err := l.t.r.Box(box)
		if err != nil {
			return err
		}
		class, err := l.p.Runtime.Objects.Class(sem)
		if err != nil {
			return err
		}
		out = profile.Lost{Object: uint64(sem), Type: class.Display, First: uint64(task)}
		if out.Field, ok = l.releases(b, sem); !ok {
			return nil
		}
		chain, err = l.t.r.Awaiting(box)
		return err
	}, nil)
	if !stands || !ok {
		return out, false
	}
	b, err := l.t.r.Box(box)
	if err != nil {
		return out, false
	}
	out.Frames = append(out.Frames, l.t.frame(&async.Step{Box: b}))
	for i := range chain.Steps {
		out.Frames = append(out.Frames, l.t.frame(&chain.Steps[i]))
	}
	return out, true
}

// firstYield and lower are the states of async iterators that are suspended at a yield return
// (dotnet/roslyn, StateMachineStates.cs).
const firstYield = -4

// yields reports whether an async iterator may have a permit of a semaphore: it has given an element to somebody who
// does something with it, and it takes and releases permits.
func (l *likely) yields(sem arch.Addr) bool {
	return slices.ContainsFunc(l.yielding, func(box arch.Addr) bool {
		has := true // where it cannot be read
		l.p.steadily(func() error {
			b, err := l.t.r.Box(box)
			if err != nil {
				return err
			}
			code, err := l.p.permitReader().Code(b.Machine.Module, b.Machine.RID)
			if err != nil {
				return err
			}
			has = !code.Empty() && slices.ContainsFunc(l.dutiesIn(b, code.Sections), func(d duty) bool { return d.object == sem })
			return nil
		}, nil)
		return has
	})
}

// waitingAt returns the async method that awaits a task; 0: none is known.
func (l *likely) waitingAt(task arch.Addr) arch.Addr {
	if l.waiting == nil {
		l.waiting = map[arch.Addr]arch.Addr{}
		for i, obj := range l.t.objects[boxClass] {
			if i%256 == 0 && l.t.stopped() || i == maxSuspended {
				break
			}
			b, err := l.t.r.Box(obj)
			if err != nil || !b.HasState {
				continue
			}
			if b.State <= firstYield {
				l.yielding = append(l.yielding, obj)
				continue
			}
			if a, err := l.t.r.Awaited(b); err == nil && l.t.semaphores[a.Object] != 0 {
				l.waiting[a.Object] = obj
			}
		}
	}
	return l.waiting[task]
}

// releases reports whether a method that awaits a permit of a semaphore releases it behind that await, and the field
// that it has it from.
func (l *likely) releases(b *async.Box, sem arch.Addr) (field string, ok bool) {
	at, ok := l.stateAt(b)
	if !ok {
		return "", false
	}
	code, err := l.p.permitReader().Code(b.Machine.Module, b.Machine.RID)
	if err != nil || code.Empty() {
		return "", false
	}
	for _, d := range l.dutiesIn(b, code.From(at)) {
		if d.object == sem {
			return d.field, true
		}
	}
	return "", false
}

// dutiesIn finds the semaphores of sections of a method that is suspended.
func (l *likely) dutiesIn(b *async.Box, held []permits.Section) []duty {
	place, class := b.Fields()
	this := permits.Place{At: place, Class: class}
	of := permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}
	return l.p.dutiesAt(of, held, nil, func(v permits.Variable) (permits.Place, bool) { return this, v == permits.This })
}
