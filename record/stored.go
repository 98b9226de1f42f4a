package record

import (
	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// Exceptions that are stored in a task without a word (.NET 11). Code that wants the task of a method which the runtime
// suspends calls a thunk, and that calls the method. The thunk catches what the method throws before it is suspended,
// and stores it in the task. Neither the thunk's frame nor its handler is reported. Where a method does without the
// task, because it awaits the call at once, there is no thunk, and the exception goes on to that method.
//
// So such a flight ends at the latest at the last method that is called without a task. It is known to have ended once
// the exception is thrown again, or nothing else has become of it.

// suspendable is what is known of methods that the runtime may suspend.
type suspendable struct {
	kinds map[clrsnap.FunctionID]session.Suspendable
	taken map[[2]clrsnap.FunctionID]bool // the first one takes the task of the second one
}

// suspends says what a method is to the runtime's own way to suspend methods.
func (f *frameTable) suspends(function clrsnap.FunctionID) session.Suspendable {
	kinds := f.awaits.methods.kinds
	kind, ok := kinds[function]
	if ok || function == 0 {
		return kind
	}
	if kind, ok = f.p.Suspendable(arch.Addr(function)); ok && len(kinds) < maxFrameKeys {
		kinds[function] = kind
	}
	return kind
}

// takes reports whether a method most likely takes the task of another one, instead of awaiting its call at once.
func (f *frameTable) takes(outer, inner clrsnap.FunctionID) bool {
	taken := f.awaits.methods.taken
	key := [2]clrsnap.FunctionID{outer, inner}
	is, ok := taken[key]
	if !ok && len(taken) < maxFrameKeys {
		is = f.p.TakesTask(arch.Addr(outer), arch.Addr(inner))
		taken[key] = is
	}
	return is
}

// findStorer finds out who stores a thrown exception in a task if no handler is reported before. No method beyond it
// catches the exception.
func (np *notifiedProcess) findStorer(f *flight) {
	frames := np.rp.frames
	kind := func(i int) session.Suspendable { return frames.suspends(f.functions[i]) }
	first := 0
	for first < len(f.functions) && !kind(first).Taskless {
		first++
	}
	end := first
	for end < len(f.functions) && kind(end).Taskless {
		end++
	}
	if end == first || end == len(f.functions) || !kind(end-1).Body {
		return
	}
	if by := np.function(f.stack[end]).Method; session.ResumesMethods(by) || session.LiesBetween(by) {
		return // that stores it, and is reported
	}
	f.storer = end
	for i := first; i+1 < end; i++ {
		if kind(i).Body && frames.takes(f.functions[i+1], f.functions[i]) {
			f.storer = i + 1
			break
		}
	}
	f.functions = f.functions[:end]
}

// landsOrStored ends a flight whose handler was not reported, with a fate unless it was stored in a task. It reports
// whether it was.
func (np *notifiedProcess) landsOrStored(f *flight, fate string) bool {
	if f.storer == 0 || f.superseded {
		np.lands(f, fate)
		return false
	}
	x := f.x
	x.fate = profile.CaughtBy + np.function(f.stack[f.storer-1]).Display + profile.LikelyCatcher
	x.inFlight--
	x.catches++
	x.caught, x.tid = f.at, 0 // no handler of a thread throws it again with "throw;"
	np.caught = append(np.caught, caughtException{x, x.catches})
	return true
}

// storedAt ends a pending flight of a thread if it can have been stored in a task: its exception is thrown again.
func (np *notifiedProcess) storedAt(tid, i int) {
	waiting := np.thrown[tid]
	if f := &waiting[i]; f.storer > 0 && !f.superseded {
		np.landsOrStored(f, "")
		np.waits(tid, append(waiting[:i:i], waiting[i+1:]...))
	}
}

// storedMoved returns the oldest exception that can have been stored in a task, and is equal to one that is thrown
// again; nil: there is none.
func (np *notifiedProcess) storedMoved(equal func(*thrownException) bool, first clrsnap.FunctionID) *thrownException {
	var oldest *flight
	var of, at int
	for tid, waiting := range np.thrown {
		for i := range waiting {
			f := &waiting[i]
			if f.storer > 0 && !f.superseded && f.x.first == first && equal(f.x) && (oldest == nil || f.at < oldest.at) {
				oldest, of, at = f, tid, i
			}
		}
	}
	if oldest == nil {
		return nil
	}
	x := oldest.x
	np.storedAt(of, at)
	return x
}

// storeAll ends all pending flights that can have been stored in tasks: none of them has ended the process.
func (np *notifiedProcess) storeAll() {
	for tid, waiting := range np.thrown {
		for i := len(waiting) - 1; i >= 0; i-- {
			np.storedAt(tid, i)
		}
	}
}
