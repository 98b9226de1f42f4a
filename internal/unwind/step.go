// Package unwind holds the compiled form of a step up the stack. Both unwinders
// produce steps: amd64 (the runtime's Windows-style unwind information of
// managed code) and cfi (the call frame information of native code). Compiling
// an address once and applying the result many times makes a warm walk cost
// only a few memory reads for each frame.
package unwind

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The reasons for failing steps.
var (
	// ErrStack: a saved register or the return address lies in memory that the
	// Stack cannot read; the Stack's Miss field says where.
	ErrStack = errors.New("stack memory is not readable")
	// ErrRegister: the step needs a register whose value is not known.
	ErrRegister = errors.New("a needed register is not known")
	// ErrProgress: the step does not move the stack pointer up.
	ErrProgress = errors.New("stack pointer does not move up")
	// ErrNoInfo: there is no unwind information for the address.
	ErrNoInfo = errors.New("no unwind information")
	// ErrBadInfo: the unwind information is malformed.
	ErrBadInfo = errors.New("malformed unwind information")
)

// Saved says where a register of the caller lies: at CFA+Off.
type Saved struct {
	Reg uint8
	Off int32
}

// Step turns the registers of a frame into the registers of the caller. The
// canonical frame address (CFA) is the value of the stack pointer in the caller
// just before the call, as in DWARF; a call on AMD64 pushes the return address
// to CFA-8.
type Step struct {
	CFAReg uint8 // the CFA is this register's value …
	SP     uint8 // number of the stack pointer register
	End    bool  // outermost frame: there is no caller
	Signal bool  // the caller was interrupted, not called: its ip is exact
	Epilog bool  // the frame is being torn down: its contents, besides saved registers, are not valid

	CFAOff int32 // … plus this
	IPOff  int32 // the return address lies at CFA+IPOff
	Keep   arch.RegMask
	Saved  []Saved

	// Slow, when set, takes the step instead of the fields above: for forms of
	// call frame information that need an interpreter.
	Slow Stepper
}

// Stepper is a step outside the common form.
type Stepper interface {
	// Step changes c to the caller's registers, or leaves it unspecified and
	// returns an error.
	Step(c *arch.Context, s *target.Stack) error
}

// Apply changes c to the caller's context. On error c is unspecified. Apply
// does not require the stack pointer to move: only the walker has this rule,
// because only the walker knows of signal stacks.
func (t *Step) Apply(c *arch.Context, s *target.Stack) error {
	if t.Slow != nil {
		return t.Slow.Step(c, s)
	}
	if !c.Valid.Has(t.CFAReg) {
		return ErrRegister
	}
	cfa := arch.Addr(c.Regs[t.CFAReg&(arch.MaxRegs-1)] + uint64(int64(t.CFAOff)))
	ip, ok := s.Uint64(cfa + arch.Addr(int64(t.IPOff)))
	if !ok {
		return ErrStack
	}
	valid := c.Valid & t.Keep
	for i := range t.Saved {
		r := &t.Saved[i]
		at := cfa + arch.Addr(int64(r.Off))
		v, ok := s.Uint64(at)
		if !ok {
			if at >= arch.Addr(c.Regs[t.SP&(arch.MaxRegs-1)]) || !c.Valid.Has(r.Reg) {
				return ErrStack
			}
			// The slot lies below the stack pointer and was not copied: an epilog has
			// popped the register, and the call frame information does not describe the
			// pop.
			v = c.Regs[r.Reg&(arch.MaxRegs-1)]
		}
		c.Regs[r.Reg&(arch.MaxRegs-1)] = v
		valid |= 1 << r.Reg
	}
	c.Regs[t.SP&(arch.MaxRegs-1)] = uint64(cfa)
	c.Valid = valid | 1<<t.SP
	c.IP = arch.Addr(ip)
	return nil
}
