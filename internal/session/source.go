package session

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
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
	known  map[walk.Place]*profile.SourceLine
}

// maxLines bounds the lines that are remembered: 100 bytes each, more or less.
const maxLines = 1 << 16

// line returns the source line of a managed frame, whose method p.method is, in the assembly whose
// image is at base; nil: there is none.
func (p *Process) line(f *walk.Frame, base arch.Addr) *profile.SourceLine {
	if p.lines == nil || base == 0 || !p.method.HasMetadata() {
		return nil
	}
	key := f.Place()
	if s, ok := p.lines.known[key]; ok && !f.Code.Collectible {
		return s
	}
	a, err := p.lines.finder.Assembly(base, f.Code.Collectible)
	if err != nil {
		return nil
	}
	il, next, exact, ok := p.ilOffset(f)
	if !ok {
		return nil
	}
	l, err := p.lineIn(f, a, il, next)
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

// lineIn returns the line of a frame whose code is of the IL from il to next.
func (p *Process) lineIn(f *walk.Frame, a *source.Assembly, il, next uint32) (source.Line, error) {
	if f.Place().Exact || p.above == "" {
		return a.LineIn(p.method.RID, il, next)
	}
	named, err := p.Runtime.Names.Sites(&p.method)
	if err != nil { // such as IL that a profiler has replaced
		return a.LineIn(p.method.RID, il, next)
	}
	// Code of tier-0 can be optimised: that of a loop where the runtime has no OSR.
	tier, _ := p.Runtime.Methods.Tier(&p.method, f.Code)
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

// ilOffset returns the IL offset that a frame is at, and the next one that has code of its own. A return
// address is that of the call before it.
func (p *Process) ilOffset(f *walk.Frame) (il, next uint32, exact, ok bool) {
	m, err := p.Runtime.IL.Of(f.Code)
	if err != nil || len(m) == 0 {
		return 0, 0, false, false
	}
	place := f.Place()
	at := uint32(place.IP - f.Code.MethodStart)
	if !place.Exact && at > 0 {
		at--
	}
	il, exact = m.IL(at)
	return il, m.Next(il), exact, true
}
