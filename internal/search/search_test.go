package search

import (
	"slices"
	"strings"
	"testing"
)

// TestArguments: of a command line of any length, the beginning is kept.
func TestArguments(t *testing.T) {
	huge := strings.Repeat("é", 4<<20)
	for _, c := range []struct {
		args []string
		want string
		size int
	}{
		{nil, "", 0}, {[]string{""}, "", 0}, {[]string{"--port", "80"}, "--port 80", 9},
		{[]string{"a b", "", "c"}, "a b  c", 6},
		{[]string{"\x1b[2J\n", "\xff"}, "\x1b[2J\n \xff", 7},
		{[]string{huge}, strings.Repeat("é", maxArguments/2), maxArguments},
		{[]string{"x", huge, huge}, "x " + strings.Repeat("é", maxArguments/2-1), maxArguments + len("…")},
		{slices.Repeat([]string{"x"}, 1<<20), strings.Repeat("x ", maxArguments/2), maxArguments},
	} {
		got := arguments(c.args)
		if !strings.HasPrefix(got+" ", c.want) || len(got) > maxArguments+len("…") || len(got) < c.size-1 {
			t.Errorf("%d arguments: %d bytes, %.40q …", len(c.args), len(got), got)
		}
	}
}
