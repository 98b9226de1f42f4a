package record

import (
	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/profile"
)

// Exceptions that are stored in a task without any report (.NET 11). Code that wants the task of a
// method suspended by the runtime calls a thunk, and the thunk calls the method. The thunk catches the
// exceptions that the method throws before its suspension, and stores the exceptions in the task.
// Neither the thunk's frame nor its handler is reported. Where a method does without the task, because
// it awaits the call at once, there is no thunk, and the exception goes on to that method.
//
// So a flight of such an exception ends at the latest at the last method that is called without a
// task. The end is known once the exception is thrown again, or when nothing else has become of the
// exception.

// suspends says how the runtime's own suspension treats a method.
func (f *frameTable) suspends(function clrsnap.FunctionID) awaits.Suspendable {
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

// takes reports whether a method most likely takes the task of another method, instead of awaiting the
// call at once.
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

// findStorer finds the method that stores a thrown exception in a task if no handler is reported
// before. No method beyond it catches the exception.
func (np *notifiedProcess) findStorer(f *flight) {
	frames := np.rp.frames
	kind := func(i int) awaits.Suspendable { return frames.suspends(f.functions[i]) }
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
	if by := np.function(f.stack[end]).Method; awaits.ResumesMethods(by) || awaits.LiesBetween(by) {
		return // that method stores the exception, and is reported
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

// landsOrStored ends a flight without a reported handler, with a fate unless the exception was stored
// in a task. It reports whether the exception was stored.
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

// storedAt ends a pending flight of a thread if its exception can have been stored in a task: the
// exception is thrown again.
func (np *notifiedProcess) storedAt(tid, i int) {
	waiting := np.thrown[tid]
	if f := &waiting[i]; f.storer > 0 && !f.superseded {
		np.landsOrStored(f, "")
		np.waits(tid, append(waiting[:i:i], waiting[i+1:]...))
	}
}

// storedMoved returns the oldest exception that can have been stored in a task and is equal to an
// exception thrown again; nil: there is none.
func (np *notifiedProcess) storedMoved(equal func(*thrownException) bool, first clrsnap.FunctionID) *thrownException {
	var oldest *flight
	var of, at int
	for tid, waiting := range np.thrown {
		for i := range waiting {
			f := &waiting[i]
			if f.storer > 0 && !f.superseded && f.x.first == first && equal(f.x) &&
				(oldest == nil || f.at < oldest.at) {
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

// storeAll ends all pending flights whose exceptions can have been stored in tasks: none of them has
// ended the process.
func (np *notifiedProcess) storeAll() {
	for tid, waiting := range np.thrown {
		for i := len(waiting) - 1; i >= 0; i-- {
			np.storedAt(tid, i)
		}
	}
}
