package agent

import "slices"

// Drain calls f for all complete records in the ring, in the order in which the agent
// has reserved their places. It ends at an error of f, at ErrCorrupt, and at a record
// that is still being written, or that a process had not finished when it died. There
// are no records before Begin, or after Close.
func (c *Conn) Drain(f func(*Record) error) error {
	for c.ring != nil {
		r, err := c.ring.next()
		if err != nil || r == nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// Waits appends to out the waits for locks that go on now, 64 at most.
func (c *Conn) Waits(out []Wait) []Wait {
	if c.ring == nil {
		return out
	}
	return c.ring.waits(out)
}

// Stats are the counts by type of event. They run ahead of the records a little.
func (c *Conn) Stats() [EventTypes]Counts {
	if c.ring == nil {
		return [EventTypes]Counts{}
	}
	return c.ring.stats()
}

// Release lets the thread of a record that is Held go on. Records are to be
// released in their order.
func (c *Conn) Release(r *Record) {
	if c.ring != nil {
		c.ring.set(offReleased, r.Position+1)
	}
}

// ExceptionOffsets say where the runtime keeps exceptions, in bytes. The zero value says nothing.
type ExceptionOffsets struct {
	Thread   uint32 // in a Thread, the address of its newest exception's state
	Object   uint32 // in that state, the handle of the exception object
	Previous uint32 // there, the address of the state of the exception before it on the thread
	Trace    uint32 // in an exception object, its stack trace; 0: not known
}

// SetExceptionOffsets tells the agent where the runtime keeps exceptions. From then on records of
// exceptions have a ClassID, which must be checked against their name, and the address of the object,
// and the agent tells EventRethrown from EventException. Subscription.Exceptions does so from the
// beginning.
func (c *Conn) SetExceptionOffsets(o ExceptionOffsets) {
	if c.ring != nil {
		c.ring.setExceptionOffsets(o)
	}
}

func (r *ring) setExceptionOffsets(o ExceptionOffsets) {
	// The agent looks at the first one first, which is why it is set last.
	for i, v := range slices.Backward([]uint32{o.Thread, o.Object, o.Previous, o.Trace}) {
		r.set(offThrown+8*i, uint64(v))
	}
}

// SetWalkedThread tells the agent which thread is being walked from outside; 0: none. If that
// thread ends meanwhile, it waits (Subscription.DestroyWait).
func (c *Conn) SetWalkedThread(thread uint64) {
	if c.ring != nil {
		c.ring.set(offWalking, thread)
	}
}
