package testenv

import (
	"strings"
	"testing"
)

// reports keeps a test's error messages.
type reports struct {
	testing.TB
	errors []string
}

func (*reports) Helper() {}

func (r *reports) Errorf(format string, _ ...any) { r.errors = append(r.errors, format) }

var sink []byte

func TestAllocates(t *testing.T) {
	for _, tt := range []struct {
		bytes int
		fails bool
	}{{1 << 20, false}, {1<<20 + 1<<18, true}, {0, false}} {
		r := &reports{TB: t}
		Allocates(r, 1<<10, 1<<10, 1<<16,
			func() { sink = []byte(strings.Repeat("a", tt.bytes/2)) }) // twice: a string, and bytes
		if fails := len(r.errors) > 0; fails != tt.fails {
			t.Errorf("%d bytes: %q", tt.bytes, r.errors)
		}
	}
}
