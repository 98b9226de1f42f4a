package naming

import (
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
)

// nativePlace is the place of a native frame: the instruction pointer, and the address whose symbol and line the
// frame has.
type nativePlace struct {
	module *module.Module
	ip, at arch.Addr
}

func placeOf(f *walk.Frame) nativePlace { return nativePlace{f.Module, f.IP(), symbolAddr(f)} }

// symbolAddr is the address whose symbol a native frame shows. For a return address it is one byte less: a call can
// be the last instruction of a function.
func symbolAddr(f *walk.Frame) arch.Addr {
	if f.Exact {
		return f.IP()
	}
	return f.IP() - 1
}

// NativeFrame is one unmanaged frame.
type NativeFrame struct {
	IP, SP uint64
	Module string // path, as the target sees it; empty for code outside any module
	Symbol string // demangled; empty where there is none
	Offset uint64 // of IP from the symbol, else from the module
}

// NativeFrame describes an unmanaged frame.
func (n *Namer) NativeFrame(f *walk.Frame) NativeFrame {
	out := NativeFrame{IP: uint64(f.IP()), SP: f.Context.Regs[n.engine.Arch.SP]}
	if f.Module == nil {
		return out
	}
	out.Module = f.Module.Path
	at := symbolAddr(f)
	if sym, off, ok := f.Module.Symbol(at); ok {
		out.Symbol, out.Offset = sym.Name, off+uint64(f.IP()-at)
		return out
	}
	out.Offset = f.Module.Offset(f.IP())
	return out
}

// NativePlace returns the module of a native frame, and the offset in the module of the instruction whose symbol and
// line the frame has; nil: the frame is in no module, or no lines are wanted.
func (n *Namer) NativePlace(f *walk.Frame) (*module.Module, uint64) {
	if n.lines == nil || f.Kind != walk.Native || f.Module == nil {
		return nil, 0
	}
	return f.Module, f.Module.Offset(symbolAddr(f))
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
