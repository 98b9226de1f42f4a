package report

import (
	"strings"
	"testing"

	"clrsnap/snapshot"
)

// TestLinks: lines link to the result of Link, unless the URL could end the sequence or is too
// long.
func TestLinks(t *testing.T) {
	line := func(file string) *snapshot.SourceLine { return &snapshot.SourceLine{File: file, Line: 7} }
	s := &snapshot.Snapshot{Threads: []snapshot.Thread{{OSThreadID: 1, Complete: true, Frames: []snapshot.Frame{
		{Kind: snapshot.Native, Method: "f", Display: "f", Module: "lib.so", Line: line("/src/lib/f.c")},
		{Kind: snapshot.Managed, Method: "A.B", Display: "A.B", Module: "A", Line: line("/src/A/b.cs")},
		{Kind: snapshot.Managed, Method: "A.C", Display: "A.C", Module: "A", Line: line("/src/A/\x1bevil.cs")},
		{Kind: snapshot.Managed, Method: "A.D", Display: "A.D", Module: "A", Line: line("/src/A/long.cs")},
		{Kind: snapshot.Managed, Method: "A.E", Display: "A.E", Module: "A", Line: line("/src/A/none.cs")},
	}}}}
	link := func(l *snapshot.SourceLine) string {
		switch l.File {
		case "/src/A/none.cs":
			return ""
		case "/src/A/long.cs":
			return "https://" + strings.Repeat("x", maxLink)
		}
		return "file://host" + l.File
	}
	for _, color := range []bool{false, true} {
		var b strings.Builder
		if err := Text(&b, s, TextOptions{Terminal: Terminal{Color: color, Width: 60}, Link: link}); err != nil {
			t.Fatal(err)
		}
		dimmed := func(s string) string {
			if color {
				return "\x1b[2m" + s + "\x1b[0m"
			}
			return s
		}
		linked := func(to, text string) string {
			return "\x1b]8;;file://host" + to + "\x1b\\" + dimmed(text) + "\x1b]8;;\x1b\\"
		}
		for _, want := range []string{
			linked("/src/lib/f.c", "lib/f.c:7"), linked("/src/A/b.cs", "A/b.cs:7"), dimmed(`A/\x1bevil.cs:7`),
			dimmed("A/long.cs:7"), dimmed("A/none.cs:7"),
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is not in\n%q", want, b.String())
			}
		}
		if n := strings.Count(b.String(), "\x1b]8;;"); n != 4 {
			t.Errorf("%d ends of links", n)
		}
		b.Reset()
		err := Text(&b, s, TextOptions{Terminal: Terminal{Color: color}})
		if err != nil || strings.Contains(b.String(), "\x1b]8") {
			t.Errorf("links without Link: %q, %v", b.String(), err)
		}
	}
}
