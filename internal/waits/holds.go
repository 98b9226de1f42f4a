package waits

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/profile"
)

// maxHolds bounds the locks of a thread that are named.
const maxHolds = 64

// Holds returns the locks that a thread holds and that its stack refers to. lock in C# keeps the object on the
// stack until it is left, and so do using and finally. Each is one that says itself that this thread holds it.
func (r *Reader) Holds(s *Subject) []profile.Wait {
	if s.Thread.Address == 0 || r.Runtime == nil || r.Runtime.Locks == nil || len(s.Frames) == 0 {
		return nil
	}
	var err error
	if r.segments, err = r.Runtime.Heap.Segments(); err != nil {
		return nil
	}
	r.Runtime.Heap.Begin(false)
	var out []profile.Wait
	list := r.look(s.Stack, arch.Addr(s.Frames[0].SP), s.Stack.Base+arch.Addr(len(s.Stack.Data)))
	for _, f := range slices.Clone(list) {
		if len(out) == maxHolds {
			break
		}
		if held, _ := r.held(f, s); held == nil || !r.Runtime.Heap.IsObject(r.segments, f.obj) {
			continue
		}
		var h *profile.Wait
		if r.steadily(func() (err error) { h, err = r.held(f, s); return err }, nil, primitive{}) && h != nil {
			h.Certain = true
			out = append(out, *h)
		}
	}
	return out
}

// held describes an object that a thread holds; nil: it does not.
func (r *Reader) held(f found, s *Subject) (*profile.Wait, error) {
	w := profile.Wait{Object: uint64(f.obj), Type: f.class.Display}
	switch {
	case f.class.Is(coreLib, lockClass):
		if m, err := r.Runtime.Locks.Lock(f.obj); err != nil || m.Owner == s.Thread.OSID {
			w.Kind, w.Recursion, w.Waiters = profile.LockEnter, m.Recursion, m.Waiters
			return &w, err
		}
	case f.class.Is(coreLib, readerWriterClass):
		rw, err := r.readerWriter(f)
		if own := s.Thread.ManagedID; err != nil || rw.writer == own {
			w.Kind = profile.WriteLock
		} else if rw.upgrader == own {
			w.Kind = profile.UpgradeableLock
		}
		if w.Kind != "" {
			w.Waiters = rw.waiters
			return &w, err
		}
	}
	m, err := r.Runtime.Locks.Of(f.obj)
	if err != nil {
		return nil, err
	}
	if own := s.Thread.OSID; m.Thin && m.Owner == s.Thread.ManagedID || !m.Thin && m.Owner == own && own != 0 {
		return heldMonitor(&w, &m), nil
	}
	return nil, nil
}

func heldMonitor(w *profile.Wait, m *lock.Monitor) *profile.Wait {
	w.Kind, w.Recursion, w.Waiters = profile.MonitorEnter, m.Recursion, m.Waiters
	return w
}

// Monitors returns the monitors that threads hold and that somebody has waited for once, by the owner's id of
// the operating system, in the target's PID namespace. all is false if there may be more.
func (r *Reader) Monitors() (held map[int][]profile.Wait, all bool) {
	if r.Runtime == nil || r.Runtime.Locks == nil {
		return nil, false
	}
	list, all, err := r.Runtime.Locks.Held()
	if err != nil {
		return nil, false
	}
	held = map[int][]profile.Wait{}
	for _, m := range list {
		if len(held[m.Owner]) == maxHolds {
			all = false
			continue
		}
		var w profile.Wait
		stands := r.steadily(func() error {
			now, err := r.Runtime.Locks.Of(m.Object)
			if err != nil {
				return err
			}
			if now.Owner != m.Owner || now.Thin {
				return lock.ErrChanging
			}
			c, err := r.Runtime.Objects.Class(m.Object)
			if err != nil {
				return err
			}
			w = profile.Wait{Object: uint64(m.Object), Type: c.Display, Certain: true}
			heldMonitor(&w, &now)
			return nil
		}, nil, primitive{})
		if stands {
			held[m.Owner] = append(held[m.Owner], w)
		}
	}
	return held, all
}
