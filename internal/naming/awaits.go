package naming

import (
	"strings"

	"clrsnap/internal/clr/async"
	"clrsnap/internal/source"
	"clrsnap/snapshot"
)

// AsyncStep describes a step of a chain, with the line of the await. inner is the awaited step;
// nil: unknown.
func (n *Namer) AsyncStep(s, inner *async.Step) snapshot.Frame {
	if s.Resumption != nil {
		return n.resumptionFrame(s.Resumption, inner)
	}
	f := n.AsyncFrame(s)
	if s.Box != nil {
		f.Line = n.awaitLine(s.Box)
	}
	return f
}

// AsyncFrame describes a step of a chain, without a line.
func (n *Namer) AsyncFrame(s *async.Step) snapshot.Frame {
	if s.Resumption != nil {
		f, _ := n.ResumedFrame(s.Resumption)
		return f.Frame
	}
	if s.Box == nil {
		return snapshot.Frame{
			Kind: snapshot.Async, Method: s.Label, Display: s.Label, Short: shortLabel(s.Label), Module: coreLib,
		}
	}
	f := snapshot.Frame{Kind: snapshot.Async}
	n.setOwned(&f, &s.Box.Machine.Method)
	return f
}

// shortLabel cuts the namespace off the name of a method.
func shortLabel(name string) string {
	dot := strings.LastIndexByte(name, '.')
	return name[strings.LastIndexByte(name[:max(dot, 0)], '.')+1:]
}

// awaitLine returns the line of the await at which a method waits; nil: unknown.
func (n *Namer) awaitLine(b *async.Box) *snapshot.SourceLine {
	m := b.Machine
	if n.lines == nil || !b.HasState || b.State < 0 || m.Image == 0 {
		return nil
	}
	key := AwaitKey{m.Module, m.RID, b.State}
	if l, ok := n.lines.awaits[key]; ok && !m.Passing {
		return l
	}
	l := n.findAwaitLine(b)
	if !m.Passing {
		if len(n.lines.awaits) >= maxLines {
			clear(n.lines.awaits)
		}
		n.lines.awaits[key] = l
	}
	return l
}

func (n *Namer) findAwaitLine(b *async.Box) *snapshot.SourceLine {
	m := b.Machine
	in := moduleOf(m)
	a, err := n.lines.finder.Assembly(&in)
	if err != nil {
		return nil
	}
	stores, err := n.stateStores(m)
	if err != nil {
		return nil
	}
	l, err := a.AwaitLine(m.RID, stores, b.State)
	if err != nil {
		return nil
	}
	return sourceLine(&l, false)
}

// moduleOf is the assembly of a state machine.
func moduleOf(m *async.Machine) source.Module {
	return source.Module{Assembly: m.Assembly, Address: m.Module, Image: m.Image, Passing: m.Passing}
}

// stateStores returns the places where the IL of a MoveNext sets the state of the state machine.
func (n *Namer) stateStores(m *async.Machine) ([]source.StateStore, error) {
	stores, err := n.runtime.Names.StateStores(m.Module, m.RID)
	out := make([]source.StateStore, len(stores))
	for i, s := range stores {
		out[i] = source.StateStore(s)
	}
	return out, err
}

// AwaitPlace returns the IL place where a method of a chain waits: the place that sets the current
// state, or the await. inner is the awaited step; nil: none. False: the place is unknown, or no
// lines are wanted.
func (n *Namer) AwaitPlace(s, inner *async.Step) (Place, bool) {
	if n.lines != nil && s.Resumption != nil {
		return n.resumedPlace(s.Resumption, inner)
	}
	if n.lines == nil || s.Box == nil || !s.Box.HasState || s.Box.State < 0 || s.Box.Machine.Image == 0 {
		return Place{}, false
	}
	m := s.Box.Machine
	out := Place{Module: moduleOf(m), Method: m.RID, IL: -1}
	stores, err := n.stateStores(m)
	if err != nil {
		return out, true
	}
	found := 0
	for _, x := range stores {
		if x.State == s.Box.State {
			out.IL, out.Next = int32(x.IL), int32(x.IL)+1
			found++
		}
	}
	if found != 1 {
		out.IL, out.Next = -1, 0
	}
	return out, true
}
