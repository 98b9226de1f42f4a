package display

import "testing"

// TestClip: cut text fills the columns, and ends with the sign for missing text.
func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"payload", 7, "payload"}, {"payload", 6, "paylo…"}, {"größer", 4, "grö…"}, {"payload", 1, "…"},
		{"payload", 0, "payload"},
	} {
		if got := Clip(c.text, c.n); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
