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

// nativePlace is the place of a native frame: the instruction pointer, and the address whose symbol and line the
// frame has.
type nativePlace struct {
	module *module.Module
	ip, at arch.Addr
}

func placeOf(f *walk.Frame) nativePlace { return nativePlace{f.Module, f.IP(), symbolAddr(f)} }

// nameNative gives a native frame a name and a line, as far as there are symbols.
func (n naming) nameNative(out *profile.Frame, f nativePlace) {
	if f.module == nil {
		return
	}
	if sym, offset, ok := f.module.Symbol(f.at); ok {
		out.Method, out.Display, out.Short, out.Nearest = sym.Name, sym.Name, sym.Short, ""
		out.Offset = offset + uint64(f.ip-f.at)
	} else if out.Method == "" {
		out.Nearest = f.module.Nearest(f.at)
	}
	if n.lines != nil && !n.lasting {
		out.Line = n.lines.of(f)
	}
}

// NativePlace returns the module of a native frame, and the offset in the module of the instruction whose symbol and
// line the frame has; nil: the frame is in no module, or no lines are wanted.
func (p *Process) NativePlace(f *walk.Frame) (*module.Module, uint64) {
	if p.lines == nil || f.Kind != walk.Native || f.Module == nil {
		return nil, 0
	}
	return f.Module, f.Module.Offset(symbolAddr(f))
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

// debugging says where symbols of native modules are looked for.
func (p *Process) debugging() module.Debugging {
	d := module.Debugging{Finder: debugFiles{p}, Lines: module.FewLines, Remote: p.Options.Source != nil}
	if d.Remote || len(p.Options.Symbols) > 0 {
		d.Lines = module.AllLines
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
