package naming

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
func (s Stacks) nameNative(out *profile.Frame, f nativePlace) {
	if f.module == nil {
		return
	}
	if sym, offset, ok := f.module.Symbol(f.at); ok {
		out.Method, out.Display, out.Short, out.Nearest = sym.Name, sym.Name, sym.Short, ""
		out.Offset = offset + uint64(f.ip-f.at)
	} else if out.Method == "" {
		out.Nearest = f.module.Nearest(f.at)
	}
	if s.lines != nil && !s.lasting {
		out.Line = s.lines.of(f)
	}
}

// NativePlace returns the module of a native frame, and the offset in the module of the instruction whose symbol and
// line the frame has; nil: the frame is in no module, or no lines are wanted.
func (n *Namer) NativePlace(f *walk.Frame) (*module.Module, uint64) {
	if n.lines == nil || f.Kind != walk.Native || f.Module == nil {
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
func (n *Namer) debugging() module.Debugging {
	d := module.Debugging{Finder: debugFiles{n}, Lines: module.FewLines, Remote: n.options.Source != nil}
	if d.Remote || len(n.options.Symbols) > 0 {
		d.Lines = module.AllLines
	}
	return d
}

// debugFiles opens files with symbols.
type debugFiles struct{ of *Namer }

// OpenFile implements module.DebugFinder.
func (d debugFiles) OpenFile(file string) (target.File, error) { return d.of.target.OpenFile(file) }

// OpenOwn implements module.DebugFinder.
func (d debugFiles) OpenOwn(file string) (out []target.File) {
	for _, dir := range d.of.options.Symbols {
		if f, err := foreign.Open(path.Join(dir, file)); err == nil {
			out = append(out, f)
		}
	}
	return out
}
