package waits

import (
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
)

// Class returns the class of the object whose monitor blocks a thread; nil: not certain. The answer
// was right at some moment between the call and its return: the thread may no longer be blocked by
// then.
func (r *Reader) Class(b lock.Blocking) *object.Class {
	var class *object.Class
	if !r.steadily(func() error {
		m, err := r.Managed.Locks.At(b.Lock)
		if err == nil {
			class, err = r.Managed.Objects.Class(m.Object)
		}
		return err
	}, nil, primitive{}) {
		return nil
	}
	return class
}

// OfSemaphore reports whether SemaphoreSlims use the monitors of objects of a class.
func OfSemaphore(c *object.Class) bool { return c.Assembly == coreLib && c.Display == semaphoreMonitor }

// MonitorClass is Class for a thread's record of a Lock or a Condition. monitor: the Lock is the
// monitor of an object.
func (r *Reader) MonitorClass(i *lock.Info) (class *object.Class, monitor bool) {
	locks := r.Managed.Locks
	read := func() bool {
		return r.steadily(func() error {
			class, monitor = nil, false
			at, err := locks.LockOf(i)
			if err != nil {
				return err
			}
			m, ok := locks.Entered(at)
			if !ok {
				return nil
			}
			monitor = true
			class, err = r.Managed.Objects.Class(m.Object)
			return err
		}, nil, primitive{})
	}
	steady := read()
	if !monitor && locks.Due(false) {
		locks.Look()
		steady = read()
	}
	if !steady {
		return nil, monitor
	}
	return class, monitor
}
