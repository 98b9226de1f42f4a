package session

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// TestSameCalls: a thread is in the same calls only if all calls return to the same places.
func TestSameCalls(t *testing.T) {
	const sp, base = 4, 0x1000
	frames := []snapshot.Frame{{IP: 0x10, SP: base}, {IP: 0x20, SP: base + 0x20}, {IP: 0x30, SP: base + 0x40}}
	capture := func(change func(c *target.Capture, data []byte)) *target.Capture {
		data := make([]byte, 0x60)
		binary.LittleEndian.PutUint64(data[0x18:], 0x20)
		binary.LittleEndian.PutUint64(data[0x38:], 0x30)
		c := &target.Capture{SyscallNr: 202}
		c.Context.IP, c.Context.Regs[sp] = 0x10, base
		if change != nil {
			change(c, data)
		}
		c.Stack.Region = target.Region{Base: arch.Addr(base), Data: data}
		return c
	}
	for name, tt := range map[string]struct {
		change func(c *target.Capture, data []byte)
		want   bool
	}{
		"as before":           {nil, true},
		"other locals":        {func(_ *target.Capture, data []byte) { data[0x28]++ }, true},
		"another caller":      {func(_ *target.Capture, data []byte) { data[0x38]++ }, false},
		"another instruction": {func(c *target.Capture, _ []byte) { c.Context.IP++ }, false},
		"a deeper stack":      {func(c *target.Capture, _ []byte) { c.Context.Regs[sp] -= 16 }, false},
		"another system call": {func(c *target.Capture, _ []byte) { c.SyscallNr = 1 }, false},
	} {
		if got := sameCalls(frames, sp, capture(nil), capture(tt.change)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if sameCalls(append(frames, snapshot.Frame{IP: 0x40, SP: base + 0x50}), sp, capture(nil), capture(nil)) {
		t.Error("a frame whose address nothing returns to")
	}
}
