package display

import (
	"strings"
	"testing"

	"clrsnap/profile"
)

func TestElide(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abcdefgh", 8, "abcdefgh"}, {"abcdefgh", 7, "abc…fgh"}, {"abcdefgh", 6, "abc…gh"}, {"abcdefgh", 0, "abcdefgh"},
		{"abcdefgh", 1, "…"}, {"abc", 2, "a…"}, {"äöüß", 3, "ä…ß"}, {"注文処理", 6, "注…理"}, {"", 5, ""},
	} {
		if got := Elide(c.s, c.n); got != c.want || c.n > 0 && Width(got) > c.n {
			t.Errorf("%q in %d columns: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

func TestFate(t *testing.T) {
	for _, f := range []profile.Function{
		{Display: "A.Failed<int, string>", Short: "Failed<int, string>", Fate: "caught by A.B.Run<int, string>"},
		{Display: "A.Failed", Short: "Failed", Fate: "rethrown, first throw not seen, caught by A.B.Run{async}"},
		{Display: "A.Failed", Short: "Failed", Fate: "not caught"},
		{Display: "A.Failed", Short: "Failed"},
	} {
		name := FullName(&f)
		if display, fate := SplitFate(name); display != f.Display || fate != f.Fate {
			t.Errorf("%q is split into %q and %q", name, display, fate)
		}
		want := strings.ReplaceAll(name, "A.", "")
		if got := ShortName(&f); got != want {
			t.Errorf("%q is shortened to %q, not to %q", name, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for name, want := range map[string]string{
		"Shop.Index<string, System.Collections.Generic.List<int>>.Scan{lambda 4_0}": "Index<string, " +
			"List<int>>.Scan{lambda 4_0}",
		"System.Threading.Monitor.Wait": "Monitor.Wait",
		"Main":                          "Main",
		"A.B.C..ctor":                   "C..ctor",
		"":                              "",
	} {
		if got := Shorten(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
