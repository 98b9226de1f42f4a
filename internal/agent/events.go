package agent

// Drain takes all records that are there, in the order in which the agent has made
// place for them. An error of f, or one that says that the memory is corrupt, ends
// it. A record that is being written ends it, too; so does one that a process has
// not finished before it died. Nothing is there before Begin, or after Close.
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

// Thrown says where the runtime's structures have the exception that a thread throws:
// in a Thread the address of its newest exception's state, and in that the handle of
// the object. From then on records of exceptions have a ClassID, which is to be checked
// against their name.
func (c *Conn) Thrown(inThread, inException uint32) {
	if c.ring != nil {
		c.ring.set(offThrown, uint64(inThread))
		c.ring.set(offThrown+8, uint64(inException))
	}
}

// Walking says which thread is being walked from outside; 0: none. If it ends
// meanwhile, it waits (Subscription.DestroyWait).
func (c *Conn) Walking(thread uint64) {
	if c.ring != nil {
		c.ring.set(offWalking, thread)
	}
}
