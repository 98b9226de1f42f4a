package session

import (
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/ilmap"
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
	late   bool                    // frames get no lines now: see Place
	maps   map[arch.Addr]ilmap.Map // of code that stays, by its start
}

func newLines(f *source.Finder) *lines {
	return &lines{finder: f, known: map[lineKey]*profile.SourceLine{}, maps: map[arch.Addr]ilmap.Map{}}
}

type lineKey struct {
	ip    arch.Addr
	exact bool
}

// maxLines bounds the lines that are remembered: 100 bytes each, more or less.
const maxLines = 1 << 16

// maxMaps bounds the IL maps that are remembered: some kilobytes each.
const maxMaps = 1 << 8

// line returns the source line of a managed frame, whose method p.method is, in the assembly whose
// image is at base; nil: there is none.
func (p *Process) line(f *walk.Frame, base arch.Addr) *profile.SourceLine {
	if p.lines == nil || p.lines.late || base == 0 || !p.method.HasMetadata() {
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

// ilOffset returns the IL offset that a frame is at. A return address is that of the call before it.
func (p *Process) ilOffset(f *walk.Frame) (il uint32, exact, ok bool) {
	m, err := p.ilMap(f.Code)
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

// ilMap returns the IL map of code. Several instructions of a method are often asked for one after the other.
func (p *Process) ilMap(c *codemap.Code) (ilmap.Map, error) {
	if c.Collectible {
		return p.Runtime.IL.Of(c)
	}
	if m, ok := p.lines.maps[c.MethodStart]; ok {
		return m, nil
	}
	m, err := p.Runtime.IL.Of(c)
	if err == nil {
		if len(p.lines.maps) >= maxMaps {
			clear(p.lines.maps)
		}
		p.lines.maps[c.MethodStart] = m
	}
	return m, err
}

// Place is where a managed frame is in the IL of its method: what is needed to find its line later.
type Place struct {
	Image   arch.Addr // the assembly's
	Method  uint32    // its row in the assembly's metadata
	IL      int32     // -1: not known
	Nearest bool      // IL is the nearest offset before
}

// LinesLater says that frames get no lines from now on. It returns what finds them later; nil: no lines are
// wanted.
func (p *Process) LinesLater() *source.Finder {
	if p.lines == nil {
		return nil
	}
	p.lines.late = true
	return p.lines.finder
}

// Place returns the place of the frame that has just been named; false: its method has none, or no lines are
// wanted.
func (p *Process) Place(f *walk.Frame) (Place, bool) {
	if p.lines == nil || f.Kind != walk.Managed || p.image == 0 || !p.method.HasMetadata() {
		return Place{}, false
	}
	out := Place{Image: p.image, Method: p.method.RID, IL: -1}
	if il, exact, ok := p.ilOffset(f); ok && il <= math.MaxInt32 {
		out.IL, out.Nearest = int32(il), !exact
	}
	return out, true
}

// Image is where the image of the assembly is whose method has just been named; 0: the method has none.
func (p *Process) Image() arch.Addr {
	if !p.method.HasMetadata() {
		return 0
	}
	return p.image
}
