package ecma335

import "encoding/binary"

// A StateStore is where an async method notes the await at which it is going to wait.
type StateStore struct {
	At    uint32 // offset of the instruction in the IL
	State int32
}

// IL instructions (III.1.2.1): ldc.i4.m1 to ldc.i4.8, ldc.i4.s, ldc.i4; dup; stloc.0 to stloc.3, stloc.s, stloc;
// stfld.
const (
	opLdcMinus1, opLdc8   Opcode = 0x15, 0x1e
	opLdcShort, opLdc     Opcode = 0x1f, 0x20
	opDup                 Opcode = 0x25
	opStloc0, opStloc3    Opcode = 0x0a, 0x0d
	opStlocShort, opStloc Opcode = 0x13, 0xfe0e
	opStfld               Opcode = 0x7d
)

// StateStores returns the places where the IL of a MoveNext sets the state of the state machine, as the
// compilers of C# and Visual Basic write the code: a constant goes into a local variable and into a field.
func StateStores(il []byte) ([]StateStore, error) {
	var out []StateStore
	stage, state := 0, int32(0)
	for at := 0; at < len(il); {
		op, operand, next, err := instruction(il, at)
		if err != nil {
			return nil, err
		}
		switch {
		case stage == 1 && op == opDup:
			stage = 2
		case stage == 2 && (op >= opStloc0 && op <= opStloc3 || op == opStlocShort || op == opStloc):
			stage = 3
		case stage == 3 && op == opStfld:
			out = append(out, StateStore{uint32(at), state})
			stage = 0
		default:
			stage = 0
			if v, ok := constant(il, op, operand); ok {
				stage, state = 1, v
			}
		}
		at = next
	}
	return out, nil
}

// constant returns the number that an instruction loads.
func constant(il []byte, op Opcode, operand int) (int32, bool) {
	switch {
	case op >= opLdcMinus1 && op <= opLdc8:
		return int32(op) - int32(opLdcMinus1) - 1, true
	case op == opLdcShort:
		return int32(int8(il[operand])), true
	case op == opLdc:
		return int32(binary.LittleEndian.Uint32(il[operand:])), true
	}
	return 0, false
}
