package clrsnap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
)

// Suspension is a thread at one moment: its registers and its stack. A Suspension stands for the suspended thread of
// the profiling API's steps (suspend, get the context, seed, walk, resume), but the thread itself was stopped only for
// the copy, and runs again. A Suspension is valid until its Process captures the next thread.
type Suspension struct {
	p *Process
	s *session.Suspension
}

// Suspend captures a thread, with everything for a walk of its stack. If the first copy lacks something (the ordinary
// stack below a signal stack, the base of a deep stack), the thread is captured again. The error is an *Error:
// CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD if there is no such live thread, E_FAIL if the thread cannot be captured.
func (p *Process) Suspend(id ThreadID) (*Suspension, error) {
	s, err := p.s.Suspend(arch.Addr(id))
	if err != nil {
		return nil, publish(err)
	}
	return &Suspension{p, s}, nil
}

// Context returns the thread's registers.
func (s *Suspension) Context() Context { return *newContext(&s.s.Walk.Context) }

// Thread returns the thread.
func (s *Suspension) Thread() Thread { return *newThread(&s.s.Thread) }

// Release ends the suspension. The thread itself has run again since the copy.
func (s *Suspension) Release() { s.s.Release() }

func (s *Suspension) id() ThreadID { return ThreadID(s.s.Thread.ID) }
