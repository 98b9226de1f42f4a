package agent

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

// Thrown tells the agent where the runtime keeps the exception that a thread throws: the
// offset in a Thread of the address of its newest exception's state, and in that the
// offset of the object's handle. From then on records of exceptions have a ClassID, which
// must be checked against their name.
func (c *Conn) Thrown(inThread, inException uint32) {
	if c.ring != nil {
		c.ring.set(offThrown, uint64(inThread))
		c.ring.set(offThrown+8, uint64(inException))
	}
}

// Walking tells the agent which thread is being walked from outside; 0: none. If that
// thread ends meanwhile, it waits (Subscription.DestroyWait).
func (c *Conn) Walking(thread uint64) {
	if c.ring != nil {
		c.ring.set(offWalking, thread)
	}
}
