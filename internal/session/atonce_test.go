package session

import "testing"

// TestShareStacks: first and further parts of all stacks together stay within one bound, and there
// is room for deep stacks as long as each thread can have more than the least.
func TestShareStacks(t *testing.T) {
	for _, tt := range []struct{ threads, first, beyond int }{
		{0, FirstStack, allStacksAtOnce},
		{1, FirstStack, allStacksAtOnce - FirstStack},
		{128, FirstStack, allStacksAtOnce / 2},
		{1024, 32 << 10, allStacksAtOnce / 2},
		{16384, minStackAtOnce, allStacksAtOnce / 2},
		{32768, minStackAtOnce, 0},
		{65536, minStackAtOnce, 0},
	} {
		first, beyond := shareStacks(tt.threads)
		if first != tt.first || beyond != tt.beyond {
			t.Errorf("%d threads: %d and %d bytes, want %d and %d", tt.threads, first, beyond, tt.first, tt.beyond)
		}
	}
	for n := range 1 << 15 {
		if first, beyond := shareStacks(n); n*first+beyond > allStacksAtOnce ||
			n < 1<<14 && beyond < allStacksAtOnce/2 {
			t.Fatalf("%d threads: %d and %d bytes", n, first, beyond)
		}
	}
}
