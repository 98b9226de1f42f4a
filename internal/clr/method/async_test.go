package method

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/types"
)

// TestAsyncMethodData: the AsyncMethodData lies behind the MethodDesc and the MethodDesc's slots.
func TestAsyncMethodData(t *testing.T) {
	const flags = Async(0x12)
	for _, tt := range []struct {
		flags uint16
		at    arch.Addr
	}{
		{0x40, 16},
		{0x40 | flagNonVtableSlot, 24},
		{0x40 | flagMethodImpl, 32},
		{0x40 | flagNativeCodeSlot, 24},
		{0x40 | flagNonVtableSlot | flagMethodImpl | flagNativeCodeSlot, 48},
		{0x40 | uint16(FCall), 24},
		{0x40 | uint16(PInvoke), 56},
		{0x40 | uint16(EEImpl), 32},
		{0x40 | uint16(ArrayMethod), 32},
		{0x40 | uint16(Instantiated) | flagNativeCodeSlot, 48},
	} {
		mem, d := clrtest.Words{}, clrtest.Descriptor(t, clrtest.Net11)
		ts, err := types.New(mem, d)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(mem, d, ts)
		if err != nil {
			t.Fatal(err)
		}
		mem.Uint32(descAt+tt.at, uint32(flags)) // nothing else is there
		if got, err := r.asyncOf(descAt, tt.flags); got != flags || err != nil {
			t.Errorf("flags %#x: %#x, %v, want %#x", tt.flags, got, err, flags)
		}
		if got, err := r.asyncOf(descAt, tt.flags&^0x40); got != 0 || err != nil {
			t.Errorf("flags %#x, without the data: %#x, %v", tt.flags, got, err)
		}
	}
	old, _ := newReader8(t)
	if got, err := old.asyncOf(descAt, 0x40); got != 0 || err != nil {
		t.Errorf(".NET 8: %#x, %v", got, err)
	}
}

// TestThunk: a method that returns a task has two MethodDescs. DoStackSnapshot skips the MethodDesc that the runtime
// has made.
func TestThunk(t *testing.T) {
	for a, want := range map[Async]bool{
		0: false, 0x1: false, 0x2: false, 0x5: false, 0xd: false, 0x15: false, 0x1d: false, 0x12: true, 0x1a: true,
	} {
		if got := a.Thunk(); got != want {
			t.Errorf("%#x: %t", a, got)
		}
	}
}
