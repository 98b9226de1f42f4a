package gcinfo

import mathbits "math/bits"

// SlotBase is the base of a stack slot's offset.
type SlotBase uint8

// The bases, by their numbers (gcinfotypes.h, enum GcStackSlotBase).
const (
	FromCallerSP SlotBase = iota // the stack pointer of the caller, after the return
	FromSP                       // the frame's own stack pointer
	FromRegister                 // the frame register
)

// Slot is a place on the stack with the address of an object. While the frame exists, the garbage collector keeps the
// object alive and, after moving the object, puts the new address into the slot.
type Slot struct {
	Base   SlotBase
	Offset int32 // bytes
}

// Flags of the encoded slots.
const slotFlagBits = 2 // 0: the slot has the address of an object's beginning, and does not pin it

// Bits of the fields behind the header (gcinfotypes.h, AMD64GcInfoEncoding).
const (
	editAndContinueBits = 4
	stackAreaBits       = 3
	safePointBits       = 2
	rangeCountBits      = 1
	rangeBits           = 6
	registerSlotBits    = 2
	stackSlotBits       = 2
	untrackedBits       = 1
	slotRegisterBits    = 3
	slotRegisterDelta   = 2
	slotOffsetDelta     = 4
	slotBaseBits        = 2
)

// Bounds on hostile bytes.
const (
	maxSafePoints = 1 << 16
	maxRanges     = 1 << 12
	maxSlots      = 1 << 12
)

// Untracked returns the stack slots that hold the addresses of objects at every instruction behind the prolog: the
// compiler does not track their use. Optimised code has few untracked slots. b has the first bytes of the GC info; a
// short b is an error.
func Untracked(b []byte, v Version) ([]Slot, error) {
	h, err := Decode(b, v)
	if err != nil {
		return nil, err
	}
	r := bits{b: b}
	skipHeader(&r, v)
	points := r.number(safePointBits)
	ranges := uint32(0)
	if b[0]&1 != 0 { // the short form has none
		ranges = r.number(rangeCountBits)
	}
	if r.bad || points > maxSafePoints || ranges > maxRanges {
		return nil, ErrCorrupt
	}
	r.at += uint(points) * uint(mathbits.Len32(h.CodeLength-1))
	for range ranges {
		r.number(rangeBits)
		r.number(rangeBits)
	}
	registers, tracked, untracked := uint32(0), uint32(0), uint32(0)
	if r.take(1) != 0 {
		registers = r.number(registerSlotBits)
	}
	if r.take(1) != 0 {
		tracked, untracked = r.number(stackSlotBits), r.number(untrackedBits)
	}
	if r.bad || registers > maxSlots || tracked > maxSlots || untracked > maxSlots {
		return nil, ErrCorrupt
	}
	r.registers(registers)
	r.slots(tracked)
	out := r.slots(untracked)
	if r.bad {
		return nil, ErrCorrupt
	}
	return out, nil
}

// skipHeader reads all of a header.
func skipHeader(r *bits, v Version) {
	decode(r, v)
	if r.b[0]&1 == 0 {
		return
	}
	flags := (&bits{b: r.b, at: 1}).take(flagBits)
	if flags&flagEditAndContinue != 0 {
		r.number(editAndContinueBits)
	}
	if flags&flagReversePInvoke != 0 {
		r.number(slotBits)
	}
	r.number(stackAreaBits)
}

// registers passes over the registers that hold addresses of objects.
func (r *bits) registers(n uint32) {
	flags := uint32(1)
	for range n {
		if flags != 0 {
			r.number(slotRegisterBits)
			flags = r.take(slotFlagBits)
		} else {
			r.number(slotRegisterDelta)
		}
	}
}

// slots reads a list of n stack slots. Behind a slot without flags, only the distance to the next slot is encoded.
func (r *bits) slots(n uint32) []Slot {
	var out []Slot
	flags, offset := uint32(1), int32(0)
	for range n {
		base := SlotBase(r.take(slotBaseBits))
		if flags != 0 {
			offset = r.signed(slotBits)
			flags = r.take(slotFlagBits)
		} else {
			offset += int32(r.number(slotOffsetDelta))
		}
		if r.bad || base > FromRegister {
			r.bad = true
			return nil
		}
		if flags == 0 {
			out = append(out, Slot{base, offset * slotSize})
		}
	}
	return out
}
