package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"clrsnap"
	"clrsnap/internal/display"
	"clrsnap/internal/lines"
	"clrsnap/internal/source"
	"clrsnap/profile"
	"clrsnap/snapshot"
	"clrsnap/symbols"
)

// sourceFlags are the flags with the places of symbols and source files.
type sourceFlags struct {
	symbols []string
	roots   []string
	servers []string
	noText  bool

	asked   []string // servers that symbols are fetched from
	fetcher *fetcher // nil: nothing is fetched
}

func (f *sourceFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.symbols, "symbols", nil,
		"a `folder` with PDBs, besides the folders of the assemblies; can be given several times")
	fs.StringArrayVar(&f.roots, "source-root", nil,
		"where source files are: with `FROM=TO` the compiler's FROM/… is TO/… here; TO alone is a folder to search, by"+
			" name and checksum; can be given several times")
	fs.StringArrayVar(&f.servers, "symbol-server", nil,
		"the `address` of a server for symbols that are nowhere else; can be given several times")
}

// registerText registers the flag for the text of source files.
func (f *sourceFlags) registerText(fs *pflag.FlagSet) {
	fs.BoolVar(&f.noText, "no-source", false, "without the text of source files around the lines")
}

func (f *sourceFlags) check() (err error) {
	for _, r := range f.roots {
		if from, to, ok := strings.Cut(r, "="); r == "" || ok && (strings.Trim(from, `/\`) == "" || to == "") {
			return usagef("--source-root %q: write FROM=TO, for example /build/src=/home/me/src, or a folder", r)
		}
	}
	for _, dir := range f.symbols {
		if dir == "" {
			return usagef("--symbols is empty: give a folder")
		}
	}
	f.asked, err = symbolServers(f.servers)
	return err
}

// startFetching starts the fetcher, if the user names symbol servers. The fetcher ends with ctx, or with close.
func (a *app) startFetching(ctx context.Context, f *sourceFlags, progress *fetchProgress) (err error) {
	if len(f.asked) == 0 {
		return nil
	}
	f.fetcher, err = startFetcher(ctx, f.asked, progress.tell)
	return err
}

// close ends the fetcher, if there is one.
func (f *sourceFlags) close() {
	if f.fetcher != nil {
		f.fetcher.Close()
	}
}

// remote is where symbols are fetched from; nil: nothing is.
func (f *sourceFlags) remote() symbols.Source {
	if f.fetcher == nil {
		return nil
	}
	return f.fetcher
}

// warnOfServers warns of symbols that could not be fetched.
func (a *app) warnOfServers(f *sourceFlags) {
	if f.fetcher == nil {
		return
	}
	for _, text := range f.fetcher.Warnings() {
		say(a.stderr, "warning: %s", text)
	}
}

// sourceRoots returns the roots of --source-root.
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

// folders are the folders that may be read.
func (f *sourceFlags) folders() []string {
	out := append([]string{}, f.symbols...)
	for _, r := range f.sourceRoots() {
		out = append(out, r.To)
	}
	return out
}

// addLines adds lines to a recording, from symbols in --symbols or from servers, and the text of files below
// --source-root. addLines prints which of the program's assemblies have no symbols.
func (a *app) addLines(ctx context.Context, r *profile.Recording, f *sourceFlags) {
	if len(f.symbols) == 0 && len(f.roots) == 0 && f.fetcher == nil {
		return
	}
	o := lines.Options{Text: !f.noText}
	for _, root := range f.sourceRoots() {
		o.Roots = append(o.Roots, source.NewRoot(root.From, root.To))
	}
	files := lines.NewFiles(f.symbols)
	defer files.Close()
	missing := lines.Add(ctx, r, lines.From{
		Assembly: lines.Find(r, f.symbols), Library: lines.FindLibrary(r, files), Remote: f.remote(), Files: files,
	}, o)
	a.warnOfServers(f)
	if len(f.symbols) == 0 && f.fetcher == nil {
		return
	}
	if len(r.Methods) == 0 {
		say(a.stderr, "note: the recording has no places in source files, because of --lines=never, an older clrsnap, "+
			"or another program: record again with clrsnap record --lines=auto")
	}
	const most = 5
	told := 0
	for _, m := range missing {
		name := r.Assemblies[m.Assembly].Name
		if snapshot.Framework(name) {
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
