package deadlock

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// maxMarked bounds the objects of the methods that wait for one semaphore.
const maxMarked = 1 << 18

// leaseAt returns the lease of a permit that a method awaits for another method to release. Only the code around the
// field uses the semaphore. A semaphore that begins without permits tells news, and leases nothing.
func (l *likely) leaseAt(at awaitPlace, sem arch.Addr) (*lease, bool) {
	reader := l.p.PermitReader()
	code, err := reader.Code(at.of.Module, at.of.RID)
	if err != nil {
		return nil, false
	}
	for _, v := range code.Takes(at.await) {
		use, err := reader.Use(at.of.Module, v, at.roots)
		if err != nil || !use.Own || use.Signal || len(use.Gives) == 0 {
			continue
		}
		if p, err := reader.Find(at.of.Module, v, at.roots); err == nil && p.At == sem {
			return &lease{sem: sem, use: use, field: reader.Name(at.of.Module, v, at.roots)}, true
		}
	}
	return nil, false
}

// leased completes the description of a lease whose permits nobody seems to have; false: somebody may have a permit.
// steps are the methods of the longest waiter. The waiters that come through the same methods have no permit yet. Any
// other call of these methods may have a permit, and so may the methods that take or release permits by name.
func (l *likely) leased(out *snapshot.Lost, of *lease, steps []async.Step) bool {
	if !l.nameLease(out, of) {
		return false
	}
	of.through, of.matters = map[permits.MethodID]bool{}, map[permits.MethodID]bool{}
	l.comeThrough(out, of, l.ownMethods(steps))
	return len(of.through) > 0 && !l.mayHave(of)
}

// comeThrough notes the methods through which a waiter comes, the innermost first.
func (l *likely) comeThrough(out *snapshot.Lost, of *lease, methods []permits.MethodID) {
	callees := of.takers
	for i, m := range methods {
		of.through[m] = true
		if i > 0 && l.callsNamed(m, callees) > 1 {
			out.Again = l.definition(m)
		}
		if name := l.plainName(m); name != "" {
			callees = append(slices.Clone(of.takers), name)
		}
	}
}

// ownMethods are the innermost methods of steps that are not .NET's, up to the next method of .NET. The runtime
// suspends .NET's methods with their callers: these are passed over.
func (l *likely) ownMethods(steps []async.Step) (out []permits.MethodID) {
	for i := range steps {
		m, ok := l.methodOf(&steps[i])
		f := l.p.AsyncFrame(&steps[i])
		switch framework := f.Origin() == snapshot.OfFramework; {
		case ok && framework && len(out) == 0:
		case !ok || framework:
			return out
		default:
			out = append(out, m)
		}
	}
	return out
}

// lostByThreads finds the leases whose permits nobody seems to have, and for which only threads wait.
func (l *likely) lostByThreads() {
	waiters := map[arch.Addr][]int{}
	for i := range l.out.Threads {
		w := l.out.Threads[i].Wait
		if w != nil && w.Kind == snapshot.SemaphoreWait && w.Object != 0 && w.Timeout == snapshot.Forever {
			waiters[arch.Addr(w.Object)] = append(waiters[arch.Addr(w.Object)], i)
		}
	}
	for sem, threads := range waiters {
		if len(l.out.Lost) == maxLost || l.t.Stopped() {
			return
		}
		t := &l.out.Threads[threads[0]]
		at, ok := l.f.duties.leases[t.OSThreadID]
		if !ok || len(l.holders[sem]) > 0 || slices.ContainsFunc(l.out.Lost, func(o snapshot.Lost) bool {
			return o.Object == uint64(sem)
		}) {
			continue
		}
		if l.waiting == nil {
			l.findWaiting()
		}
		var of *lease
		stands := l.p.Moments().Read(func() error {
			ok = false
			class, err := l.p.Managed.Objects.Class(sem)
			if err != nil {
				return err
			}
			if count, err := l.p.Managed.Objects.Uint32(sem, class, "m_currentCount"); err != nil || count != 0 {
				return err
			}
			of, ok = l.leaseAt(at, sem)
			return nil
		}, nil)
		if !stands || !ok || l.blind || l.yields[sem] != nil {
			continue
		}
		lost := snapshot.Lost{Object: uint64(sem), Type: t.Wait.Type, First: uint64(t.OSThreadID),
			Threads: len(threads),
			Frames:  t.Frames}
		if of.through, of.matters = map[permits.MethodID]bool{}, map[permits.MethodID]bool{}; l.nameLease(&lost, of) {
			if l.comeThrough(&lost, of, l.ownFrames(t.Frames)); !l.mayHave(of) {
				l.out.Lost = append(l.out.Lost, lost)
			}
		}
	}
}

// ownFrames are the innermost methods of a stack that are not .NET's, up to the next method of .NET.
func (l *likely) ownFrames(frames []snapshot.Frame) (out []permits.MethodID) {
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Managed || f.Origin() == snapshot.OfFramework {
			if len(out) > 0 {
				break
			}
			continue
		}
		m, err := l.p.Runtime.Methods.Read(arch.Addr(f.FunctionID))
		if f.FunctionID == 0 || err != nil {
			break
		}
		out = append(out, permits.MethodID{Module: m.Module, RID: m.RID})
	}
	return out
}

