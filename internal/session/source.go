package session

import (
	"io/fs"

	"clrsnap/internal/arch"
	"clrsnap/internal/locate"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// sourceFiles are the target's files and symbols as package source wants them.
type sourceFiles struct {
	target.Memory
	p *Process
}

func (s sourceFiles) OpenFile(path string) (target.File, error) { return s.p.from.OpenFile(path) }

func (s sourceFiles) File(m *source.Module) (string, bool) { return s.p.imageFile(m.Assembly, m.Image) }

func (s sourceFiles) SymbolStream(module arch.Addr) (arch.Addr, uint32) {
	at, size, err := s.p.Runtime.Names.SymbolStream(module)
	if err != nil {
		return 0, 0
	}
	return at, size
}

func (s sourceFiles) Bundle() (target.File, string, error) {
	if s.p.Found == nil || s.p.Found.Shape != locate.SingleFile {
		return nil, "", fs.ErrNotExist
	}
	m := s.p.Engine.Maps.Find(s.p.Found.Module.Start)
	if m == nil || !m.IsFile() {
		return nil, "", fs.ErrNotExist
	}
	f, err := s.p.from.OpenMapping(m)
	return f, m.Path, err
}

// lines are the source lines of code that stays; nil stands for none.
type lines struct {
	finder *source.Finder
	known  map[lineKey]*profile.SourceLine
	native map[nativePlace]*profile.SourceLine // ip is 0
}

type lineKey struct {
	ip    arch.Addr
	exact bool
}

// maxLines bounds the lines that are remembered: 100 bytes each, more or less.
const maxLines = 1 << 16

// line returns the source line of a managed frame, whose method p.method is, in an assembly whose image is
// there; nil: there is none.
func (p *Process) line(f *walk.Frame, assembly string, image arch.Addr) *profile.SourceLine {
	if p.lines == nil || image == 0 || !p.method.HasMetadata() {
		return nil
	}
	key := lineKey{f.IP(), f.Exact}
	if s, ok := p.lines.known[key]; ok && !f.Code.Collectible {
		return s
	}
	a, err := p.lines.finder.Assembly(&source.Module{
		Assembly: assembly, Address: p.method.Module, Image: image, Passing: f.Code.Collectible,
	})
	wanted := err != nil && a != nil && a.Wanted() && p.late != nil
	if err != nil && !wanted {
		return nil
	}
	il, exact, ok := p.ilOffset(f)
	if !ok {
		return nil
	}
	if wanted {
		p.late.addLine(f, a, p.method.RID, il, !exact)
		return nil
	}
	l, err := a.Line(p.method.RID, il)
	if err != nil {
		return nil
	}
	s := sourceLine(&l, !exact)
	if !f.Code.Collectible {
		if len(p.lines.known) >= maxLines {
			clear(p.lines.known)
		}
		p.lines.known[key] = s
	}
	return s
}

// sourceLine is what a frame shows of a line.
func sourceLine(l *source.Line, approximate bool) *profile.SourceLine {
	return &profile.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || approximate,
	}
}

// ilOffset returns the IL offset that a frame is at. A return address is that of the call before it.
func (p *Process) ilOffset(f *walk.Frame) (il uint32, exact, ok bool) {
	m, err := p.Runtime.IL.Of(f.Code)
	if err != nil || len(m) == 0 {
		return 0, false, false
	}
	at := uint32(f.IP() - f.Code.MethodStart)
	if !f.Exact && at > 0 {
		at--
	}
	il, exact = m.IL(at)
	return il, exact, true
}
