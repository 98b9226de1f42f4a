package awaits

import (
	"errors"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Chain is a chain of awaits. Step is a step of a chain.
type (
	Chain = async.Chain
	Step  = async.Step
)

// Why the methods that await an async method are unknown.
var (
	// ErrNeverSuspended: nothing but the caller awaits the method.
	ErrNeverSuspended = errors.New("the method has not been suspended yet")
	// ErrOver: the method has ended, and nothing awaits the method any more.
	ErrOver = errors.New("the method has ended")
	// ErrReused: the box of the method may serve another call by now.
	ErrReused   = errors.New("the box of the method is used again for others")
	errChanging = errors.New("what awaits the method changed all the time")
)

// Awaiting reads the methods that await an async method. sp and ip belong to the frame of the
// caller. The result counts only if all data was there at one moment, before the call returned. A
// later call from the same place may reuse the box: then rests must report that the thread has not
// run; nil: the thread may have run.
func (p *Program) Awaiting(site *Site, sp, ip arch.Addr, rests func() bool) (c async.Chain, err error) {
	reused := false
	var nobody error
	read := func() (err error) {
		c, reused, err = p.AwaitingSite(site)
		if nobody = nil; errors.Is(err, ErrNeverSuspended) || errors.Is(err, ErrOver) {
			nobody = err
			return nil
		}
		return err
	}
	called := func() bool { return p.StillCalled(sp, ip) }
	switch {
	case !p.moments.Read(read, called):
		return async.Chain{}, errChanging
	case nobody != nil:
		return async.Chain{}, nobody
	case reused && p.moments.Changes() && (rests == nil || !rests()):
		return async.Chain{}, ErrReused
	}
	c.Steps = p.ProgramSteps(c.Steps)
	return c, nil
}

// StillCalled reports whether a call is still active: the call returns to ip, and the stack pointer
// is sp after the return. When the call is over, all calls made within the call are over too.
func (p *Program) StillCalled(sp, ip arch.Addr) bool {
	at, err := target.NewReader(p.memory).Uint64(sp - callSlot)
	return err == nil && arch.Addr(at) == ip
}

// AwaitingSite reads once the methods that await the async method of a site. reused: the data may
// serve another call by now.
func (p *Program) AwaitingSite(site *Site) (c async.Chain, reused bool, err error) {
	switch {
	case site.resumes != nil:
		return p.awaitingResumed(site)
	case site.task > 0:
		c, err = p.awaitingTask(site.Argument)
		return c, false, err
	}
	box, c, err := site.Awaiting(p.AsyncReader())
	return c, box != nil && box.Reused(), err
}

// Leads reports whether the frame of a site leads to the awaiting methods without a box: the frame resumes methods, or
// runs the delegate of a task.
func (site *Site) Leads() bool { return site.resumes != nil || site.task > 0 }

// Awaiting reads once the box of a site's async method, and the awaiting methods.
func (site *Site) Awaiting(r *async.Reader) (box *async.Box, c async.Chain, err error) {
	if site.Table == 0 {
		box, err = r.Box(site.Argument)
	} else if box, err = r.Of(site.Argument, site.Table); errors.Is(err, async.ErrNoBox) {
		if site.resumed {
			return nil, c, ErrOver // a method's end clears the state machine
		}
		return nil, c, ErrNeverSuspended
	}
	if err != nil {
		return nil, c, err
	}
	if site.of != 0 {
		is, err := r.Runs(box, site.of)
		if err != nil {
			return nil, c, err
		}
		if !is {
			return nil, c, ErrOver // the collector has put another box there
		}
	}
	if c, err = r.Awaiting(box.Object); err == nil && c.End == async.Done && len(c.Steps) == 0 {
		err = ErrOver
	}
	return box, c, err
}

// callSlot is the size in bytes of the return address that a call pushes.
const callSlot = 8

// FrameCost is the size of a frame in bytes.
func FrameCost(f *snapshot.Frame) int {
	return int(unsafe.Sizeof(*f)) + len(f.Method) + len(f.Display) + len(f.Short) + len(f.Signature)
}
