package waits

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// TestMovedReferences: when the collector changes the stack of a thread that has not run, the
// change is noticed, and the next reading uses the changed stack.
func TestMovedReferences(t *testing.T) {
	const base = arch.Addr(0x7000_0000_0000)
	mem := clrtest.Words{}
	mem.Zero(base, 64)
	mem[base+16] = 0x1234_5678
	data := make([]byte, 64)
	if err := mem.ReadMemory(data, base); err != nil {
		t.Fatal(err)
	}
	still := true
	s := &Subject{
		Frames: []snapshot.Frame{{SP: uint64(base + 8)}, {SP: uint64(base + 32)}, {SP: uint64(base + 48)}},
		Stack:  &target.Stack{Region: target.Region{Base: base, Data: data}},
		Still:  func() bool { return still },
	}
	captured := s.Stack
	r, p := &Reader{Live: mem}, primitive{kind: snapshot.LockEnter}
	if !r.same(s, p) {
		t.Error("nothing has changed")
	}
	mem[base+40] = 1 // of the primitive's caller
	mem[base] = 1    // below the stack pointer
	if !r.same(s, p) {
		t.Error("nothing that matters has changed")
	}
	mem[base+16] = 0x1234_0000
	if r.same(s, p) {
		t.Error("a reference has changed")
	}
	still = false
	if r.copyAgain(s, p); s.Stack != captured {
		t.Error("the stack of a thread that may have run is copied again")
	}
	still = true
	r.copyAgain(s, p)
	if !r.same(s, p) {
		t.Error("the stack was not copied again")
	}
	if v, ok := captured.Uint64(base + 16); !ok || v != 0x1234_5678 {
		t.Errorf("the capture has changed: %#x", v)
	}
}
