package waits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// A SpinLock is a struct of one number, in an object or, for a static field, in a box. The callers of Enter pass the
// number's address. So during Enter the address is in a register or on the stack. The number has the managed id of the
// owner or, without the tracking of owners, the number of waiters and one bit for the holder (System.Private.CoreLib:
// SpinLock.cs).
const (
	spinLockClass = "System.Threading.SpinLock"

	spinUntracked = 1 << 31
	spinHeld      = 1
	spinWaiter    = 2 // one waiter

	maxSpinFrames = 8 // methods of SpinWait and Thread between the leaf and the SpinLock
)

// spinning are the beginnings of methods that a SpinLock calls while it spins.
var spinning = []string{
	"System.Threading.SpinWait.", "System.Threading.Thread.", "System.Threading.WaitSubsystem", "Interop+Sys.LowLevel",
	"System.Threading.LowLevel",
}

// spinFrame returns the index of the outermost method of SpinLock of a thread that enters a SpinLock; -1: none.
func spinFrame(frames []snapshot.Frame) int {
	outer := -1
	for i, between := 0, 0; i < len(frames); i++ {
		f := &frames[i]
		switch {
		case f.Kind != snapshot.Managed:
			if outer >= 0 {
				return outer
			}
		case f.Module == coreLib && strings.HasPrefix(f.Method, spinLockClass+"."):
			outer = i
		case outer >= 0:
			return outer
		case f.Module != coreLib || between == maxSpinFrames || !hasPrefix(f.Method, spinning):
			return -1
		default:
			between++
		}
	}
	return outer
}

func hasPrefix(s string, of []string) bool {
	for _, p := range of {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// Spins explains the wait of a thread that enters a SpinLock, whether the thread has a CPU or not; nil: the thread does
// not. registers are all registers of the thread, or those that are known.
func (r *Reader) Spins(s *Subject, registers []uint64) *snapshot.Wait {
	outer := spinFrame(s.Frames)
	if outer < 0 || s.Thread.Address == 0 || r.Managed == nil || r.Managed.Objects == nil || s.Stack == nil {
		return nil
	}
	var w snapshot.Wait
	stands := r.steadily(func() error {
		w = snapshot.Wait{Kind: snapshot.SpinLockEnter}
		if !r.stillCalls(s, outer) {
			return lock.ErrChanging
		}
		return r.spins(s, registers, outer, &w)
	}, nil, primitive{})
	// The thread may run meanwhile: the call must not have returned.
	if w.Field == "" {
		w.Certain = stands
		r.nameFields(s, outer+1, &w)
	}
	if w.Certain = stands && !r.unknown && r.stillCalls(s, outer); !w.Certain {
		Doubt(&w)
	}
	return &w
}

// stillCalls reports whether the frame of a call is still on a thread's stack.
func (r *Reader) stillCalls(s *Subject, frame int) bool {
	if r.Live == nil {
		return true
	}
	if frame+1 >= len(s.Frames) {
		return false
	}
	caller := &s.Frames[frame+1]
	at, err := target.NewReader(r.Live).Uint64(arch.Addr(caller.SP) - 8)
	return err == nil && at == caller.IP
}

// spinPlace is a SpinLock: the number's address, the object around it, and the field.
type spinPlace struct {
	at    arch.Addr
	of    found
	field string
}

// spins finds the SpinLock that a thread enters, and the owner.
func (r *Reader) spins(s *Subject, registers []uint64, outer int, w *snapshot.Wait) error {
	var place spinPlace
	known := 0
	objects := r.look(s.Stack, arch.Addr(s.Frames[0].SP), frameAt(s, outer+1+ownFrames))
	objects = append(objects, r.inRegisters(registers)...)
	for _, at := range r.interior(s, registers, outer) {
		p, ok := r.spinPlace(at, objects)
		if !ok || p.at == place.at {
			continue
		}
		place = p
		known++
	}
	if known != 1 {
		w.Detail = "which one is not known"
		return nil
	}
	n, err := target.NewReader(r.Managed.Seen).Uint32(place.at)
	if err != nil {
		return err
	}
	w.Object, w.Type = uint64(place.of.obj), spinLockClass
	if place.field != "" && r.Runtime != nil {
		if name, err := r.Runtime.Names.Holder(place.of.class.Table, place.field); err == nil {
			w.Field = name
		}
	}
	switch {
	case n&spinUntracked != 0:
		w.Waiters = int(n&^spinUntracked) / spinWaiter
		w.Detail = "it does not keep its holder"
		if n&spinHeld == 0 {
			w.Detail = "free"
		}
	case n == 0:
		w.Detail = "free"
	default:
		w.Owner = r.byManagedID(int(n))
	}
	return nil
}

// inRegisters returns the objects in a thread's registers.
func (r *Reader) inRegisters(registers []uint64) (out []found) {
	for _, v := range registers {
		at := arch.Addr(v)
		if at%8 != 0 || !r.Managed.Heap.Contains(at) {
			continue
		}
		if class, err := r.Managed.Objects.Class(at); err == nil {
			out = append(out, found{at, class})
		}
	}
	return out
}

// interior returns the addresses in the heap that a thread's registers and the frames of a SpinLock have, each once.
func (r *Reader) interior(s *Subject, registers []uint64, outer int) (out []arch.Addr) {
	seen := map[arch.Addr]bool{}
	add := func(v uint64) {
		at := arch.Addr(v)
		if at%4 == 0 && !seen[at] && r.Managed.Heap.Contains(at) {
			seen[at] = true
			out = append(out, at)
		}
	}
	for _, v := range registers {
		add(v)
	}
	at, end := (arch.Addr(s.Frames[0].SP)+7)&^7, frameAt(s, outer+2)
	for n := 0; at+8 <= end && n < maxWords; at, n = at+8, n+1 {
		if v, ok := s.Stack.Uint64(at); ok {
			add(v)
		}
	}
	return out
}

// spinPlace reports whether a SpinLock may be at an address: in a box, or in a field of one of some objects.
func (r *Reader) spinPlace(at arch.Addr, objects []found) (p spinPlace, ok bool) {
	const box = 8 // bytes in front of the struct in a box
	if c, err := r.Managed.Objects.Class(at - box); err == nil && c.Is(coreLib, spinLockClass) && r.isObject(at-box) {
		return spinPlace{at: at, of: found{at - box, c}}, true
	}
	for _, f := range objects {
		if f.obj >= at || at-f.obj > maxSpinOffset || r.Runtime == nil {
			continue
		}
		for c := range f.class.Bases {
			names, err := r.Runtime.Names.StructFields(c.Table, spinLockClass)
			for _, field := range names {
				offset, missing := r.Managed.Objects.Offset(c, field)
				if err == nil && missing == nil && f.obj+arch.Addr(offset) == at && r.isObject(f.obj) {
					return spinPlace{at, found{f.obj, c}, field}, true
				}
			}
		}
	}
	return spinPlace{}, false
}

// maxSpinOffset bounds the size of an object around a SpinLock, in bytes.
const maxSpinOffset = 1 << 16
