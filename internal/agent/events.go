package agent

import "slices"

// Drain calls f for all complete records in the ring, in the order in which the agent has
// reserved their places. It ends at an error of f, at ErrCorrupt, and at an unfinished record:
// the agent is still writing the record, or its process died meanwhile. There are no records
// before Begin, or after Close.
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

// Waits appends to out the current waits for locks, 64 at most.
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

// Release lets the thread of a Held record go on. Records must be released in their order.
func (c *Conn) Release(r *Record) {
	if c.ring != nil {
		c.ring.set(offReleased, r.Position+1)
	}
}

// ExceptionOffsets say where the runtime keeps exceptions, in bytes. The zero value says nothing.
type ExceptionOffsets struct {
	Thread   uint32 // in a Thread, the address of its newest exception's state
	Object   uint32 // in that state, the handle of the exception object
	Previous uint32 // there, the address of the state of the thread's previous exception
	Trace    uint32 // in an exception object, its stack trace; 0: not known
	Direct   bool   // Object has the address of the exception object, not its handle
}

// Owners say how the runtime's events describe the owner of a lock (agent/protocol.h, enum
// owner_form).
type Owners struct {
	Form OwnerForm

	// For OwnerManagedID: the address of the address of the runtime's IdDispenser, and offsets in bytes.
	Dispenser uint64
	Threads   uint32 // in the IdDispenser, the address of the table of threads by managed id
	ID, OSID  uint32 // in a thread
}

// An OwnerForm is the form in which the runtime's events name a thread.
type OwnerForm uint64

// The forms.
const (
	OwnerUnknown   OwnerForm = 0 // records have no owner
	OwnerOSID      OwnerForm = 1
	OwnerManagedID OwnerForm = 2 // the agent finds the thread when a wait begins
)

// SetExceptionOffsets tells the agent where the runtime keeps exceptions. From then on records of
// exceptions have a ClassID, which must be checked against their name, and the address of the
// object, and the agent tells EventRethrown from EventException. Subscription.ExceptionOffsets
// has the same effect from the beginning.
func (c *Conn) SetExceptionOffsets(o ExceptionOffsets) {
	if c.ring != nil {
		c.ring.setExceptionOffsets(o)
	}
}

func (r *ring) setExceptionOffsets(o ExceptionOffsets) {
	// The agent reads the first number first, so set writes the first number last.
	var direct uint64
	if o.Direct {
		direct = 1
	}
	r.set(offDirect, direct)
	for i, v := range slices.Backward([]uint32{o.Thread, o.Object, o.Previous, o.Trace}) {
		r.set(offThrown+8*i, uint64(v))
	}
}

// SetOwners tells the agent the form of locks' owners. Before, records of EventContention have no
// owners.
func (c *Conn) SetOwners(o Owners) {
	if c.ring != nil {
		c.ring.setOwners(o)
	}
}

func (r *ring) setOwners(o Owners) {
	// The agent reads the first number first, so set writes the first number last.
	for i, v := range slices.Backward([]uint64{
		uint64(o.Form), o.Dispenser, uint64(o.Threads), uint64(o.ID), uint64(o.OSID),
	}) {
		r.set(offOwners+8*i, v)
	}
}

// SetWalkedThread tells the agent the thread that is being walked from outside; 0: none. If that
// thread ends meanwhile, it waits (Subscription.DestroyWait).
func (c *Conn) SetWalkedThread(thread uint64) {
	if c.ring != nil {
		c.ring.set(offWalking, thread)
	}
}