// nameLease adds the names of the methods that take and release, and the number of permits; false: a method has no
// name that its callers use.
func (l *likely) nameLease(out *snapshot.Lost, of *lease) bool {
	add := func(list *[]string, rids []uint32) bool {
		for _, rid := range rids {
			m := permits.MethodID{Module: of.use.Module, RID: rid}
			plain, name := l.plainName(m), l.definition(m)
			if plain == "" || name == "" {
				return false
			}
			*list = append(*list, name)
			if !strings.HasPrefix(plain, "Dispose") { // everything has a Dispose
				of.names = append(of.names, plain)
			}
		}
		return true
	}
	if !add(&out.Takes, of.use.Takes) {
		return false
	}
	of.takers = slices.Clone(of.names)
	if !add(&out.Gives, of.use.Gives) {
		return false
	}
	out.Leased, out.Field, out.Permits = true, of.field, of.use.Count
	if class, err := l.p.Managed.Objects.Class(of.sem); err == nil {
		out.Permits = cmp.Or(l.permitsOf(of.sem, class), out.Permits)
	}
	return true
}

// permitsOf is the most permits that a semaphore may have; 0: not known, or no limit.
func (l *likely) permitsOf(sem arch.Addr, class *object.Class) int {
	most, err := l.p.Managed.Objects.Uint32(sem, class, "m_maxCount")
	if err != nil || most >= 1<<31-1 {
		return 0
	}
	return int(most)
}

// mayHave reports whether anybody but the waiters is in code that may have a permit.
func (l *likely) mayHave(of *lease) bool {
	marked := map[arch.Addr]bool{}
	for task, box := range l.waiting {
		for at := box; l.t.Semaphores[task] == of.sem && at != 0 && !marked[at] && len(marked) < maxMarked; {
			marked[at] = true
			at, _ = l.t.Reader.Next(at)
		}
	}
	for i := range l.out.Threads {
		if w := l.out.Threads[i].Wait; w != nil && w.Kind == snapshot.SemaphoreWait && w.Object == uint64(of.sem) {
			continue
		}
		for k := range l.out.Threads[i].Frames {
			f := &l.out.Threads[i].Frames[k]
			if f.FunctionID == 0 || f.Origin() == snapshot.OfFramework {
				continue
			}
			m, err := l.p.Runtime.Methods.Read(arch.Addr(f.FunctionID))
			if err != nil || l.isOf(of, permits.MethodID{Module: m.Module, RID: m.RID}) {
				return true
			}
		}
	}
	for i, obj := range l.t.Objects[tasks.BoxClass] {
		switch {
		case i%256 == 0 && l.t.Stopped():
			return true
		case !marked[obj] && l.runsIn(of, obj):
			return true
		}
	}
	for i, obj := range l.t.Objects[tasks.IteratorClass] {
		if i%256 == 0 && l.t.Stopped() || l.yieldsIn(of, obj) {
			return true
		}
	}
	return false
}

// yieldsIn reports whether an object is an iterator that is at a yield return, and may have a permit.
func (l *likely) yieldsIn(of *lease, obj arch.Addr) bool {
	b, err := l.t.Reader.Iterator(obj)
	return err != nil || b.Yields() && l.isOf(of, permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID})
}

// runsIn reports whether an object stands for a method that may have a permit, and has not ended.
func (l *likely) runsIn(of *lease, obj arch.Addr) bool {
	b, err := l.t.Reader.Box(obj)
	if errors.Is(err, async.ErrNoBox) {
		steps, _, err := l.t.Reader.Methods(obj)
		return err != nil || slices.ContainsFunc(steps, func(s async.Step) bool {
			m, ok := l.methodOf(&s)
			return !ok || l.isOf(of, m)
		})
	}
	if err != nil || b.HasState && b.State < async.Running {
		return false
	}
	if !l.isOf(of, permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}) {
		return false
	}
	alive, err := l.t.Reader.Alive(b)
	return alive || err != nil
}

// isOf reports whether a method may have a permit of a lease, by its code.
func (l *likely) isOf(of *lease, m permits.MethodID) bool {
	if matters, known := of.matters[m]; known {
		return matters
	}
	matters := of.through[m] || m.Module == of.use.Module &&
		(slices.Contains(of.use.Takes, m.RID) || slices.Contains(of.use.Gives, m.RID)) || l.callsNamed(m, of.names) > 0
	of.matters[m] = matters
	return matters
}

// methodOf is the method of a step; false: not known.
func (l *likely) methodOf(s *async.Step) (permits.MethodID, bool) {
	switch {
	case s.Box != nil:
		return permits.MethodID{Module: s.Box.Machine.Module, RID: s.Box.Machine.RID}, true
	case s.Resumption != nil:
		m, _, ok := l.p.ResumedMethod(s.Resumption)
		return permits.MethodID{Module: m.Module, RID: m.RID}, ok
	}
	return permits.MethodID{}, false
}

// callsNamed counts the calls of methods with some names in the code of a method outside .NET. The classes do not
// count: an interface may stand for a class.
func (l *likely) callsNamed(m permits.MethodID, names []string) int {
	a, err := l.p.Runtime.Names.Assembly(m.Module)
	if err != nil || snapshot.Framework(a.Name) {
		return 0
	}
	n, _ := l.p.Runtime.Names.CallsNamed(m.Module, m.RID, names)
	return n
}

// plainName is the name of a method as its callers write the name, also of a method with a state machine; "": not
// known, or a local function.
func (l *likely) plainName(m permits.MethodID) string {
	name, err := l.p.Runtime.Names.SourceName(m.Module, m.RID)
	if err != nil {
		return ""
	}
	return name
}

// definition is the full name of a method; "": not known.
func (l *likely) definition(m permits.MethodID) string {
	d, err := l.p.Runtime.Names.Definition(m.Module, m.RID)
	if err != nil {
		return ""
	}
	return d.Display
}
