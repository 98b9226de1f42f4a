package session

import (
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// nativePlace is where a native frame is: the address whose symbol and line it has, and the instruction pointer.
type nativePlace struct {
	module *module.Module
	ip, at arch.Addr
}

func placeOf(f *walk.Frame) nativePlace { return nativePlace{f.Module, f.IP(), symbolAddr(f)} }

// nameNative gives a native frame its name and its line, as far as there are symbols for them.
func (p *Process) nameNative(out *profile.Frame, f nativePlace) {
	if f.module == nil {
		return
	}
	if sym, offset, ok := f.module.Symbol(f.at); ok {
		out.Method, out.Display, out.Short, out.Nearest = sym.Name, sym.Name, sym.Short, ""
		out.Offset = offset + uint64(f.ip-f.at)
	} else if out.Method == "" {
		out.Nearest = f.module.Nearest(f.at)
	}
	if p.lines != nil && !p.lasting {
		out.Line = p.lines.of(f)
	}
}

// of returns the line of a native frame; nil: there is none.
func (l *lines) of(f nativePlace) *profile.SourceLine {
	key := nativePlace{module: f.module, at: f.at}
	if line, ok := l.native[key]; ok {
		return line
	}
	var line *profile.SourceLine
	if at, err := f.module.Line(f.at); err == nil {
		line = &profile.SourceLine{File: at.File, Line: at.Line, Column: at.Column}
	}
	if len(l.native) >= maxLines {
		clear(l.native)
	}
	l.native[key] = line
	return line
}

// Bounds of line tables of native code, in bytes of a file's .debug_line. A megabyte takes 20 ms to read. Who
// names folders or servers with symbols wants them, however long it takes.
const (
	fewLines = 4 << 20
	allLines = 256 << 20
)

// debugging says where symbols of native modules are looked for.
func (p *Process) debugging() module.Debugging {
	d := module.Debugging{Finder: debugFiles{p}, Lines: fewLines, Remote: p.Options.Source != nil}
	if d.Remote || len(p.Options.Symbols) > 0 {
		d.Lines = allLines
	}
	return d
}

// debugFiles opens files with symbols.
type debugFiles struct{ p *Process }

// OpenFile implements module.DebugFinder.
func (d debugFiles) OpenFile(file string) (target.File, error) { return d.p.from.OpenFile(file) }

// OpenOwn implements module.DebugFinder.
func (d debugFiles) OpenOwn(file string) (out []target.File) {
	for _, dir := range d.p.Options.Symbols {
		if f, err := foreign.Open(path.Join(dir, file)); err == nil {
			out = append(out, f)
		}
	}
	return out
}
