package display

import (
	"testing"

	"clrsnap/snapshot"
)

func TestSource(t *testing.T) {
	for _, c := range []struct {
		file, want, short, full string
		about                   bool
	}{
		{"/src/Shop/OrderQueue.cs", "Shop/OrderQueue.cs:42", "OrderQueue.cs:42", "/src/Shop/OrderQueue.cs:42", false},
		{`C:\src\Shop\OrderQueue.cs`, "Shop/OrderQueue.cs:42", "OrderQueue.cs:42",
			`C:\src\Shop\OrderQueue.cs:42`, false},
		{"a.cs", "a.cs:~42", "a.cs:~42", "a.cs:~42", true},
		{"/_/\x1b[31ma.cs", `_/\x1b[31ma.cs:42`, `\x1b[31ma.cs:42`, `/_/\x1b[31ma.cs:42`, false},
	} {
		l := &snapshot.SourceLine{File: c.file, Line: 42, Approximate: c.about}
		if got := [3]string{Source(l, false), SourceFile(l), Source(l, true)}; got !=
			[3]string{c.want, c.short, c.full} {
			t.Errorf("%q: %q", c.file, got)
		}
	}
}
