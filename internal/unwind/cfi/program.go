package cfi

import (
	"clrsnap/internal/arch"
)

// maxColumns is the number of kept columns of the table of DWARF 5, 6.4.1: the
// integer registers and the return address. Higher columns are vector registers
// and flags on both architectures; no frame is found through them.
const maxColumns = arch.MaxRegs + 1

// ruleKind is a register rule (DWARF 5, 6.4.1).
type ruleKind uint8

const (
	ruleUnset     ruleKind = iota // no instruction named the register
	ruleUndefined                 // not recoverable
	ruleSame                      // unchanged
	ruleOffset                    // in memory at CFA+val
	ruleValOffset                 // is CFA+val
	ruleRegister                  // in the register of column val
	ruleExpr                      // in memory at the value of an expression
	ruleValExpr                   // is the value of an expression
)

// rule says where a register of the caller is. An expression lies at offset val
// of .eh_frame and has n bytes.
type rule struct {
	kind ruleKind
	n    uint32
	val  int64
}

// row is a row of the table: how to find the CFA and the caller's registers.
// The CFA is column cfaCol plus cfa.val (ruleRegister), or an expression
// (ruleValExpr).
type row struct {
	cfa    rule
	cfaCol uint64
	regs   [maxColumns]rule
}

// Bounds of the cost of a lookup. Compilers nest one deep; the longest known
// programs (generated dispatchers) have some thousand instructions.
const (
	maxRemembered   = 64
	maxInstructions = 1 << 16
)

// program executes the call frame instructions up to one address.
type program struct {
	t          *Table
	cie        *cie
	rec        *record // the record whose instructions are being executed
	row        row
	initial    row // after the CIE's instructions, for DW_CFA_restore
	remembered []row
	loc, pc    arch.Addr
	left       int // remaining instructions
	done       bool
}

// Call frame instructions (DWARF 5, 7.24; GNU's in LSB 10.5.2.1;
// MIPS_advance_loc8 and AARCH64_negate_ra_state from GCC's dwarf2.def).
const (
	cfaAdvanceLoc = 0x40 // in the upper two bits, an operand in the lower six
	cfaOffset     = 0x80
	cfaRestore    = 0xc0

	cfaNop                       = 0x00
	cfaSetLoc                    = 0x01
	cfaAdvanceLoc1               = 0x02
	cfaAdvanceLoc2               = 0x03
	cfaAdvanceLoc4               = 0x04
	cfaOffsetExtended            = 0x05
	cfaRestoreExtended           = 0x06
	cfaUndefined                 = 0x07
	cfaSameValue                 = 0x08
	cfaRegister                  = 0x09
	cfaRememberState             = 0x0a
	cfaRestoreState              = 0x0b
	cfaDefCFA                    = 0x0c
	cfaDefCFARegister            = 0x0d
	cfaDefCFAOffset              = 0x0e
	cfaDefCFAExpression          = 0x0f
	cfaExpression                = 0x10
	cfaOffsetExtendedSF          = 0x11
	cfaDefCFASF                  = 0x12
	cfaDefCFAOffsetSF            = 0x13
	cfaValOffset                 = 0x14
	cfaValOffsetSF               = 0x15
	cfaValExpression             = 0x16
	cfaMIPSAdvanceLoc8           = 0x1d
	cfaAArch64NegateRAState      = 0x2d
	cfaGNUArgsSize               = 0x2e
	cfaGNUNegativeOffsetExtended = 0x2f
)

// run leaves the row of f that covers pc in p.row.
func (p *program) run(t *Table, f *fde, pc arch.Addr) error {
	p.t, p.cie, p.pc, p.left = t, f.cie, pc, maxInstructions
	p.loc = f.lo
	r := f.cie.rec.reader(f.cie.start)
	p.rec = &f.cie.rec
	if err := p.exec(&r); err != nil {
		return err
	}
	p.initial = p.row
	p.loc, p.done = f.lo, false
	r = f.rec.reader(f.start)
	p.rec = &f.rec
	return p.exec(&r)
}

func (p *program) exec(r *reader) error {
	for r.left() > 0 && !p.done {
		at := r.off + r.pos
		if p.left--; p.left < 0 {
			return bad("too many instructions", at)
		}
		op := r.u8()
		low := uint64(op & 0x3f)
		ok := true
		switch op & 0xc0 {
		case cfaAdvanceLoc:
			ok = p.advance(low)
		case cfaOffset:
			p.set(low, rule{kind: ruleOffset, val: int64(r.uleb()) * p.cie.dataAlign})
		case cfaRestore:
			p.restore(low)
		default:
			ok = p.location(op, r) || p.defineCFA(op, r) || p.register(op, r) || p.other(op, r)
		}
		if !ok || r.bad {
			return bad("call frame instruction", at)
		}
	}
	return nil
}

// advance begins a new row delta code units further on. If the new row begins
// after pc, the current row is the wanted row.
func (p *program) advance(delta uint64) bool {
	if delta != 0 && p.cie.codeAlign > ^uint64(0)/delta {
		return false
	}
	loc, ok := p.loc.Add(delta * p.cie.codeAlign)
	p.setLoc(loc)
	return ok
}

func (p *program) setLoc(loc arch.Addr) {
	p.loc = loc
	p.done = loc > p.pc
}

