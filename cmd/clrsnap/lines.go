package main

import (
	"strings"

	"clrsnap"
	"clrsnap/internal/display"
	"clrsnap/internal/lines"
	"clrsnap/internal/source"
	"clrsnap/profile"

	"github.com/spf13/pflag"
)

// sourceFlags are the flags that say where PDBs and source files are.
type sourceFlags struct {
	symbols []string
	roots   []string
	noText  bool
}

func (f *sourceFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.symbols, "symbols", nil,
		"a `folder` in which to look for PDBs that are not beside their assemblies; can be given several times")
	fs.StringArrayVar(&f.roots, "source-root", nil,
		"where source files are: `FROM=TO` for those that the compiler called FROM/…; TO alone is a folder in which"+
			" they are looked for, by name and checksum; can be given several times")
}

// registerText registers the flag of what can keep the text of source files.
func (f *sourceFlags) registerText(fs *pflag.FlagSet) {
	fs.BoolVar(&f.noText, "no-source", false, "without the text of source files, which else is kept around the lines")
}

func (f *sourceFlags) check() error {
	for _, r := range f.roots {
		if from, to, ok := strings.Cut(r, "="); r == "" || ok && (strings.Trim(from, `/\`) == "" || to == "") {
			return usagef("--source-root %q: write FROM=TO, such as /build/src=/home/me/src, or a folder", r)
		}
	}
	for _, dir := range f.symbols {
		if dir == "" {
			return usagef("--symbols is empty: give a folder")
		}
	}
	return nil
}

// sourceRoots returns what --source-root says.
func (f *sourceFlags) sourceRoots() []clrsnap.SourceRoot {
	var out []clrsnap.SourceRoot
	for _, r := range f.roots {
		from, to, ok := strings.Cut(r, "=")
		if !ok {
			from, to = "", r
		}
		out = append(out, clrsnap.SourceRoot{From: from, To: to})
	}
	return out
}

// folders are those that may be read.
func (f *sourceFlags) folders() []string {
	out := append([]string{}, f.symbols...)
	for _, r := range f.sourceRoots() {
		out = append(out, r.To)
	}
	return out
}

// addLines adds to a recording the lines that PDBs in --symbols say, and the text of files below --source-root. It
// says which of the program's assemblies have none.
func (a *app) addLines(r *profile.Recording, f *sourceFlags) {
	if len(f.symbols) == 0 && len(f.roots) == 0 {
		return
	}
	o := lines.Options{Text: !f.noText}
	for _, root := range f.sourceRoots() {
		o.Roots = append(o.Roots, source.NewRoot(root.From, root.To))
	}
	missing := lines.Add(r, lines.Find(r, f.symbols), o)
	if len(f.symbols) == 0 {
		return
	}
	if len(r.Methods) == 0 {
		say(a.stderr, "note: the recording does not say where its code is in the program's source: "+
			"it was made with --lines=never, by an older clrsnap, or by another program")
	}
	const most = 5
	told := 0
	for _, m := range missing {
		name := r.Assemblies[m.Assembly].Name
		if profile.Framework(name) {
			continue
		}
		if told++; told <= most {
			say(a.stderr, "note: %s has no source lines: %s", display.Clean(name), display.OneLine(m.Why.Error()))
		}
	}
	if told > most {
		say(a.stderr, "note: %d further assemblies have no source lines", told-most)
	}
}
