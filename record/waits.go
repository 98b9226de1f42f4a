package record

import (
	"cmp"

	"clrsnap/events"
	"clrsnap/internal/arch"
	"clrsnap/internal/naming"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// waited adds the sample of a wait: the leaf is the awaited object.
func (np *notifiedProcess) waited(n *notification) {
	np.arrived[profile.Waits]++
	t := np.thread(n)
	if !t.chosen {
		return
	}
	whole := np.rp.frames.notified(n)
	what := np.waitedFor(n, np.rp.frames.stack, whole)
	np.sample(n.At, t, profile.Waits, float64(n.Waited), 1, what, np.rp.frames.complete, whole)
}

// waitedFor is the leaf of a wait. Only the runtime knows the class of an object, and only for
// monitors and locks; most other primitives are made of objects that nobody else knows.
func (np *notifiedProcess) waitedFor(n *notification, stack []int32, whole bool) profile.Function {
	w := profile.WaitingFor{Kind: np.e.r.waitedIn(stack, whole)}
	if w.Kind != snapshot.WaitIdle {
		w.Kind = cmp.Or(np.inlinedWait(n, stack), w.Kind)
	}
	class := arch.Addr(n.Class)
	known := false
	switch n.WaitedFor {
	case events.WaitedForHandle:
		if w.Kind == snapshot.WaitRuntime { // the JIT compiler has inlined WaitHandle.WaitOne
			w.Kind = snapshot.HandleOne
		}
	case events.WaitedForPulse:
		if w.Kind == snapshot.WaitRuntime { // the JIT compiler has inlined Monitor.Wait
			w.Kind = snapshot.MonitorWait
		}
		known = w.Kind == snapshot.MonitorWait
	case events.WaitedForLock:
		if w.Kind == snapshot.WaitRuntime { // before .NET 10 Monitor.Enter is no method
			if w.Kind = snapshot.MonitorEnter; np.rp.p.IsLock(class) {
				w.Kind = snapshot.LockEnter
			}
		}
		known = w.Kind == snapshot.MonitorEnter || w.Kind == snapshot.LockEnter
		if isLock := np.rp.p.IsLock(class); w.Kind == snapshot.LockEnter && class != 0 && !isLock {
			w.Kind = snapshot.MonitorEnter // the method of MonitorEnter was inlined: monitors are Locks
		}
	}
	if c, err := np.rp.p.Class(class); known && class != 0 && err == nil {
		w.Type, w.Module = c.Display, c.Assembly
		return w.WaitEvent(c.Short)
	}
	return w.WaitEvent("")
}

// inlinedWait returns the kind of a wait whose outermost primitive was certainly inlined into its
// caller: of WaitHandle.WaitAll only WaitMultiple may be left. "": the frames show everything, or
// nothing can be said.
func (np *notifiedProcess) inlinedWait(n *notification, stack []int32) snapshot.WaitKind {
	frames := n.record.Frames
	if len(stack) == 0 || len(stack) > len(frames) {
		return ""
	}
	frames = frames[len(frames)-len(stack):] // without the messengers
	shown := make([]snapshot.Frame, 0, maxPrimitive)
	for _, l := range stack[:min(len(stack), maxPrimitive)] {
		_, f := np.rp.frames.b.At(l)
		shown = append(shown, snapshot.Frame{Kind: f.Kind, Module: f.Module, Method: f.Method})
	}
	p := snapshot.PrimitiveOf(shown)
	at := p.Outer + 1
	if p.Kind == "" || at >= len(shown) || frames[at].Function == 0 || frames[p.Outer].Function == 0 {
		return ""
	}
	call := naming.Call{IP: arch.Addr(frames[at].IP), Callee: arch.Addr(frames[p.Outer].Function)}
	for _, f := range np.rp.p.InlinedIn(call, arch.Addr(frames[at].Function)) {
		shown = append(shown[:at], f.Frame)
		if inner := snapshot.PrimitiveOf(shown); inner.Outer == at {
			p, at = inner, at+1
		}
	}
	return p.Kind
}

// maxPrimitive is how many frames a primitive may have.
const maxPrimitive = 32

// waitedIn is profile.WaitedIn for a stack of locations, leaf first.
func (r *recorder) waitedIn(stack []int32, whole bool) snapshot.WaitKind {
	return profile.WaitedIn(func(yield func(*profile.Function) bool) {
		for _, l := range stack {
			if _, f := r.b.At(l); !yield(&f) {
				return
			}
		}
	}, whole)
}
