package cfi

import (
	"bytes"
	"cmp"
	"fmt"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// reg maps a column to our number of its register.
func (t *Table) reg(col uint64) (uint8, bool) {
	if col >= uint64(len(t.arch.DWARF)) {
		return 0, false
	}
	r := t.arch.DWARF[col]
	return r, r < arch.MaxRegs
}

// compile turns a row into a step.
func (t *Table) compile(c *cie, w *row) (*unwind.Step, error) {
	ra := w.regs[c.ra]
	if ra.kind == ruleUndefined { // outermost frame (DWARF 5, 6.4.4)
		return &unwind.Step{SP: t.arch.SP, Signal: c.signal, End: true}, nil
	}
	if ra.kind == ruleUnset {
		// An untouched return address column is the return address only if
		// the column is a register (arm64).
		if _, ok := t.reg(uint64(c.ra)); !ok {
			return nil, bad("no rule for the return address in the CIE", c.off)
		}
	}
	cfaReg, ok := t.reg(w.cfaCol)
	if w.cfa.kind != ruleValExpr && (w.cfa.kind != ruleRegister || !ok) {
		return nil, bad("no usable CFA in the CIE", c.off)
	}
	s := &unwind.Step{
		CFAReg: cfaReg, SP: t.arch.SP, Signal: c.signal,
		CFAOff: int32(w.cfa.val), IPOff: int32(ra.val), Keep: t.keep(w),
	}
	if !t.common(c, w) {
		s.CFAReg, s.CFAOff, s.IPOff = 0, 0, 0
		slow, err := t.slow(c, w, s.Keep)
		s.Slow = slow
		return s, err
	}
	s.Saved = t.saved(w)
	return s, nil
}

// saved lists the registers that lie at offsets from the CFA.
func (t *Table) saved(w *row) []unwind.Saved {
	var all [maxColumns]unwind.Saved
	n := 0
	for col := range w.regs {
		r, ok := t.reg(uint64(col))
		if ru := &w.regs[col]; ok && ru.kind == ruleOffset {
			all[n] = unwind.Saved{Reg: r, Off: int32(ru.val)}
			n++
		}
	}
	return append([]unwind.Saved(nil), all[:n]...) // no larger than needed: steps are cached
}

// keep is the set of registers with the same value in the caller: registers
// that a call preserves, unless a rule says otherwise, and registers that a
// rule declares unchanged.
func (t *Table) keep(w *row) arch.RegMask {
	keep := t.arch.NonVolatile
	for col := range w.regs {
		r, ok := t.reg(uint64(col))
		if !ok {
			continue
		}
		switch w.regs[col].kind {
		case ruleUnset:
		case ruleSame:
			keep |= 1 << r
		default:
			keep &^= 1 << r
		}
	}
	return keep | 1<<t.arch.SP
}

// common reports whether a row has the form of unwind.Step's fields. The stack
// pointer of the caller must be the CFA.
func (t *Table) common(c *cie, w *row) bool {
	if w.cfa.kind != ruleRegister || int64(int32(w.cfa.val)) != w.cfa.val || w.regs[c.ra].kind != ruleOffset {
		return false
	}
	for col := range w.regs {
		ru := &w.regs[col]
		r, ok := t.reg(uint64(col))
		if ok && r == t.arch.SP && ru.kind != ruleUnset {
			return false
		}
		switch ru.kind {
		case ruleUnset, ruleUndefined, ruleSame:
		case ruleOffset:
			if ru.val < math.MinInt32 || ru.val > math.MaxInt32 {
				return false
			}
		default:
			// A rule for a column that is neither a register nor the return
			// address does not matter.
			if ok || col == c.ra {
				return false
			}
		}
	}
	return true
}

// slow compiles a row that needs an interpreter.
func (t *Table) slow(c *cie, w *row, keep arch.RegMask) (unwind.Stepper, error) {
	s := &slowStep{arch: t.arch, cfaCol: w.cfaCol, keep: keep}
	var err1, err2 error
	s.cfa, err1 = t.value(&w.cfa)
	s.ra, err2 = t.value(&w.regs[c.ra])
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	if s.ra.kind == ruleUnset || s.ra.kind == ruleSame {
		s.ra = value{kind: ruleRegister, val: int64(c.ra)}
	}
	if s.ra.kind == ruleRegister && !s.readable(s.ra.val) {
		return nil, fmt.Errorf("%w: return address in column %d", unwind.ErrBadInfo, s.ra.val)
	}
	for col := range w.regs {
		r, ok := t.reg(uint64(col))
		if !ok {
			continue
		}
		switch w.regs[col].kind {
		case ruleUnset, ruleUndefined:
		case ruleSame:
			if r == t.arch.SP { // for all other registers, Keep has the rule
				s.regs = append(s.regs, regValue{r, value{kind: ruleRegister, val: int64(col)}})
			}
		default:
			v, err := t.value(&w.regs[col])
			if err != nil {
				return nil, err
			}
			s.regs = append(s.regs, regValue{r, v})
		}
	}
	s.spUndefined = t.spUndefined(w)
	return s, nil
}

// spUndefined reports whether a rule declares the stack pointer lost.
func (t *Table) spUndefined(w *row) bool {
	for col := range w.regs {
		if r, ok := t.reg(uint64(col)); ok && r == t.arch.SP && w.regs[col].kind == ruleUndefined {
			return true
		}
	}
	return false
}

// value is a rule with its expression at hand.
func (t *Table) value(ru *rule) (value, error) {
	v := value{kind: ru.kind, val: ru.val}
	if ru.kind == ruleExpr || ru.kind == ruleValExpr {
		b, err := t.frame.Bytes(uint64(ru.val), int(ru.n))
		if err != nil {
			return v, fmt.Errorf("%w: %w", unwind.ErrBadInfo, err)
		}
		v.expr, v.val = bytes.Clone(b), 0 // steps are kept for long
	}
	return v, nil
}
