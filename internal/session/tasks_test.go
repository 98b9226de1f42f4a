package session

import (
	"slices"
	"testing"
)

// Every chain has a beginning, also a chain that is a circle.
func TestStarts(t *testing.T) {
	for _, tt := range []struct {
		name string
		next []int
		want []int
	}{
		{"none", nil, nil},
		{"one", []int{-1}, []int{0}},
		{"a chain", []int{1, 2, -1}, []int{0}},
		{"two that meet", []int{2, 2, -1}, []int{0, 1}},
		{"a circle", []int{1, 2, 0}, []int{0}},
		{"two circles and one alone", []int{1, 0, 3, 2, -1}, []int{4, 0, 2}},
		{"a circle that a chain leads to", []int{1, 2, 1, 0}, []int{3}},
	} {
		nodes := make([]node, len(tt.next))
		for i, to := range tt.next {
			if nodes[i].next = to; to >= 0 {
				nodes[to].inners++
			}
		}
		if got := starts(nodes); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestCommonPath(t *testing.T) {
	for _, test := range [][3]string{
		{"/items/1", "/items/1", "/items/1"}, {"/items/1", "/items/12", "/items/…"},
		{"/items/…", "/items/7", "/items/…"}, {"/items/1", "/prices", "/…"}, {"", "/items", "…"},
		{"/a/é", "/a/è", "/a/…"},
	} {
		if got := commonPath(test[0], test[1]); got != test[2] {
			t.Errorf("%q and %q: %q", test[0], test[1], got)
		}
	}
}
