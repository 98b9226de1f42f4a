package ilmap

import (
	"errors"
	"slices"
	"testing"
)

// writeNumber appends a number for nibbles.number.
func writeNumber(out []byte, v uint32) []byte {
	var digits []byte
	for more := byte(0); ; more = 8 {
		digits = append(digits, byte(v&7)|more)
		if v >>= 3; v == 0 {
			break
		}
	}
	slices.Reverse(digits)
	return append(out, digits...)
}

// packNibbles puts two nibbles into a byte, the first in the low half.
func packNibbles(n []byte) []byte {
	out := make([]byte, (len(n)+1)/2)
	for i, v := range n {
		out[i/2] |= v << (4 * (i % 2))
	}
	return out
}

func encodeVariables(numbers ...uint32) []byte {
	var n []byte
	for _, v := range numbers {
		n = writeNumber(n, v)
	}
	return packNibbles(n)
}

const (
	biased        = 4 // variable 0 in the encoding
	contextBiased = 1
)

func TestVariables(t *testing.T) {
	b := encodeVariables(6,
		10, 90, biased+2, inTwoRegisters, 1, 2,
		10, 20, biased, inRegister, 3, // this in rbx, in [10, 30)
		30, 60, biased, onStack, 5, 17, // this at rbp-8, in [30, 90)
		5, 100, contextBiased, onStack, 4, 64, // the context at rsp+32
		5, 100, biased, onStackByRef, 4, 64,
		5, 100, biased, inRegisterAndStack, 4, 4, 64,
	)
	for _, tt := range []struct {
		number uint32
		want   []Variable
	}{
		{ThisVariable, []Variable{
			{Start: 10, End: 30, Register: 3},
			{Start: 30, End: 90, Register: 5, OnStack: true, Offset: -8},
		}},
		{ContextVariable, []Variable{{Start: 5, End: 105, Register: 4, OnStack: true, Offset: 32}}},
		{2, nil}, {7, nil},
	} {
		if got, err := variables(b, tt.number, form{}); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%d: %+v, %v, want %+v", int32(tt.number), got, err, tt.want)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":                 nil,
		"more than fit":           encodeVariables(1000),
		"an unknown kind":         encodeVariables(1, 0, 9, biased, 11, 0, 0, 0),
		"an end before its start": encodeVariables(1, 100, 0xffff_ffff, biased, inRegister, 0),
	} {
		if got, err := variables(b, ThisVariable, form{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestVariables11: from .NET 11 on, the number comes first, and two more numbers stand for no variable of the method.
func TestVariables11(t *testing.T) {
	b := encodeVariables(3,
		6, 0, 40, inRegister, 7, // this in rdi, in [0, 40)
		6, 40, 412, onStack, 5, 17, // this at rbp-8, in [40, 452)
		3, 40, 412, onStack, 5, 33,
	)
	for number, want := range map[uint32][]Variable{
		ThisVariable: {
			{Start: 0, End: 40, Register: 7}, {Start: 40, End: 452, Register: 5, OnStack: true, Offset: -8},
		},
		ContextVariable: {{Start: 40, End: 452, Register: 5, OnStack: true, Offset: -16}},
		1:               nil,
	} {
		if got, err := variables(b, number, form{fat: true}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d: %+v, %v, want %+v", int32(number), got, err, want)
		}
	}
}

func FuzzVariables(f *testing.F) {
	f.Add(encodeVariables(1, 10, 20, biased, onStack, 5, 17), false)
	f.Add(encodeVariables(1, 6, 10, 20, onStack, 5, 17), true)
	f.Fuzz(func(t *testing.T, b []byte, fat bool) {
		got, err := variables(b, ThisVariable, form{fat: fat})
		for _, v := range got {
			if err != nil || v.End < v.Start {
				t.Errorf("%+v, %v", v, err)
			}
		}
	})
}
