package ecma335

import "encoding/binary"

// MaxBody bounds the IL of one method, in bytes. The longest methods that compilers generate
// have some hundred thousand.
const MaxBody = 4 << 20

// MaxBodyHeader is the largest number of bytes before a method's IL (II.25.4.3).
const MaxBodyHeader = 12

// BodyHeader returns the offset of a method's IL behind the start of the body, and its size in
// bytes (II.25.4). b holds the first MaxBodyHeader bytes of the body, or fewer if the body is
// shorter.
func BodyHeader(b []byte) (at, size uint32, err error) {
	const tiny, fat, format = 2, 3, 3
	switch {
	case len(b) > 0 && b[0]&format == tiny:
		return 1, uint32(b[0] >> 2), nil
	case len(b) >= MaxBodyHeader && b[0]&format == fat && b[1]>>4 == MaxBodyHeader/4:
		size = binary.LittleEndian.Uint32(b[4:])
		if size > MaxBody {
			return 0, 0, malformed("a method of %d bytes of IL", size)
		}
		return MaxBodyHeader, size, nil
	}
	return 0, 0, malformed("% x begins no method", b[:min(len(b), 4)])
}

// Opcode is an IL instruction's number; for a two-byte instruction, 0xfe00 and the second byte
// (III.1.2.1).
type Opcode uint16

// The instructions with the token of a method or of a call site's signature (III.3 and III.4).
const (
	OpJmp        Opcode = 0x27
	OpCall       Opcode = 0x28
	OpCalli      Opcode = 0x29
	OpCallvirt   Opcode = 0x6f
	OpNewobj     Opcode = 0x73
	OpLdftn      Opcode = 0xfe06
	OpLdvirtftn  Opcode = 0xfe07
	opSwitch     Opcode = 0x45
	opPrefix            = 0xfe
	prefixTail   Opcode = 0xfe14
	prefixConstr Opcode = 0xfe16
)

// A Call is an instruction that calls a method, or takes its address.
type Call struct {
	At          uint32 // offset in the IL, of the prefixes if there are any
	Op          Opcode
	Token       Token // MethodDef, MemberRef or MethodSpec; of OpCalli a StandAloneSig
	Constrained bool  // has a constrained. prefix: another type's method may be called
}

// Calls returns the calls in a method's IL.
func Calls(il []byte) ([]Call, error) {
	var out []Call
	start, prefixed, constrained := 0, false, false
	for at := 0; at < len(il); {
		if !prefixed {
			start, constrained = at, false
		}
		op, operand, next, err := instruction(il, at)
		if err != nil {
			return nil, err
		}
		prefixed = isPrefix(op)
		constrained = constrained || op == prefixConstr
		switch op {
		case OpJmp, OpCall, OpCalli, OpCallvirt, OpNewobj, OpLdftn, OpLdvirtftn:
			out = append(out, Call{uint32(start), op, Token(binary.LittleEndian.Uint32(il[operand:])), constrained})
		}
		at = next
	}
	return out, nil
}

func isPrefix(op Opcode) bool {
	switch op {
	case 0xfe12, 0xfe13, prefixTail, prefixConstr, 0xfe19, 0xfe1e:
		return true
	}
	return false
}

// instruction decodes the instruction at an offset, and returns the offsets of its operand and of
// the next instruction.
func instruction(il []byte, at int) (op Opcode, operand, next int, err error) {
	op, operand = Opcode(il[at]), at+1
	kinds := &operandSizes
	if op == opPrefix {
		if operand == len(il) {
			return 0, 0, 0, malformed("IL ends in the middle of an instruction")
		}
		op, operand = opPrefix<<8|Opcode(il[operand]), operand+1
		kinds = &operandSizes2
	}
	size := int(kinds[op&0xff])
	if size == invalid {
		return 0, 0, 0, malformed("%#x is no IL instruction", uint16(op))
	}
	left := len(il) - operand
	if op == opSwitch && left >= 4 {
		n := binary.LittleEndian.Uint32(il[operand:])
		if uint64(n) > uint64(left)/4 {
			return 0, 0, 0, malformed("a switch with %d targets in %d bytes", n, left)
		}
		size += 4 * int(n)
	}
	if size > left {
		return 0, 0, 0, malformed("IL ends in the middle of an instruction")
	}
	return op, operand, operand + size, nil
}

// invalid marks numbers that belong to no instruction.
const invalid = 0xff

// The bytes of each instruction's operand (VI.C.2, opcode.def). For a switch: the bytes of the
// number of targets.
var (
	operandSizes = sizes(map[int][]span{
		0: {
			{0x00, 0x0d}, {0x14, 0x1e}, {0x25, 0x26}, {0x2a, 0x2a}, {0x46, 0x6e}, {0x76, 0x76}, {0x7a, 0x7a},
			{0x82, 0x8b}, {0x8e, 0x8e}, {0x90, 0xa2}, {0xb3, 0xba}, {0xc3, 0xc3}, {0xd1, 0xdc}, {0xdf, 0xe0},
		},
		1: {{0x0e, 0x13}, {0x1f, 0x1f}, {0x2b, 0x37}, {0xde, 0xde}},
		4: {
			{0x20, 0x20}, {0x22, 0x22}, {0x27, 0x29}, {0x38, 0x45}, {0x6f, 0x75}, {0x79, 0x79}, {0x7b, 0x81},
			{0x8c, 0x8d}, {0x8f, 0x8f}, {0xa3, 0xa5}, {0xc2, 0xc2}, {0xc6, 0xc6}, {0xd0, 0xd0}, {0xdd, 0xdd},
		},
		8: {{0x21, 0x21}, {0x23, 0x23}},
	})
	operandSizes2 = sizes(map[int][]span{
		0: {{0x00, 0x05}, {0x0f, 0x0f}, {0x11, 0x11}, {0x13, 0x14}, {0x17, 0x18}, {0x1a, 0x1a}, {0x1d, 0x1e}},
		1: {{0x12, 0x12}, {0x19, 0x19}},
		2: {{0x09, 0x0e}},
		4: {{0x06, 0x07}, {0x15, 0x16}, {0x1c, 0x1c}},
	})
)

type span struct{ first, last int }

func sizes(of map[int][]span) (out [256]byte) {
	for i := range out {
		out[i] = invalid
	}
	for size, spans := range of {
		for _, s := range spans {
			for op := s.first; op <= s.last; op++ {
				out[op] = byte(size)
			}
		}
	}
	return out
}
