package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// plainContext is the class of a SynchronizationContext that hands everything to the thread pool.
const plainContext = "System.Threading.SynchronizationContext"

// Context returns the SynchronizationContext of a thread, and the context's class. at is the
// address of the Thread object. 0: the thread has no context, or a context without any effect. An
// async method that has waited on a thread with a context goes on where the context wants, mostly
// on the same thread again (Thread.CoreCLR.cs and Thread.cs, _synchronizationContext).
func (r *Reader) Context(at arch.Addr) (context arch.Addr, class string) {
	t := r.find(func() *thread.Thread { return r.People.At(at) }, anybody)
	if t == nil {
		return 0, ""
	}
	stands := r.steadily(func() error {
		context, class = 0, ""
		obj, err := r.managedThread(t)
		if err != nil || obj == 0 {
			return err
		}
		c, err := r.Managed.Objects.Class(obj)
		if err != nil {
			return err
		}
		if context, err = r.Managed.Objects.Pointer(obj, c, "_synchronizationContext"); err != nil || context == 0 {
			return err
		}
		if c, err = r.Managed.Objects.Class(context); err == nil {
			class = c.Display
		}
		return err
	}, nil, primitive{})
	if !stands || class == plainContext {
		return 0, ""
	}
	return context, class
}
