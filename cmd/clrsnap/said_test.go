package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"clrsnap/profile"
)

// evil is a name that a target or a file may have. The name changes a terminal's title, sets colours in two ways,
// begins lines and changes the direction of writing.
const evil = "a\x1b]0;title\a\x1b[31mred\u009b32mgreen\nline\rback\u202ereversed\xff"

func clean(t *testing.T, what, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "clrsnap: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("%s: %q is not one line", what, text)
	}
	for _, r := range strings.TrimSuffix(text, "\n") {
		if unicode.IsControl(r) || r == '\u202e' || r == unicode.ReplacementChar {
			t.Errorf("%s: %U in %q", what, r, text)
		}
	}
}

// TestSaid: messages cannot control a terminal.
func TestSaid(t *testing.T) {
	var b bytes.Buffer
	say(&b, "written to %s", evil)
	clean(t, "say", b.String())
	for _, err := range []error{errors.New(evil), usagef("%s", evil)} {
		b.Reset()
		explain(&b, err)
		clean(t, "explain", b.String())
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer file.Close()
	a := &app{stderr: file}
	a.summarize(&profile.Recording{Notes: []string{evil}}, evil)
	text, err := os.ReadFile(file.Name())
	must(t, err)
	for line := range strings.Lines(string(text)) {
		clean(t, "summarize", line)
	}
	if n := strings.Count(string(text), "\n"); n != 3 {
		t.Errorf("%d lines: %q", n, text)
	}
}

// TestWhoSays: everything on standard error goes through say, except the progress line, which has no text of a target.
func TestWhoSays(t *testing.T) {
	progress := map[string]bool{"show": true, "end": true, "progress": true, "say": true}
	files, err := filepath.Glob("*.go")
	must(t, err)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		must(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok || len(c.Args) == 0 {
					return true
				}
				fun, ok := c.Fun.(*ast.SelectorExpr)
				if !ok || !strings.HasPrefix(fun.Sel.Name, "Fprint") && !strings.HasPrefix(fun.Sel.Name, "Write") {
					return true
				}
				to := ""
				ast.Inspect(c.Args[0], func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						to += id.Name + "."
					}
					return true
				})
				if strings.Contains(strings.ToLower(to), "stderr") {
					if found++; !progress[f.Name.Name] {
						t.Errorf("%v: %s writes to standard error by itself: say does that",
							set.Position(c.Pos()), f.Name.Name)
					}
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("nothing writes to standard error: what is looked for is not what is written")
	}
}
