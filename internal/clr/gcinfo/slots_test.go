package gcinfo

import (
	"errors"
	mathbits "math/bits"
	"slices"
	"testing"

	"clrsnap/internal/arch"
)

// An encodedSlot is a stack slot with its flags.
type encodedSlot struct {
	Slot
	flags uint32
}

func (w *bitWriter) slots(list []encodedSlot) {
	flags, offset := uint32(1), int32(0)
	for _, s := range list {
		w.put(uint32(s.Base), slotBaseBits)
		if flags != 0 {
			w.signed(s.Offset/slotSize, slotBits)
			w.put(s.flags, slotFlagBits)
			flags = s.flags
		} else {
			w.number(uint32(s.Offset/slotSize-offset), slotOffsetDelta)
		}
		offset = s.Offset / slotSize
	}
}

// withSlots encodes a header and the rest up to the end of the slots.
func (s *sketch) withSlots(points, ranges, registers int, tracked, untracked []encodedSlot) []byte {
	w := bitWriter{b: s.encode()}
	w.at = uint(len(w.b)) * 8
	r := bits{b: w.b}
	decode(&r, s.v)
	w.b, w.at = w.b[:(r.at+7)/8], r.at // without the bits that encode puts behind the header
	if r.at%8 != 0 {
		w.b[r.at/8] &= 1<<(r.at%8) - 1
	}
	if s.flags&flagEditAndContinue != 0 {
		w.number(3, editAndContinueBits)
	}
	if s.flags&flagReversePInvoke != 0 {
		w.signed(-9, slotBits)
	}
	w.number(2, stackAreaBits)
	w.number(uint32(points), safePointBits)
	w.number(uint32(ranges), rangeCountBits)
	for i := range points {
		w.put(uint32(i), uint(mathbits.Len32(s.length-1)))
	}
	for range ranges {
		w.number(70, rangeBits)
		w.number(5, rangeBits)
	}
	w.put(1, 1)
	w.number(uint32(registers), registerSlotBits)
	w.put(1, 1)
	w.number(uint32(len(tracked)), stackSlotBits)
	w.number(uint32(len(untracked)), untrackedBits)
	for i := range registers {
		if i == 0 {
			w.number(3, slotRegisterBits)
			w.put(0, slotFlagBits)
		} else {
			w.number(0, slotRegisterDelta)
		}
	}
	w.slots(tracked)
	w.slots(untracked)
	return w.b
}

func TestUntracked(t *testing.T) {
	this := encodedSlot{Slot{FromRegister, -8}, 0}
	interior := encodedSlot{Slot{FromRegister, -16}, 1}
	near, far := encodedSlot{Slot{FromSP, 0}, 0}, encodedSlot{Slot{FromCallerSP, 1024}, 0}
	s := sketch{v: 4, length: 300, flags: flagBaseRegister, register: arch.RBP}
	old := sketch{v: 2, length: 300, context: This, prolog: 9, slot: -40,
		flags: flagReversePInvoke | flagEditAndContinue}
	even := s // offsets of safe points have the bits of the greatest offset: the length minus one
	even.length = 256
	for _, tt := range []struct {
		name string
		b    []byte
		v    Version
		want []Slot
	}{
		{"one", s.withSlots(0, 0, 0, nil, []encodedSlot{this}), 4, []Slot{this.Slot}},
		{"behind tracked ones", s.withSlots(3, 2, 2, []encodedSlot{interior, this}, []encodedSlot{near}), 4,
			[]Slot{near.Slot}},
		{"length of a power of two", even.withSlots(5, 2, 2, []encodedSlot{interior, this}, []encodedSlot{near}), 4,
			[]Slot{near.Slot}},
		{"interior pointers left out", s.withSlots(1, 0, 1, nil, []encodedSlot{interior, this, far}), 4,
			[]Slot{this.Slot, far.Slot}},
		{"of .NET 8", old.withSlots(5, 0, 0, []encodedSlot{far}, []encodedSlot{far}), 2, []Slot{far.Slot}},
		{"none", s.withSlots(9, 1, 4, []encodedSlot{this}, nil), 4, nil},
	} {
		got, err := Untracked(tt.b, tt.v)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
		if _, err := Untracked(tt.b[:len(tt.b)-1], tt.v); len(tt.want) > 0 && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, cut off: %v", tt.name, err)
		}
	}
}

func FuzzUntracked(f *testing.F) {
	s := sketch{v: 4, length: 300, flags: flagBaseRegister, register: arch.RBP}
	f.Add(s.withSlots(3, 2, 2, []encodedSlot{{Slot{FromRegister, -16}, 1}}, []encodedSlot{{Slot{FromSP, 64}, 0}}),
		uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, v uint8) {
		slots, err := Untracked(b, Version(v))
		if err != nil && slots != nil || len(slots) > maxSlots {
			t.Errorf("%d slots, %v", len(slots), err)
		}
	})
}
