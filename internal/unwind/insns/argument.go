package insns

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// ThirdArgument returns the constant that code passes as the third argument of its first call; false: the argument is
// not a constant, or the code may not reach the call.
func ThirdArgument(code []byte) (v uint32, ok bool) {
	for {
		in, whole := decode(code)
		switch {
		case !whole:
			return 0, false
		case in.isCall():
			return v, ok
		case in.flow() != flowOn:
			return 0, false
		case !in.vector && in.op == 0xb8+uint16(arch.RDX) && in.rex&rexB == 0 &&
			len(in.imm) == 4: // mov edx, a constant
			v, ok = binary.LittleEndian.Uint32(in.imm), true
		case in.changes().Has(arch.RDX):
			ok = false
		}
		code = code[in.length:]
	}
}
