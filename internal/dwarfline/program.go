package dwarfline

import "clrsnap/internal/arch"

// registers are the needed registers of the state machine that runs a line table (6.2.2).
type registers struct {
	address      arch.Addr
	opIndex      uint64
	file         uint64
	line, column uint64
}

// machine runs a program.
type machine struct {
	registers
	*header
	in        *reader
	ascending bool // since the sequence began
	highest   arch.Addr
	rows      bool
	pending   bool // a sequence has ended: the next opcode begins another
}

// Opcodes (7.22).
const (
	opCopy, opAdvancePC, opAdvanceLine, opSetFile, opSetColumn = 1, 2, 3, 4, 5
	opConstAddPC, opFixedAdvancePC                             = 8, 9

	opEndSequence, opSetAddress = 1, 2
)

// machine returns a machine that begins at an offset. buf is for a reader
// without a count of its effort; nil: machine makes a reader with a count.
func (t *Table) machine(h *header, at int64, buf []byte) *machine {
	m := &machine{header: h, in: &reader{src: t.line, free: buf, base: at, end: h.end}}
	if buf == nil {
		m.in = t.reader(t.line, at, h.end, 512)
	}
	m.reset()
	return m
}

func (m *machine) reset() {
	m.registers = registers{file: 1, line: 1}
	m.ascending, m.highest, m.rows = true, 0, false
}

// step executes one opcode. row reports whether the opcode adds a row to the table, ended whether it ends the
// sequence: then address is the first address behind the sequence. The registers are the row's.
func (m *machine) step() (row, ended bool, err error) {
	if m.pending {
		m.pending = false
		m.reset()
	}
	op, err := m.in.ReadByte()
	if err != nil {
		return false, false, err
	}
	switch {
	case op >= m.opcodeBase:
		adjusted := uint64(op - m.opcodeBase)
		m.advance(adjusted / uint64(m.lineRange))
		m.line += uint64(int64(m.lineBase) + int64(adjusted%uint64(m.lineRange)))
		return m.row(), false, nil
	case op == 0:
		return m.extended()
	}
	return m.standard(op)
}

func (m *machine) standard(op byte) (row, ended bool, err error) {
	var v uint64
	switch op {
	case opCopy:
		return m.row(), false, nil
	case opAdvancePC:
		if v, err = m.in.uleb(); err == nil {
			m.advance(v)
		}
	case opAdvanceLine:
		var n int64
		if n, err = m.in.sleb(); err == nil {
			m.line += uint64(n)
		}
	case opSetFile:
		m.file, err = m.in.uleb()
	case opSetColumn:
		m.column, err = m.in.uleb()
	case opConstAddPC:
		m.advance(uint64(255-m.opcodeBase) / uint64(m.lineRange))
	case opFixedAdvancePC:
		if v, err = m.in.fixed(2); err == nil {
			m.address += arch.Addr(v)
			m.opIndex = 0
		}
	default: // an opcode without effect on lines, or an unknown opcode
		for range m.lengths[op-1] {
			if _, err = m.in.uleb(); err != nil {
				break
			}
		}
	}
	return false, false, err
}

func (m *machine) extended() (row, ended bool, err error) {
	n, err := m.in.uleb()
	if err != nil {
		return false, false, err
	}
	if n == 0 {
		return false, false, malformed("an opcode of no bytes")
	}
	op, err := m.in.ReadByte()
	if err != nil {
		return false, false, err
	}
	n--
	switch {
	case op == opEndSequence:
		if err := m.in.skip(n); err != nil {
			return false, false, err
		}
		m.row()
		m.pending = true
		return false, true, nil
	case op == opSetAddress && n <= 8:
		v, err := m.in.fixed(int(n))
		m.address, m.opIndex = arch.Addr(v), 0
		return false, false, err
	}
	return false, false, m.in.skip(n)
}

// advance is an operation advance (6.2.5.1).
func (m *machine) advance(n uint64) {
	if m.maxOps <= 1 {
		m.address += arch.Addr(uint64(m.minInst) * n)
		return
	}
	sum := m.opIndex + n
	m.address += arch.Addr(uint64(m.minInst) * (sum / uint64(m.maxOps)))
	m.opIndex = sum % uint64(m.maxOps)
}

// row adds a row.
func (m *machine) row() bool {
	if m.rows && m.address < m.highest {
		m.ascending = false
	}
	m.rows, m.highest = true, m.address
	return true
}
