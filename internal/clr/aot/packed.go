package aot

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// Commands of the packed data, in the lower bits of a byte. The upper bits are a number, or say how many bytes with a
// larger number follow.
const (
	packedCopy = iota
	packedZeros
	packedDistance // of a fixup
	packedPointer  // likewise
	packedDistances
	packedPointers

	packedBits      = 3
	packedShort     = 28 // the largest number within the byte
	bytesOfDistance = 4
	bytesOfPointer  = 8
)

// eachPacked visits the pointers in packed data at an address: where a pointer comes to lie, and where the pointer
// leads.
func eachPacked(b []byte, at arch.Addr, visit func(at, to arch.Addr)) {
	r := reader{b: b}
	distance := func() arch.Addr {
		from := at + arch.Addr(r.pos)
		return from + arch.Addr(int64(int32(r.u32())))
	}
	to := distance()
	fixups := int(min(r.u32(), uint32(len(b))))
	fixup := func(i int) (arch.Addr, bool) {
		off := uint64(fixups) + bytesOfDistance*uint64(i)
		if off+bytesOfDistance > uint64(len(b)) {
			return 0, false
		}
		return at + arch.Addr(off) + arch.Addr(int64(int32(binary.LittleEndian.Uint32(b[off:])))), true
	}
	for r.pos < fixups && !r.bad {
		command := int(r.u8())
		number := command >> packedBits
		if more := number - packedShort; more > 0 {
			number = packedShort
			for i := range more {
				number += int(r.u8()) << (8 * i)
			}
		}
		switch command & (1<<packedBits - 1) {
		case packedCopy:
			r.take(uint32(number))
			to += arch.Addr(number)
		case packedZeros:
			to += arch.Addr(number)
		case packedDistance:
			to += bytesOfDistance
		case packedPointer:
			if value, ok := fixup(number); ok {
				visit(to, value)
			}
			to += bytesOfPointer
		case packedDistances:
			r.take(bytesOfDistance * uint32(number))
			to += bytesOfDistance * arch.Addr(number)
		case packedPointers:
			for range number {
				if value := distance(); !r.bad {
					visit(to, value)
				}
				if to += bytesOfPointer; r.bad {
					return
				}
			}
		default:
			return
		}
	}
}
