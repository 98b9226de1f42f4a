package awaits

import (
	"slices"
	"testing"

	"clrsnap/internal/arch"
)

// TestReported: a state machine is on a stack once, its box in each of the frames that have called
// the MoveNext.
func TestReported(t *testing.T) {
	moves, box := &Code{table: 0x100, known: true}, &Code{runner: true, box: true, known: true}
	var a Asyncs
	a.Begin()
	for i, f := range []struct {
		code     *Code
		argument arch.Addr
		is       bool
	}{
		{nil, 0x10, false}, {moves, 0x20, true}, {box, 0x18, true}, {box, 0x18, true}, {moves, 0x20, true},
		{moves, 0, true}, {moves, 0x30, true}, {&Code{table: 0x100}, 0x40, false},
	} {
		if is := a.Reported(f.code, i, f.argument); is != f.is {
			t.Errorf("frame %d: %v", i, is)
		}
	}
	want := []Site{
		{Below: 2, Argument: 0x20, Table: 0x100, resumed: true}, {Below: 2, Argument: 0x18, of: 0x100},
		{Below: 2, Argument: 0x18, of: 0x100},
		{Below: 7, Argument: 0x30, Table: 0x100},
	}
	if !slices.Equal(a.Sites, want) {
		t.Errorf("%+v", a.Sites)
	}
}

// TestCopiedWords: only the copied words can be read.
func TestCopiedWords(t *testing.T) {
	m := copiedWords{0x10: 0x0807060504030201, 0x18: 0x100f0e0d0c0b0a09, 0x28: 1}
	b := make([]byte, 10)
	if err := m.ReadMemory(b, 0x13); err != nil || !slices.Equal(b, []byte{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}) {
		t.Errorf("%v, %v", b, err)
	}
	for _, at := range []arch.Addr{0x8, 0xf, 0x17, 0x20, ^arch.Addr(3)} {
		if err := m.ReadMemory(b, at); err == nil {
			t.Errorf("%v can be read", at)
		}
	}
}