// set gives a column its rule; columns beyond the kept columns are ignored.
func (p *program) set(col uint64, ru rule) {
	if col < maxColumns {
		p.row.regs[col] = ru
	}
}

// restore gives a column the CIE's rule.
func (p *program) restore(col uint64) {
	if col < maxColumns {
		p.row.regs[col] = p.initial.regs[col]
	}
}

// location executes the row creation instructions (DWARF 5, 6.4.2.1). location
// and the functions below report whether they know op.
func (p *program) location(op uint8, r *reader) bool {
	switch op {
	case cfaSetLoc:
		loc := p.t.pointer(r, &p.rec.piece, p.cie.ptrEnc)
		if loc < p.loc {
			return false
		}
		p.setLoc(loc)
		return true
	case cfaAdvanceLoc1:
		return p.advance(r.fixed(1))
	case cfaAdvanceLoc2:
		return p.advance(r.fixed(2))
	case cfaAdvanceLoc4:
		return p.advance(r.fixed(4))
	case cfaMIPSAdvanceLoc8:
		return p.advance(r.fixed(8))
	}
	return false
}

// defineCFA executes the CFA definition instructions (DWARF 5, 6.4.2.2).
func (p *program) defineCFA(op uint8, r *reader) bool {
	w := &p.row
	switch op {
	case cfaDefCFA:
		w.cfaCol = r.uleb()
		w.cfa = rule{kind: ruleRegister, val: int64(r.uleb())}
	case cfaDefCFASF:
		w.cfaCol = r.uleb()
		w.cfa = rule{kind: ruleRegister, val: r.sleb() * p.cie.dataAlign}
	case cfaDefCFAExpression:
		w.cfa = expression(ruleValExpr, r)
	case cfaDefCFARegister:
		w.cfaCol = r.uleb()
		return w.cfa.kind == ruleRegister
	case cfaDefCFAOffset:
		w.cfa.val = int64(r.uleb())
		return w.cfa.kind == ruleRegister
	case cfaDefCFAOffsetSF:
		w.cfa.val = r.sleb() * p.cie.dataAlign
		return w.cfa.kind == ruleRegister
	default:
		return false
	}
	return true
}

// register executes the register rule instructions (DWARF 5, 6.4.2.3).
func (p *program) register(op uint8, r *reader) bool {
	if !isRegisterOp(op) {
		return false
	}
	col := r.uleb()
	switch op {
	case cfaRestoreExtended:
		p.restore(col)
	case cfaUndefined:
		p.set(col, rule{kind: ruleUndefined})
	case cfaSameValue:
		p.set(col, rule{kind: ruleSame})
	case cfaOffsetExtended:
		p.set(col, rule{kind: ruleOffset, val: int64(r.uleb()) * p.cie.dataAlign})
	case cfaOffsetExtendedSF:
		p.set(col, rule{kind: ruleOffset, val: r.sleb() * p.cie.dataAlign})
	case cfaGNUNegativeOffsetExtended:
		p.set(col, rule{kind: ruleOffset, val: -int64(r.uleb()) * p.cie.dataAlign})
	case cfaValOffset:
		p.set(col, rule{kind: ruleValOffset, val: int64(r.uleb()) * p.cie.dataAlign})
	case cfaValOffsetSF:
		p.set(col, rule{kind: ruleValOffset, val: r.sleb() * p.cie.dataAlign})
	case cfaRegister:
		p.set(col, rule{kind: ruleRegister, val: int64(r.uleb())})
	case cfaExpression:
		p.set(col, expression(ruleExpr, r))
	case cfaValExpression:
		p.set(col, expression(ruleValExpr, r))
	}
	return true
}

func isRegisterOp(op uint8) bool {
	switch op {
	case cfaOffsetExtended, cfaRestoreExtended, cfaUndefined, cfaSameValue, cfaRegister, cfaExpression,
		cfaOffsetExtendedSF, cfaValOffset, cfaValOffsetSF, cfaValExpression, cfaGNUNegativeOffsetExtended:
		return true
	}
	return false
}

// maxExpression bounds an expression, in bytes. Known expressions have a dozen.
const maxExpression = 128

// expression reads an expression's length and steps over its bytes.
func expression(kind ruleKind, r *reader) rule {
	n := r.uleb()
	at := r.off + r.pos
	r.take(n)
	r.bad = r.bad || n > maxExpression
	return rule{kind: kind, n: uint32(n), val: int64(at)}
}

// other executes the row state instructions (DWARF 5, 6.4.2.4) and instructions
// without effect here. The size of the arguments on the stack matters only for
// resuming in the frame.
func (p *program) other(op uint8, r *reader) bool {
	switch op {
	case cfaNop:
	case cfaGNUArgsSize:
		r.uleb()
	case cfaAArch64NegateRAState:
		return p.t.arch.Machine == arch.MachineARM64
	case cfaRememberState:
		if len(p.remembered) >= maxRemembered {
			return false
		}
		p.remembered = append(p.remembered, p.row)
	case cfaRestoreState:
		n := len(p.remembered) - 1
		if n < 0 {
			return false
		}
		p.row = p.remembered[n]
		p.remembered = p.remembered[:n]
	default:
		return false
	}
	return true
}
