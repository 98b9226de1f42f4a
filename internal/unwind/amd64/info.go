package amd64

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// Unwind codes: UWOP_… in src/coreclr/inc/win64unwind.h.
const (
	opPushNonvol    = 0
	opAllocLarge    = 1
	opAllocSmall    = 2
	opSetFPReg      = 3
	opSaveNonvol    = 4
	opSaveNonvolFar = 5
	opEpilog        = 6 // version 2; in version 1 a save of 64 bits of a vector register
	opSpare         = 7
	opSaveXMM       = 8
	opSaveXMMFar    = 9
	opPushMachFrame = 10
	opSetFPRegLarge = 11 // CoreCLR's own, Unix only
)

// slots is the number of 16-bit slots of an unwind code, including the code
// itself (UnwindOpExtraSlotTable in win64unwind.h). ALLOC_LARGE takes a further
// slot if its operand says so.
var slots = [...]int{
	opPushNonvol: 1, opAllocLarge: 2, opAllocSmall: 1, opSetFPReg: 1,
	opSaveNonvol: 2, opSaveNonvolFar: 3, opEpilog: 2, opSpare: 3,
	opSaveXMM: 2, opSaveXMMFar: 3, opPushMachFrame: 1, opSetFPRegLarge: 3,
}

const (
	flagChained = 4  // UNW_FLAG_CHAININFO
	maxChain    = 32 // UNWIND_CHAIN_LIMIT in unwinder.cpp
	headerSize  = 4  // UNWIND_INFO up to its codes
	entrySize   = 12 // RUNTIME_FUNCTION: begin, end, unwind info, all relative to the image base
)

// effect is the prolog's action for an unwind code.
type effect uint8

const (
	pushed    effect = iota // reg was pushed
	allocated               // rsp was lowered by arg bytes
	framed                  // reg became the frame register: rsp at that moment + arg
	saved                   // reg was stored arg bytes above the frame's base
	machine                 // the CPU pushed a machine frame, arg bytes of error code on top
)

// op is one unwind code, decoded.
type op struct {
	what effect
	reg  uint8
	done bool // the prolog had executed the code when control reached the address
	arg  int64
	at   uint32 // offset in the function of the instruction after the action
}

// header is the fixed part of UNWIND_INFO (struct _UNWIND_INFO, win64unwind.h).
type header struct {
	flags    uint8
	prolog   uint32 // size of the prolog in bytes
	codes    int    // number of 16-bit slots
	frameReg uint8  // 0: none
	frameOff int64  // rsp + frameOff = frame register, in bytes
}

func parseHeader(b [headerSize]byte) (header, error) {
	h := header{
		flags: b[0] >> 3, prolog: uint32(b[1]), codes: int(b[2]),
		frameReg: b[3] & 15, frameOff: int64(b[3]>>4) * 16,
	}
	if v := b[0] & 7; v != 1 && v != 2 {
		return h, fmt.Errorf("%w: version %d", unwind.ErrBadInfo, v)
	}
	return h, nil
}

// readInfo reads the unwind information at addr and appends its codes, latest
// action of the prolog first. next is the information to which this information
// is chained, or 0.
func readInfo(mem target.Memory, base, addr arch.Addr, ops []op) (h header, _ []op, next arch.Addr, err error) {
	var fixed [headerSize]byte
	if err := mem.ReadMemory(fixed[:], addr); err != nil {
		return h, nil, 0, fmt.Errorf("%w: %w", unwind.ErrNoInfo, err)
	}
	if h, err = parseHeader(fixed); err != nil {
		return h, nil, 0, err
	}
	size := 2 * h.codes
	chain := 2 * (h.codes + h.codes&1) // the part after the codes is aligned to 4 bytes
	if h.flags&flagChained != 0 {
		size = chain + entrySize
	}
	var buf [2*256 + entrySize]byte
	b := buf[:size]
	if size > 0 {
		if err := readAt(mem, b, addr, headerSize); err != nil {
			return h, nil, 0, fmt.Errorf("%w: %w", unwind.ErrNoInfo, err)
		}
	}
	if ops, err = h.decode(b[:2*h.codes], ops); err != nil {
		return h, nil, 0, err
	}
	if h.flags&flagChained != 0 {
		rva := binary.LittleEndian.Uint32(b[chain+8:])
		// Bit 0 would mean an indirection through another table entry; neither
		// the JIT nor crossgen2 uses indirections. rva 0 is the image's header.
		n, ok := base.Add(uint64(rva))
		if !ok || rva == 0 || rva&1 != 0 {
			return h, nil, 0, fmt.Errorf("%w: chained to %#x", unwind.ErrBadInfo, rva)
		}
		next = n
	}
	return h, ops, next, nil
}

// readAt reads at addr+off and never wraps round the address space.
func readAt(mem target.Memory, p []byte, addr arch.Addr, off uint64) error {
	a, ok := addr.Add(off)
	if !ok {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	return mem.ReadMemory(p, a)
}

func (h *header) decode(b []byte, ops []op) ([]op, error) {
	for len(b) > 0 {
		code, info := b[1]&15, b[1]>>4
		if int(code) >= len(slots) {
			return nil, fmt.Errorf("%w: unwind code %d", unwind.ErrBadInfo, code)
		}
		n := 2 * slots[code]
		if code == opAllocLarge && info != 0 {
			n += 2
		}
		if n > len(b) {
			return nil, fmt.Errorf("%w: unwind code %d is cut off", unwind.ErrBadInfo, code)
		}
		o := op{at: uint32(b[0])}
		if h.decodeOne(&o, code, info, b[2:n]) {
			if err := o.check(); err != nil {
				return nil, err
			}
			ops = append(ops, o)
		}
		b = b[n:]
	}
	return ops, nil
}

// decodeOne fills in o and reports whether the code concerns us.
func (h *header) decodeOne(o *op, code, info uint8, arg []byte) bool {
	switch code {
	case opPushNonvol:
		o.what, o.reg = pushed, info
	case opAllocSmall:
		o.what, o.arg = allocated, int64(info)*8+8
	case opAllocLarge:
		o.what = allocated
		if o.arg = operand(arg); info == 0 {
			o.arg *= 8
		}
	case opSetFPReg:
		o.what, o.reg, o.arg = framed, h.frameReg, h.frameOff
	case opSetFPRegLarge:
		o.what, o.reg, o.arg = framed, h.frameReg, operand(arg)*16
	case opSaveNonvol:
		o.what, o.reg, o.arg = saved, info, operand(arg)*8
	case opSaveNonvolFar:
		o.what, o.reg, o.arg = saved, info, operand(arg)
	case opPushMachFrame:
		o.what = machine
		if info != 0 {
			o.arg = 8
		}
	default: // vector registers, epilog positions, spare
		return false
	}
	return true
}

// operand is the number in the slots after a code: one slot or two.
func operand(b []byte) int64 {
	if len(b) == 2 {
		return int64(binary.LittleEndian.Uint16(b))
	}
	return int64(binary.LittleEndian.Uint32(b))
}

// check refuses actions that no prolog can take.
func (o *op) check() error {
	switch {
	case (o.what == pushed || o.what == saved) && o.reg == arch.RSP:
		return fmt.Errorf("%w: it saves rsp", unwind.ErrBadInfo)
	case o.what == framed && (o.reg == arch.RAX || o.reg == arch.RSP):
		// 0, the number of rax, stands for «no frame register».
		return fmt.Errorf("%w: register %d cannot be the frame register", unwind.ErrBadInfo, o.reg)
	}
	return nil
}
