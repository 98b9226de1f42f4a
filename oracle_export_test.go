package clrsnap

import (
	"fmt"

	"clrsnap/internal/clr/thread"
)

// Chain lists the runtime's Frames on the stack, newest first: their kinds, and in
// state their addresses and the thread's mode.
func (s *Suspension) Chain() (kinds []string, state string) {
	chain := s.p.s.Runtime.Chain
	state = fmt.Sprintf("cooperative %v:", s.s.Walk.Info.Cooperative)
	for at := s.s.Walk.Info.Frame; at != 0 && at != thread.FrameTop; {
		kind, ok := chain.Kind(s.s.Walk.Stack, at)
		if !ok {
			break
		}
		kinds = append(kinds, kind.String())
		state += fmt.Sprintf(" %v at %v", kind, at)
		if at, ok = chain.Next(s.s.Walk.Stack, at); !ok {
			break
		}
	}
	return kinds, state
}

// Preemptive reports whether the thread was in preemptive mode.
func (s *Suspension) Preemptive() bool { return !s.s.Walk.Info.Cooperative }
