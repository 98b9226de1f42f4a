package naming

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Frame names a walked frame. above is the method of the frame above; "": the frame above is not managed, or there is
// no frame above. With an error the frame has a placeholder in place of its name.
func (n *Namer) Frame(f *walk.Frame, above string) (NamedFrame, error) {
	return n.Stacks().Frame(f, above)
}

// LastingFrame is Frame for names that are kept. An instantiation of shared generic code is named only if the frame's
// Context tells the instantiation, and the instantiation cannot be unloaded. Native frames have no lines: the first
// line of a library takes long to read.
func (n *Namer) LastingFrame(f *walk.Frame) (NamedFrame, error) {
	how := Stacks{Namer: n, lasting: true}
	if n.options.ExactGenerics && (f.Code == nil || !f.Code.Collectible) {
		how.generics = lastingInstance
	}
	return how.Frame(f, "")
}

// Stacks names the frames of stacks, all in one way.
type Stacks struct {
	*Namer
	generics instances
	lasting  bool  // names are kept
	late     *late // notes what lacks symbols, to be fetched later; nil: nothing is fetched
}

// Stacks returns how the frames of a snapshot's stacks are named.
func (n *Namer) Stacks() Stacks {
	s := Stacks{Namer: n}
	if n.options.ExactGenerics {
		s.generics = anyInstance
	}
	return s
}

// instances says which instantiations of shared generic code are named.
type instances uint8

const (
	noInstance instances = iota
	lastingInstance
	anyInstance
)

// Frame is Namer.Frame.
func (s Stacks) Frame(f *walk.Frame, above string) (out NamedFrame, err error) {
	switch f.Kind {
	case walk.Managed:
		return s.managedFrame(f, above)
	case walk.Stub:
		out.Frame = s.stubFrame(f)
		return out, nil
	}
	out.Frame = s.bare(f, snapshot.Native)
	out.Module, out.Offset = f.Module.Name, f.Module.Offset(f.IP())
	if s.nameAhead(&out.Frame, f) {
		return out, nil
	}
	s.nameNative(&out.Frame, placeOf(f))
	if s.late != nil && (out.Method == "" || s.lines != nil && out.Line == nil) && f.Module.Wanted() {
		s.late.addNative(f)
	}
	return out, nil
}

func (s Stacks) managedFrame(f *walk.Frame, above string) (out NamedFrame, err error) {
	out.Frame = s.bare(f, snapshot.Managed)
	if out.Of, err = s.methodFrame(&out.Frame, f.Code, f.IP(), f.Place(), above); err != nil {
		return out, err
	}
	if out.Generics == snapshot.SharedGenerics && s.generics != noInstance {
		s.nameInstance(&out, f)
	}
	if s.engine.Walker.Filter(f) {
		out.Display += " [filter]"
		out.Short += " [filter]"
	}
	if out.Tier == string(method.TierILStub) && out.Method == name.PInvokeStub {
		if call, ok := s.callee(f); ok {
			out.Display = call.Display()
			out.Short = out.Display
		}
	}
	return out, nil
}

// nameInstance names the instantiation that a frame of shared code runs, if it is known now, and not only later.
func (s Stacks) nameInstance(out *NamedFrame, f *walk.Frame) {
	exact, later, ok := s.instance(f, &out.Of.Method)
	if s.generics == lastingInstance && (later != nil || exact.Passing) {
		return
	}
	out.Later, out.Passing = later, exact.Passing
	if ok {
		exact.Rename(&out.Frame)
	}
}

// methodFrame names the method whose code is at ip. The place at is the method's, and above the method of the frame
// above. With an error, out has a placeholder in place of the name, or no tier.
func (s Stacks) methodFrame(
	out *snapshot.Frame, code *codemap.Code, ip arch.Addr, at walk.Place, above string,
) (ImageMethod, error) {
	m, tierErr, err := s.nameCode(out, code, ip)
	if err != nil {
		return m, err
	}
	out.Line = s.line(&m, code, at, out.Module, above)
	return m, tierErr
}

// line returns the source line of a place in code of a method, in an assembly; nil: there is no line. above is the
// method of the frame above.
func (s Stacks) line(m *ImageMethod, code *codemap.Code, at walk.Place, assembly, above string) *snapshot.SourceLine {
	if s.lines == nil || s.lines.late || !m.HasPlace() {
		return nil
	}
	if known, ok := s.lines.known[at]; ok && !code.Collectible {
		return known
	}
	in := m.assembly(code, assembly)
	a, err := s.lines.finder.Assembly(&in)
	wanted := err != nil && a != nil && a.Wanted() && s.late != nil
	if err != nil && !wanted {
		return nil
	}
	il, next, exact, ok := s.ILOffset(code, at)
	if !ok {
		return nil
	}
	var out *snapshot.SourceLine
	place := lateLine{
		assembly: a, code: *code, at: at, method: m.Method, above: above, il: il, next: next, exact: exact,
	}
	if wanted {
		if out = s.late.add(place); out == nil {
			return nil
		}
	} else {
		l, err := s.lineIn(&place)
		if err != nil {
			return nil
		}
		out = sourceLine(&l, !exact)
	}
	if !code.Collectible {
		if len(s.lines.known) >= maxLines {
			clear(s.lines.known)
		}
		s.lines.known[at] = out
	}
	return out
}

// nameNative gives a native frame a name and a line, as far as there are symbols.
func (s Stacks) nameNative(out *snapshot.Frame, f nativePlace) {
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

// nameAhead turns a frame walked as a native frame into the frame of a method compiled ahead of
// time. False: the function is no method, or has no name.
func (s Stacks) nameAhead(out *snapshot.Frame, f *walk.Frame) bool {
	if s.engine.Ahead == nil || f.Module == nil || f.Module != s.found.Module {
		return false
	}
	at := placeOf(f)
	m, start, ok := s.methodAhead(f.Module, at.at)
	if !ok {
		return false
	}
	out.Kind, out.Tier, out.Offset = snapshot.Managed, TierAhead, uint64(f.IP()-start)
	setName(out, &m)
	if s.lines != nil && !s.lasting {
		out.Line = s.lineAhead(at, start)
	}
	return true
}
