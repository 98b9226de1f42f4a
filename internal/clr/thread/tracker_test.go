package thread

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
)

// The trackers of .NET 8, and sometimes of .NET 9, are in the runtime's memory, beside the stack.
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
		{"a catch block runs", threadAt, 1, 0x2004, low, high,
			Exception{Unwinding: true, InHandler: true, Low: low, High: high}, false},
		{"nothing unwound yet", threadAt, 0, 0x2004, low, low, Exception{Unwinding: true}, false},
		{"a range that is upside down", threadAt, 0, 0x2004, high, low, Exception{Unwinding: true}, false},
		{"a range beyond the stack", threadAt, 0, 0x2004, low, 1 << 62, Exception{Unwinding: true}, false},
		{"freed", 0, 0, 0x2004, low, high, Exception{}, true},
		{"of another thread", threadAt + 8, 0, 0x2004, low, high, Exception{}, true},
		{"neither true nor false", threadAt, 2, 0x2004, low, high, Exception{}, true},
	} {
		for _, name := range []string{clrtest.Net8, clrtest.Net9} {
			s := newStore(t, clrtest.Words{}, clrtest.Descriptor(t, name))
			st := newStack()
			tracker := make(clrtest.Words)
			tracker.Zero(trackerAt, s.tracker.size())
			tracker[trackerAt+arch.Addr(s.tracker.Thread)] = uint64(tt.thread)
			tracker[trackerAt+arch.Addr(s.tracker.Low)] = uint64(tt.low)
			tracker[trackerAt+arch.Addr(s.tracker.High)] = uint64(tt.high)
			tracker.Uint32(trackerAt+arch.Addr(s.tracker.Flags), tt.flags)
			tracker.Uint32(trackerAt+arch.Addr(s.tracker.Entered), tt.entered)
			st.capture(t, tracker, trackerAt, s.tracker.size())
			got, ok := s.Exception(&Thread{Address: threadAt, Exception: trackerAt}, &st.Stack)
			if got != tt.want || ok == tt.notToBeBelieved {
				t.Errorf("%s, %s: %+v, %v", tt.name, name, got, ok)
			}
		}
	}
}

// capture adds a piece of memory to the captured memory.
func (s *stack) capture(t *testing.T, mem clrtest.Words, at arch.Addr, n int) {
	t.Helper()
	b := make([]byte, n)
	if err := mem.ReadMemory(b, at); err != nil {
		t.Fatal(err)
	}
	s.Extra = append(s.Extra, target.Region{Base: at, Data: b})
}

// A tracker that was not captured with the stack is not read later.
func TestUncaptured(t *testing.T) {
	const trackerAt = arch.Addr(0x70000)
	for _, name := range []string{clrtest.Net8, clrtest.Net9} {
		mem := clrtest.Words{threadAt: 0}
		s := newStore(t, mem, clrtest.Descriptor(t, name))
		mem.Zero(trackerAt, s.tracker.size())
		mem[trackerAt+arch.Addr(s.tracker.Thread)] = uint64(threadAt)
		field := threadAt + arch.Addr(s.l.Exception)
		mem[field] = 0
		th := Thread{Address: threadAt}
		if at, n := s.TrackerRange(mem, threadAt); n != 0 || s.Uncaptured(&th, &newStack().Stack) {
			t.Errorf("%s: no exception, and beside the thread are %d bytes at %v", name, n, at)
		}
		mem[field], th.Exception = uint64(trackerAt), trackerAt
		at, n := s.TrackerRange(mem, threadAt)
		if at != trackerAt || n != s.tracker.size() {
			t.Fatalf("%s: beside the thread are %d bytes at %v", name, n, at)
		}
		st := newStack()
		if e, ok := s.Exception(&th, &st.Stack); ok || !s.Uncaptured(&th, &st.Stack) {
			t.Errorf("%s: a tracker that was not captured: %+v, %v", name, e, ok)
		}
		st.capture(t, mem, at, n-1)
		if e, ok := s.Exception(&th, &st.Stack); ok || !s.Uncaptured(&th, &st.Stack) {
			t.Errorf("%s: a tracker of which the end was not captured: %+v, %v", name, e, ok)
		}
		st.Extra = nil
		st.capture(t, mem, at, n)
		if e, ok := s.Exception(&th, &st.Stack); !ok || s.Uncaptured(&th, &st.Stack) {
			t.Errorf("%s: a tracker that was captured: %+v, %v", name, e, ok)
		}
	}
	s := newStore(t, clrtest.Words{}, clrtest.Descriptor(t, clrtest.Net10))
	if s.Uncaptured(&Thread{Address: threadAt, Exception: trackerAt}, &newStack().Stack) {
		t.Error(".NET 10 has no trackers")
	}
}
