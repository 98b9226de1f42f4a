package thread

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// The trackers of .NET 8 are in the runtime's memory, beside the stack.
func TestTrackedException(t *testing.T) {
	const trackerAt = arch.Addr(0x70000)
	low, high := base+0x100, base+0x200
	for _, tt := range []struct {
		name            string
		thread          arch.Addr
		entered, flags  uint32
		low, high       arch.Addr
		want            Exception
		notToBeBelieved bool
	}{
		{"first pass", threadAt, 0, 0x2000, low, high, Exception{}, false},
		{"a filter runs", threadAt, 1, 0x2000, low, high, Exception{InHandler: true}, false},
		{"second pass", threadAt, 0, 0x2004, low, high, Exception{Unwinding: true, Low: low, High: high}, false},
		{"a catch block runs", threadAt, 1, 0x2004, low, high, Exception{Unwinding: true, InHandler: true, Low: low, High: high}, false},
		{"nothing unwound yet", threadAt, 0, 0x2004, low, low, Exception{Unwinding: true}, false},
		{"a range that is upside down", threadAt, 0, 0x2004, high, low, Exception{Unwinding: true}, false},
		{"a range beyond the stack", threadAt, 0, 0x2004, low, 1 << 62, Exception{Unwinding: true}, false},
		{"freed", 0, 0, 0x2004, low, high, Exception{}, true},
		{"of another thread", threadAt + 8, 0, 0x2004, low, high, Exception{}, true},
		{"neither true nor false", threadAt, 2, 0x2004, low, high, Exception{}, true},
	} {
		mem := clrtest.Words{}
		s := newStore(t, mem, clrtest.Descriptor(t, clrtest.Net8))
		mem.Zero(trackerAt, 384)
		mem[trackerAt+arch.Addr(s.tracker.Thread)] = uint64(tt.thread)
		mem[trackerAt+arch.Addr(s.tracker.Low)] = uint64(tt.low)
		mem[trackerAt+arch.Addr(s.tracker.High)] = uint64(tt.high)
		mem.Uint32(trackerAt+arch.Addr(s.tracker.Flags), tt.flags)
		mem.Uint32(trackerAt+arch.Addr(s.tracker.Entered), tt.entered)
		got, ok := s.Exception(&Thread{Address: threadAt, Exception: trackerAt}, &newStack().Stack)
		if got != tt.want || ok == tt.notToBeBelieved {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
	s := newStore(t, clrtest.Words{}, clrtest.Descriptor(t, clrtest.Net8))
	if e, ok := s.Exception(&Thread{Address: threadAt, Exception: trackerAt}, &newStack().Stack); ok {
		t.Errorf("an unreadable tracker: %+v", e)
	}
}
