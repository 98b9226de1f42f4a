package cfi

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// value is the place of a value of the caller, like rule.
type value struct {
	kind ruleKind
	val  int64
	expr []byte
}

type regValue struct {
	reg uint8
	value
}

// slowStep is a step outside the common form. It is immutable.
type slowStep struct {
	arch        *arch.Arch
	cfa, ra     value
	cfaCol      uint64
	keep        arch.RegMask
	regs        []regValue
	spUndefined bool
}

// Step implements unwind.Stepper. All rules refer to the registers before the
// step (DWARF 5, 6.4.3), so Step collects the new registers separately.
func (s *slowStep) Step(c *arch.Context, st *target.Stack) error {
	e := env{c: c, s: st, step: s}
	cfa, err := s.canonical(&e)
	if err != nil {
		return err
	}
	e.cfa, e.hasCFA = cfa, true
	ip, err := s.eval(&s.ra, &e)
	if err != nil {
		return err
	}
	n := *c
	n.Valid &= s.keep
	n.Set(s.arch.SP&(arch.MaxRegs-1), cfa)
	if s.spUndefined {
		n.Valid &^= 1 << s.arch.SP
	}
	for i := range s.regs {
		r := &s.regs[i]
		v, err := s.eval(&r.value, &e)
		switch {
		case err == nil:
			n.Set(r.reg, v)
		case errors.Is(err, unwind.ErrRegister): // the value is lost, and may not be needed
			n.Valid &^= 1 << r.reg
		default:
			return err
		}
	}
	n.IP = arch.Addr(ip)
	*c = n
	return nil
}

// canonical computes the CFA.
func (s *slowStep) canonical(e *env) (uint64, error) {
	if s.cfa.kind == ruleValExpr {
		return e.run(s.cfa.expr, false)
	}
	v, err := e.column(s.cfaCol)
	return v + uint64(s.cfa.val), err
}

func (s *slowStep) eval(v *value, e *env) (uint64, error) {
	switch v.kind {
	case ruleOffset:
		return e.load(e.cfa + uint64(v.val))
	case ruleValOffset:
		return e.cfa + uint64(v.val), nil
	case ruleRegister:
		return e.column(uint64(v.val))
	case ruleExpr:
		a, err := e.run(v.expr, true)
		if err != nil {
			return 0, err
		}
		return e.load(a)
	case ruleValExpr:
		return e.run(v.expr, true)
	}
	return 0, unwind.ErrBadInfo
}

// readable reports whether a column has a value in the frame itself.
func (s *slowStep) readable(col int64) bool {
	if col == int64(s.arch.DWARFReturn) {
		return true
	}
	return col >= 0 && col < int64(len(s.arch.DWARF)) && s.arch.DWARF[col] < arch.MaxRegs
}

// env is the environment of an expression.
type env struct {
	c      *arch.Context
	s      *target.Stack
	step   *slowStep
	cfa    uint64
	hasCFA bool
}

// column returns the value of a register by its DWARF number. If the return
// address is no register, its number stands for the instruction pointer: the
// procedure linkage table of x86-64 uses this number for the instruction
// pointer.
func (e *env) column(col uint64) (uint64, error) {
	a := e.step.arch
	if col < uint64(len(a.DWARF)) {
		if v, ok := e.c.Reg(a.DWARF[col]); ok {
			return v, nil
		}
		return 0, unwind.ErrRegister
	}
	if col == uint64(a.DWARFReturn) {
		return uint64(e.c.IP), nil
	}
	return 0, unwind.ErrBadInfo
}

func (e *env) load(addr uint64) (uint64, error) {
	v, ok := e.s.Uint64(arch.Addr(addr))
	if !ok {
		return 0, unwind.ErrStack
	}
	return v, nil
}

// loadSize reads a value of n <= 8 bytes. The stack is read in words of 8. At
// the end of a copied piece, the word that ends with the value may be readable
// when the word that begins with the value is not.
func (e *env) loadSize(addr uint64, n int) (uint64, error) {
	shift := 64 - 8*n
	if v, ok := e.s.Uint64(arch.Addr(addr)); ok {
		return v << shift >> shift, nil
	}
	if v, ok := e.s.Uint64(arch.Addr(addr) - arch.Addr(8-n)); ok {
		return v >> shift, nil
	}
	e.s.Miss = arch.Addr(addr)
	return 0, unwind.ErrStack
}
