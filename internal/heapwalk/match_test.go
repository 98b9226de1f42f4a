package heapwalk

import "testing"

// TestDistance: the number of letters to change, add or leave out.
func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"order", "order", 0}, {"order", "orders", 1}, {"oder", "order", 1}, {"order", "older", 1}, {"", "abc", 3},
		{"ab", "ba", 2},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
