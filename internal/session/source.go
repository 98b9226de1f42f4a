package session

import (
	"io/fs"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/locate"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// sourceFiles are the target's files and symbols, for package source.
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

func (s sourceFiles) Unproved(module arch.Addr) bool {
	a, err := s.p.Runtime.Names.Assembly(module)
	return err == nil && a.Unproved
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

// lines are the source lines of code that stays; nil stands for no line.
type lines struct {
	finder *source.Finder
	known  map[walk.Place]*profile.SourceLine
	native map[nativePlace]*profile.SourceLine // ip is 0
	late   bool                                // frames get no lines now: see Place
	maps   map[arch.Addr]ilmap.Map             // of code that stays, by its start
	awaits map[awaitKey]*profile.SourceLine
	// the IL offsets of the awaits at which a method may be suspended; the runtime itself has suspended the method
	resumed map[resumedKey][]uint32
}

func newLines(f *source.Finder) *lines {
	return &lines{
		finder: f, known: map[walk.Place]*profile.SourceLine{}, native: map[nativePlace]*profile.SourceLine{},
		maps: map[arch.Addr]ilmap.Map{}, awaits: map[awaitKey]*profile.SourceLine{},
		resumed: map[resumedKey][]uint32{},
	}
}

// maxLines bounds the remembered lines: 100 bytes each, more or less.
const maxLines = 1 << 16

// maxMaps bounds the remembered IL maps: some kilobytes each.
const maxMaps = 1 << 8

// line returns the source line of a place in code of a method, in an assembly; nil: there is no line. above is the
// method of the frame above.
func (n naming) line(m *imageMethod, code *codemap.Code, at walk.Place, assembly, above string) *profile.SourceLine {
	if n.lines == nil || n.lines.late || !m.hasPlace() {
		return nil
	}
	if s, ok := n.lines.known[at]; ok && !code.Collectible {
		return s
	}
	in := m.assembly(code, assembly)
	a, err := n.lines.finder.Assembly(&in)
	wanted := err != nil && a != nil && a.Wanted() && n.late != nil
	if err != nil && !wanted {
		return nil
	}
	il, next, exact, ok := n.ilOffset(code, at)
	if !ok {
		return nil
	}
	var s *profile.SourceLine
	place := lateLine{
		assembly: a, code: *code, at: at, method: m.Method, above: above, il: il, next: next, exact: exact,
	}
	if wanted {
		if s = n.late.add(place); s == nil {
			return nil
		}
	} else {
		l, err := n.lineIn(&place)
		if err != nil {
			return nil
		}
		s = sourceLine(&l, !exact)
	}
	if !code.Collectible {
		if len(n.lines.known) >= maxLines {
			clear(n.lines.known)
		}
		n.lines.known[at] = s
	}
	return s
}

// sourceLine converts a line for a frame.
func sourceLine(l *source.Line, approximate bool) *profile.SourceLine {
	return &profile.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || approximate,
	}
}

// lineIn returns the line of a place.
func (p *Process) lineIn(l *lateLine) (source.Line, error) {
	m, callee := &l.method, source.LastName(l.above)
	if l.at.Exact || callee == "" {
		return l.assembly.LineIn(m.RID, l.il, l.next)
	}
	sites, err := p.sites(m)
	if err != nil { // for example for IL that a profiler has replaced
		line, err := l.assembly.LineIn(m.RID, l.il, l.next)
		line.Approximate = true
		return line, err
	}
	// Tier-0 code can be optimised: code with a loop is optimised if the runtime has no OSR.
	tier, _ := p.Runtime.Methods.Tier(m, &l.code)
	call := source.Call{IL: l.il, Next: l.next, Callee: callee, Optimized: tier != method.TierMinOpts, Sites: sites}
	return l.assembly.LineOfCall(m.RID, &call)
}

// ilOffset returns the IL offset of a place in code, and the next IL offset with code of its own. A return address
// counts as the call before it.
func (p *Process) ilOffset(code *codemap.Code, at walk.Place) (il, next uint32, exact, ok bool) {
	m, err := p.ilMap(code)
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

// ilMap returns the IL map of code. The latest maps are kept, because several places in a method often follow each
// other.
func (p *Process) ilMap(c *codemap.Code) (ilmap.Map, error) {
	if p.lines == nil || c.Collectible {
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

// Place is the place of a managed frame in the IL of its method. It is enough to find the frame's line later.
type Place struct {
	Module  source.Module // the assembly
	Method  uint32        // row in the assembly's metadata
	IL      int32         // -1: not known
	Next    int32         // the code belongs to the IL from there up to here
	Nearest bool          // IL is the nearest offset before
}

// LinesLater says that frames get no lines from now on. It returns the finder of lines; nil: no lines are wanted.
func (p *Process) LinesLater() *source.Finder {
	if p.lines == nil {
		return nil
	}
	p.lines.late = true
	return p.lines.finder
}

// Place returns the place of a frame with the name n; false: the method has no place, or no lines are wanted.
func (p *Process) Place(f *walk.Frame, n *NamedFrame) (Place, bool) {
	if p.lines == nil || f.Kind != walk.Managed || !n.of.hasPlace() {
		return Place{}, false
	}
	out := Place{Module: n.of.assembly(f.Code, n.Module), Method: n.of.RID, IL: -1}
	if il, next, exact, ok := p.ilOffset(f.Code, f.Place()); ok && il < math.MaxInt32 {
		out.IL, out.Next, out.Nearest = int32(il), int32(min(next, math.MaxInt32)), !exact
	}
	return out, true
}

// Sites returns the known call sites of a frame's method.
func (p *Process) Sites(n *NamedFrame) []source.Site {
	sites, err := p.sites(&n.of.Method)
	if err != nil {
		return nil
	}
	return sites
}

func (p *Process) sites(m *method.Method) ([]source.Site, error) {
	named, err := p.Runtime.Names.Sites(m)
	if err != nil {
		return nil, err
	}
	out := make([]source.Site, len(named))
	for i, s := range named {
		out[i] = source.Site{IL: s.IL, Method: source.LastName(s.Method)}
	}
	return out, nil
}

// Assembly returns the assembly of a managed frame's method; false: the method has no assembly. f is the walked frame.
func (n *NamedFrame) Assembly(f *walk.Frame) (source.Module, bool) {
	return n.of.assembly(f.Code, n.Module), n.of.hasPlace()
}

// assembly is the method's assembly, which has a name. The method has some code.
func (m *imageMethod) assembly(c *codemap.Code, name string) source.Module {
	return source.Module{Assembly: name, Address: m.Module, Image: m.image, Passing: c.Collectible}
}
