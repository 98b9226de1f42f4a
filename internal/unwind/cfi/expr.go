package cfi

import (
	"clrsnap/internal/unwind"
)

// Operations of expressions (DWARF 5, 7.7.1). Operations that describe
// variables have no meaning in call frame information (6.4.2).
const (
	opAddr         = 0x03
	opDeref        = 0x06
	opConst1u      = 0x08
	opConst1s      = 0x09
	opConst2u      = 0x0a
	opConst2s      = 0x0b
	opConst4u      = 0x0c
	opConst4s      = 0x0d
	opConst8u      = 0x0e
	opConst8s      = 0x0f
	opConstu       = 0x10
	opConsts       = 0x11
	opDup          = 0x12
	opDrop         = 0x13
	opOver         = 0x14
	opPick         = 0x15
	opSwap         = 0x16
	opRot          = 0x17
	opAbs          = 0x19
	opAnd          = 0x1a
	opDiv          = 0x1b
	opMinus        = 0x1c
	opMod          = 0x1d
	opMul          = 0x1e
	opNeg          = 0x1f
	opNot          = 0x20
	opOr           = 0x21
	opPlus         = 0x22
	opPlusUconst   = 0x23
	opShl          = 0x24
	opShr          = 0x25
	opShra         = 0x26
	opXor          = 0x27
	opBra          = 0x28
	opEq           = 0x29
	opGe           = 0x2a
	opGt           = 0x2b
	opLe           = 0x2c
	opLt           = 0x2d
	opNe           = 0x2e
	opSkip         = 0x2f
	opLit0         = 0x30
	opLit31        = 0x4f
	opBreg0        = 0x70
	opBreg31       = 0x8f
	opBregx        = 0x92
	opDerefSize    = 0x94
	opNop          = 0x96
	opCallFrameCFA = 0x9c
)

// Bounds of an evaluation: expressions in call frame information have about ten
// operations and a stack of three.
const (
	maxDepth      = 64
	maxOperations = 1 << 10
)

// machine is the stack machine of DWARF 5, 2.5.1. Like reader it remembers its
// first error and then yields zeros.
type machine struct {
	e     *env
	r     reader
	stack [maxDepth]uint64
	depth int
	err   error
}

// run evaluates an expression. A register rule's expression starts with the
// CFA on its stack (DWARF 5, 6.4.2.3).
func (e *env) run(code []byte, pushCFA bool) (uint64, error) {
	m := machine{e: e, r: reader{b: code}}
	if pushCFA {
		m.push(e.cfa)
	}
	for n := 0; m.r.left() > 0 && m.err == nil; n++ {
		if n == maxOperations {
			return 0, unwind.ErrBadInfo
		}
		op := m.r.u8()
		if !m.operand(op) && !m.shuffle(op) && !m.unary(op) && !m.binary(op) && !m.control(op) {
			return 0, unwind.ErrBadInfo
		}
		if m.r.bad {
			return 0, unwind.ErrBadInfo
		}
	}
	v := m.pop()
	return v, m.err
}

func (m *machine) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *machine) push(v uint64) {
	if m.depth == maxDepth {
		m.fail(unwind.ErrBadInfo)
		return
	}
	m.stack[m.depth] = v
	m.depth++
}

func (m *machine) pop() uint64 {
	if m.depth == 0 {
		m.fail(unwind.ErrBadInfo)
		return 0
	}
	m.depth--
	return m.stack[m.depth]
}

// peek returns the entry i below the top.
func (m *machine) peek(i int) uint64 {
	if i >= m.depth {
		m.fail(unwind.ErrBadInfo)
		return 0
	}
	return m.stack[m.depth-1-i]
}

// pushed pushes the result of an operation that can fail.
func (m *machine) pushed(v uint64, err error) {
	if err != nil {
		m.fail(err)
		return
	}
	m.push(v)
}

// operand executes operations that push a constant or a register (DWARF 5,
// 2.5.1.1 and 2.5.1.2). operand and the functions below report whether they
// know op.
func (m *machine) operand(op uint8) bool {
	switch {
	case op >= opLit0 && op <= opLit31:
		m.push(uint64(op - opLit0))
	case op >= opBreg0 && op <= opBreg31:
		m.pushRegister(uint64(op - opBreg0))
	case op == opBregx:
		m.pushRegister(m.r.uleb())
	case op == opAddr:
		m.push(m.r.fixed(8))
	case op >= opConst1u && op <= opConst8s:
		n := 1 << ((op - opConst1u) / 2)
		if (op-opConst1u)%2 == 0 {
			m.push(m.r.fixed(n))
		} else {
			m.push(m.r.signed(n))
		}
	case op == opConstu:
		m.push(m.r.uleb())
	case op == opConsts:
		m.push(uint64(m.r.sleb()))
	default:
		return false
	}
	return true
}

