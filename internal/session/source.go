package session

import (
	"io/fs"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/locate"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
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

// lines are the source lines of code that stays.
type lines struct {
	finder *source.Finder
	known  map[lineKey]*profile.SourceLine
}

type lineKey struct {
	ip    arch.Addr
	exact bool
}

// maxLines bounds the lines that are remembered: 100 bytes each, more or less.
const maxLines = 1 << 16

// line returns the source line of code of p.method at ip, in an assembly whose image is there; nil: there is
// none. exact says that ip is not an address behind a call.
func (p *Process) line(
	code *codemap.Code, ip arch.Addr, exact bool, assembly string, image arch.Addr,
) *profile.SourceLine {
	if p.lines == nil || image == 0 || !p.method.HasMetadata() {
		return nil
	}
	key := lineKey{ip, exact}
	if s, ok := p.lines.known[key]; ok && !code.Collectible {
		return s
	}
	a, err := p.lines.finder.Assembly(&source.Module{
		Assembly: assembly, Address: p.method.Module, Image: image, Passing: code.Collectible,
	})
	if err != nil {
		return nil
	}
	il, precise, ok := p.ilOffset(code, ip, exact)
	if !ok {
		return nil
	}
	l, err := a.Line(p.method.RID, il)
	if err != nil {
		return nil
	}
	s := &profile.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || !precise,
	}
	if !code.Collectible {
		if len(p.lines.known) >= maxLines {
			clear(p.lines.known)
		}
		p.lines.known[key] = s
	}
	return s
}

// ilOffset returns the IL offset of code at ip. A return address is that of the call before it.
func (p *Process) ilOffset(code *codemap.Code, ip arch.Addr, exact bool) (il uint32, precise, ok bool) {
	m, err := p.Runtime.IL.Of(code)
	if err != nil || len(m) == 0 {
		return 0, false, false
	}
	at := uint32(ip - code.MethodStart)
	if !exact && at > 0 {
		at--
	}
	il, precise = m.IL(at)
	return il, precise, true
}
