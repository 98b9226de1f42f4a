package naming

import (
	"io/fs"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// sourceFiles are the target's files and symbols, for package source.
type sourceFiles struct {
	target.Memory
	of *Namer
}

func (s sourceFiles) OpenFile(path string) (target.File, error) { return s.of.target.OpenFile(path) }

func (s sourceFiles) File(m *source.Module) (string, bool) {
	return s.of.imageFile(m.Assembly, m.Image)
}

func (s sourceFiles) SymbolStream(module arch.Addr) (arch.Addr, uint32) {
	at, size, err := s.of.runtime.Names.SymbolStream(module)
	if err != nil {
		return 0, 0
	}
	return at, size
}

func (s sourceFiles) Unproved(module arch.Addr) bool {
	a, err := s.of.runtime.Names.Assembly(module)
	return err == nil && a.Unproved
}

func (s sourceFiles) Bundle() (target.File, string, error) {
	in := s.of.singleFile()
	if in == nil {
		return nil, "", fs.ErrNotExist
	}
	m := s.of.engine.Maps.Find(in.Start)
	if m == nil || !m.IsFile() {
		return nil, "", fs.ErrNotExist
	}
	f, err := s.of.target.OpenMapping(m)
	return f, m.Path, err
}

// lines are the source lines of code that stays; nil stands for no line.
type lines struct {
	finder *source.Finder
	known  map[walk.Place]*snapshot.SourceLine
	native map[nativePlace]*snapshot.SourceLine // ip is 0
	late   bool                                 // frames get no lines now: see Place
	maps   map[arch.Addr]ilmap.Map              // of code that stays, by its start
	awaits map[AwaitKey]*snapshot.SourceLine
	// the IL offsets of the awaits at which a method may be suspended; the runtime itself has suspended the method
	resumed map[ResumedKey][]uint32
}

// AwaitKey is an await of a method.
type AwaitKey struct {
	Module arch.Addr
	Method uint32
	State  int32
}

// ResumedKey is a method of a chain: where the method continues, and its callee.
type ResumedKey struct {
	IP    arch.Addr
	State int32
	Inner string
}

func newLines(f *source.Finder) *lines {
	return &lines{
		finder: f, known: map[walk.Place]*snapshot.SourceLine{}, native: map[nativePlace]*snapshot.SourceLine{},
		maps: map[arch.Addr]ilmap.Map{}, awaits: map[AwaitKey]*snapshot.SourceLine{},
		resumed: map[ResumedKey][]uint32{},
	}
}

// maxLines bounds the remembered lines: 100 bytes each, more or less.
const maxLines = 1 << 16

// maxMaps bounds the remembered IL maps: some kilobytes each.
const maxMaps = 1 << 8

// of returns the line of a native frame; nil: there is none.
func (l *lines) of(f nativePlace) *snapshot.SourceLine {
	key := nativePlace{module: f.module, at: f.at}
	if line, ok := l.native[key]; ok {
		return line
	}
	var line *snapshot.SourceLine
	if at, err := f.module.Line(f.at); err == nil {
		line = &snapshot.SourceLine{File: at.File, Line: at.Line, Column: at.Column}
	}
	if len(l.native) >= maxLines {
		clear(l.native)
	}
	l.native[key] = line
	return line
}

// sourceLine converts a line for a frame.
func sourceLine(l *source.Line, approximate bool) *snapshot.SourceLine {
	return &snapshot.SourceLine{
		File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate || approximate,
	}
}

// lateLine is a place in managed code, and the line of frames there. The line is still empty.
type lateLine struct {
	line     *snapshot.SourceLine
	assembly *source.Assembly
	code     codemap.Code
	at       walk.Place
	method   method.Method
	above    string // the method of the frame above
	il, next uint32
	exact    bool
}

// lineIn returns the line of a place.
func (n *Namer) lineIn(l *lateLine) (source.Line, error) {
	m, callee := &l.method, source.LastName(l.above)
	if l.at.Exact || callee == "" {
		return l.assembly.LineIn(m.RID, l.il, l.next)
	}
	sites, err := n.sites(m)
	if err != nil { // for example for IL that a profiler has replaced
		line, err := l.assembly.LineIn(m.RID, l.il, l.next)
		line.Approximate = true
		return line, err
	}
	// Tier-0 code can be optimised: code with a loop is optimised if the runtime has no OSR.
	tier, _ := n.runtime.Methods.Tier(m, &l.code)
	call := source.Call{IL: l.il, Next: l.next, Callee: callee, Optimized: tier != method.TierMinOpts, Sites: sites}
	return l.assembly.LineOfCall(m.RID, &call)
}

// ILOffset returns the IL offset of a place in code, and the next IL offset with code of its own. A return address
// counts as the call before it.
func (n *Namer) ILOffset(code *codemap.Code, at walk.Place) (il, next uint32, exact, ok bool) {
	m, err := n.ilMap(code)
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
func (n *Namer) ilMap(c *codemap.Code) (ilmap.Map, error) {
	if n.lines == nil || c.Collectible {
		return n.runtime.IL.Of(c)
	}
	if m, ok := n.lines.maps[c.MethodStart]; ok {
		return m, nil
	}
	m, err := n.runtime.IL.Of(c)
	if err == nil {
		if len(n.lines.maps) >= maxMaps {
			clear(n.lines.maps)
		}
		n.lines.maps[c.MethodStart] = m
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
func (n *Namer) LinesLater() *source.Finder {
	if n.lines == nil {
		return nil
	}
	n.lines.late = true
	return n.lines.finder
}

// Place returns the place of a named frame; false: the method has no place, or no lines are wanted.
func (n *Namer) Place(f *walk.Frame, named *NamedFrame) (Place, bool) {
	if n.lines == nil || f.Kind != walk.Managed || !named.Of.HasPlace() {
		return Place{}, false
	}
	out := Place{Module: named.Of.assembly(f.Code, named.Module), Method: named.Of.RID, IL: -1}
	if il, next, exact, ok := n.ILOffset(f.Code, f.Place()); ok && il < math.MaxInt32 {
		out.IL, out.Next, out.Nearest = int32(il), int32(min(next, math.MaxInt32)), !exact
	}
	return out, true
}

// Sites returns the known call sites of a frame's method.
func (n *Namer) Sites(named *NamedFrame) []source.Site {
	sites, err := n.sites(&named.Of.Method)
	if err != nil {
		return nil
	}
	return sites
}

func (n *Namer) sites(m *method.Method) ([]source.Site, error) {
	named, err := n.runtime.Names.Sites(m)
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
	return n.Of.assembly(f.Code, n.Module), n.Of.HasPlace()
}

// assembly is the method's assembly, which has a name. The method has some code.
func (m *ImageMethod) assembly(c *codemap.Code, name string) source.Module {
	return source.Module{Assembly: name, Address: m.Module, Image: m.Image, Passing: c.Collectible}
}