func (m *machine) pushRegister(col uint64) {
	off := m.r.sleb()
	v, err := m.e.column(col)
	m.pushed(v+uint64(off), err)
}

// shuffle executes the stack operations (DWARF 5, 2.5.1.3).
func (m *machine) shuffle(op uint8) bool {
	switch op {
	case opDup:
		m.push(m.peek(0))
	case opDrop:
		m.pop()
	case opOver:
		m.push(m.peek(1))
	case opPick:
		m.push(m.peek(int(m.r.u8())))
	case opSwap:
		a, b := m.pop(), m.pop()
		m.push(a)
		m.push(b)
	case opRot: // the top becomes the third
		a, b, c := m.pop(), m.pop(), m.pop()
		m.push(a)
		m.push(c)
		m.push(b)
	case opDeref:
		m.pushed(m.e.load(m.pop()))
	case opDerefSize:
		n := int(m.r.u8())
		if n != 1 && n != 2 && n != 4 && n != 8 {
			m.fail(unwind.ErrBadInfo)
			return true
		}
		m.pushed(m.e.loadSize(m.pop(), n))
	case opCallFrameCFA:
		if !m.e.hasCFA { // the CFA cannot define itself
			m.fail(unwind.ErrBadInfo)
		}
		m.push(m.e.cfa)
	default:
		return false
	}
	return true
}

// unary executes operations on the top of the stack (DWARF 5, 2.5.1.4).
func (m *machine) unary(op uint8) bool {
	switch op {
	case opAbs:
		if v := m.pop(); int64(v) < 0 {
			m.push(-v)
		} else {
			m.push(v)
		}
	case opNeg:
		m.push(-m.pop())
	case opNot:
		m.push(^m.pop())
	case opPlusUconst:
		m.push(m.pop() + m.r.uleb())
	default:
		return false
	}
	return true
}

// binary executes operations on the two topmost entries (DWARF 5, 2.5.1.4 and
// 2.5.1.5). Comparisons and division are signed, the remainder is not (as in
// GCC's libgcc/unwind-dw2.c, execute_stack_op).
func (m *machine) binary(op uint8) bool {
	if op < opAnd || op > opNe || op == opNeg || op == opNot || op == opPlusUconst || op == opBra {
		return false
	}
	b, a := m.pop(), m.pop()
	if (op == opDiv || op == opMod) && b == 0 {
		m.fail(unwind.ErrBadInfo)
		return true
	}
	if op >= opEq {
		m.push(truth(compare(op, int64(a), int64(b))))
		return true
	}
	m.push(arithmetic(op, a, b))
	return true
}

func arithmetic(op uint8, a, b uint64) uint64 {
	switch op {
	case opAnd:
		return a & b
	case opDiv:
		return uint64(int64(a) / int64(b))
	case opMinus:
		return a - b
	case opMod:
		return a % b
	case opMul:
		return a * b
	case opOr:
		return a | b
	case opPlus:
		return a + b
	case opShl:
		return a << b
	case opShr:
		return a >> b
	case opShra:
		return uint64(int64(a) >> b)
	}
	return a ^ b // opXor
}

func compare(op uint8, a, b int64) bool {
	switch op {
	case opEq:
		return a == b
	case opGe:
		return a >= b
	case opGt:
		return a > b
	case opLe:
		return a <= b
	case opLt:
		return a < b
	}
	return a != b // opNe
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// control executes the control flow operations (DWARF 5, 2.5.1.5): a signed
// distance in 2 bytes, from behind the operation.
func (m *machine) control(op uint8) bool {
	switch op {
	case opNop:
		return true
	case opBra, opSkip:
		to := int64(m.r.signed(2)) + int64(m.r.pos)
		if op == opBra && m.pop() == 0 {
			return true
		}
		if to < 0 || to > int64(len(m.r.b)) {
			m.fail(unwind.ErrBadInfo)
			return true
		}
		m.r.pos = int(to)
		return true
	}
	return false
}
