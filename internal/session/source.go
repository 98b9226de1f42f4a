package session

import (
	"io/fs"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
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

// lines are the source lines of code that stays.
type lines struct {
	finder *source.Finder
	known  map[walk.Place]*profile.SourceLine
}

// maxLines bounds the lines that are remembered: 100 bytes each, more or less.
const maxLines = 1 << 16

// line returns the source line of a place in code of p.method, in an assembly whose image is there; nil: there
// is none.
func (p *Process) line(code *codemap.Code, at walk.Place, assembly string, image arch.Addr) *profile.SourceLine {
	if p.lines == nil || image == 0 || !p.method.HasMetadata() {
		return nil
	}
	if s, ok := p.lines.known[at]; ok && !code.Collectible {
		return s
	}
	a, err := p.lines.finder.Assembly(&source.Module{
		Assembly: assembly, Address: p.method.Module, Image: image, Passing: code.Collectible,
	})
	if err != nil {
		return nil
	}
	il, next, exact, ok := p.ilOffset(code, at)
	if !ok {
		return nil
	}
	l, err := p.lineIn(code, at, a, il, next)
	if err != nil {
		return nil
	}
	s := &profile.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || !exact,
	}
	if !code.Collectible {
		if len(p.lines.known) >= maxLines {
			clear(p.lines.known)
		}
		p.lines.known[at] = s
	}
	return s
}

// lineIn returns the line of code of p.method that is of the IL from il to next.
func (p *Process) lineIn(code *codemap.Code, at walk.Place, a *source.Assembly, il, next uint32) (source.Line, error) {
	if at.Exact || p.above == "" {
		return a.LineIn(p.method.RID, il, next)
	}
	named, err := p.Runtime.Names.Sites(&p.method)
	if err != nil { // such as IL that a profiler has replaced
		return a.LineIn(p.method.RID, il, next)
	}
	// Code of tier-0 can be optimised: that of a loop where the runtime has no OSR.
	tier, _ := p.Runtime.Methods.Tier(&p.method, code)
	call := source.Call{
		IL: il, Next: next, Callee: p.above, Optimized: tier != method.TierMinOpts, Sites: make([]source.Site, len(named)),
	}
	for i, s := range named {
		call.Sites[i] = source.Site{IL: s.IL, Method: lastName(s.Method)}
	}
	return a.LineOfCall(p.method.RID, &call)
}

// lastName is the last part of a method's name: that of an explicit implementation begins with its interface's.
func lastName(method string) string { return method[strings.LastIndexByte(method, '.')+1:] }

// ilOffset returns the IL offset of a place in code, and the next one that has code of its own. A return
// address is that of the call before it.
func (p *Process) ilOffset(code *codemap.Code, at walk.Place) (il, next uint32, exact, ok bool) {
	m, err := p.Runtime.IL.Of(code)
	if err != nil || len(m) == 0 {
		return 0, 0, false, false
	}
	offset := uint32(at.IP - code.MethodStart)
	if !at.Exact && offset > 0 {
		offset--
	}
	il, exact = m.IL(offset)
	return il, m.Next(il), exact, true
}
