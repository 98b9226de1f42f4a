package tasks

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

func TestCommonTarget(t *testing.T) {
	const to = "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established"
	for _, tt := range []struct{ a, b, want string }{
		{to, to, to},
		{to, "recv tcp 10.1.2.3:41235 → 10.1.2.9:5432 established", "recv tcp → 10.1.2.9:5432 established"},
		{"recv tcp → 10.1.2.9:5432 established", to, "recv tcp → 10.1.2.9:5432 established"},
		{"recv tcp 10.1.2.3:80 → 10.9.9.9:1 established", "recv tcp 10.1.2.3:80 → 10.9.9.9:2 established",
			"recv tcp 10.1.2.3:80"},
		{to, "recv", "recv"}, {to, "send tcp", ""}, {"", "", ""},
	} {
		if got := CommonTarget(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}
