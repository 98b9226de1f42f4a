package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// sourceFiles are the target's files as package source wants them.
type sourceFiles struct {
	target.Memory
	p *Process
}

func (s sourceFiles) OpenFile(path string) (target.File, error) { return s.p.from.OpenFile(path) }

func (s sourceFiles) File(at arch.Addr) string {
	m := s.p.Engine.Maps.Find(at)
	if m == nil {
		m = s.p.maps.Find(at)
	}
	if m == nil { // the assembly was loaded since
		m = s.p.remapped().Find(at)
	}
	if m == nil || !m.IsFile() {
		return ""
	}
	return m.Path
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

// line returns the source line of a managed frame, whose method p.method is, in the assembly whose
// image is at base; nil: there is none.
func (p *Process) line(f *walk.Frame, base arch.Addr) *profile.SourceLine {
	if p.lines == nil || base == 0 || !p.method.HasMetadata() {
		return nil
	}
	key := lineKey{f.IP(), f.Exact}
	if s, ok := p.lines.known[key]; ok && !f.Code.Collectible {
		return s
	}
	a, err := p.lines.finder.Assembly(base, f.Code.Collectible)
	if err != nil {
		return nil
	}
	il, exact, ok := p.ilOffset(f)
	if !ok {
		return nil
	}
	l, err := a.Line(p.method.RID, il)
	if err != nil {
		return nil
	}
	s := &profile.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || !exact,
	}
	if !f.Code.Collectible {
		if len(p.lines.known) >= maxLines {
			clear(p.lines.known)
		}
		p.lines.known[key] = s
	}
	return s
}

// lineAt returns the source line of an IL offset in a method, by its row in the metadata of the
// assembly whose image is at base; nil: there is none.
func (p *Process) lineAt(base arch.Addr, method, il uint32) *profile.SourceLine {
	if p.lines == nil || base == 0 {
		return nil
	}
	a, err := p.lines.finder.Assembly(base, false)
	if err != nil {
		return nil
	}
	l, err := a.Line(method, il)
	if err != nil {
		return nil
	}
	return &profile.SourceLine{File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate}
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
