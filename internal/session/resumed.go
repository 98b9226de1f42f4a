package session

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/source"
	"clrsnap/profile"
)

// The methods that the runtime itself suspends (async.Resumption), and the lines of their awaits.
//
// A Continuation has an address in the method's code, and the number of the suspension point. The code's debug info has
// a point for suspensions at that very address. But optimised code lacks such points where the await's helper was
// inlined, the point before is then another await's, and equal awaits of several lines may have become one. So a line
// is shown if all awaits that it can be are on it, and none is rather than a wrong one.

// resumptionFrame describes a method that the runtime itself has suspended, with its line. inner is the step that it
// awaits; nil: none.
func (p *Process) resumptionFrame(m *async.Resumption, inner *async.Step) profile.Frame {
	called := p.stepName(inner)
	f, code := p.resumedFrame(m)
	if code != nil {
		f.Line = p.resumptionLine(code, m, f.Module, called)
	}
	return f
}

// resumedFrame is resumptionFrame without a line. It keeps what it read in p.method, if code is not nil.
func (p *Process) resumedFrame(m *async.Resumption) (f profile.Frame, code *codemap.Code) {
	f = profile.Frame{Kind: profile.Async, IP: uint64(m.IP)}
	f.Display = fmt.Sprintf("[code at %v]", m.IP)
	f.Short = f.Display
	c, err := p.Runtime.Code.Lookup(m.IP)
	if err != nil || c.MethodDesc == 0 {
		return f, nil
	}
	if _, err := p.nameCode(&f, &c, m.IP); err != nil { // it says itself what is not known
		return f, nil
	}
	if f.Generics == profile.SharedGenerics && m.Context != 0 {
		p.nameSaved(&f, m.Context, c.Collectible)
	}
	return f, &c
}

// resumedKey is a method of a chain: where it goes on, and what it has called.
type resumedKey struct {
	ip    arch.Addr
	state int32
	inner string
}

// resumptionLine returns the line of the await at which p.method is suspended; nil: it is not known.
func (p *Process) resumptionLine(
	code *codemap.Code, m *async.Resumption, assembly, inner string,
) *profile.SourceLine {
	if p.lines == nil || p.lines.late || p.image == 0 || !p.method.HasMetadata() {
		return nil
	}
	a, err := p.lines.finder.Assembly(&source.Module{
		Assembly: assembly, Address: p.method.Module, Image: p.image, Passing: code.Collectible,
	})
	if err != nil {
		return nil
	}
	return oneAwaitLine(a, p.method.RID, p.awaitILs(code, m, inner))
}

// oneAwaitLine returns the line that all of some IL offsets of a method are on; nil: they are on several, or have none.
func oneAwaitLine(a *source.Assembly, rid uint32, ils []uint32) (out *profile.SourceLine) {
	for _, il := range ils {
		l, err := a.Line(rid, il)
		if err != nil {
			return nil
		}
		if out == nil {
			out = sourceLine(&l, false)
		} else if l.File != out.File || l.Line != out.Line {
			return nil
		}
	}
	return out
}

// awaitILs returns the IL offsets of the awaits that p.method can be suspended at. inner is the name of the method
// whose task it awaits; "": it is not known. Of code that stays they are found once.
func (p *Process) awaitILs(code *codemap.Code, m *async.Resumption, inner string) []uint32 {
	key := resumedKey{m.IP, m.State, inner}
	if il, ok := p.lines.resumed[key]; ok && !code.Collectible {
		return il
	}
	il, err := p.findAwaitILs(code, m, inner)
	if err == nil && !code.Collectible {
		if len(p.lines.resumed) >= maxLines {
			clear(p.lines.resumed)
		}
		p.lines.resumed[key] = il
	}
	return il
}

func (p *Process) findAwaitILs(code *codemap.Code, m *async.Resumption, inner string) ([]uint32, error) {
	points, err := p.ilMap(code)
	if err != nil {
		return nil, err
	}
	awaits, err := p.Runtime.Names.Awaits(p.method.Module, p.method.RID)
	if err != nil {
		return nil, err
	}
	il, exact := points.Await(uint32(m.IP - code.MethodStart))
	if len(awaits) == 0 { // a method that is not async, and returns the task of another one
		if exact {
			return []uint32{il}, nil
		}
		return nil, nil
	}
	suspensions, err := p.Runtime.IL.Suspensions(code)
	if err != nil {
		return nil, err
	}
	s := resumedAt{awaits: awaits, all: suspensions == len(awaits), state: m.State, at: -1}
	if exact {
		if s.at = awaitOf(awaits, il); s.at < 0 {
			return []uint32{il}, nil
		}
	}
	s.pointed = make([]bool, len(awaits))
	for i := range points {
		if pt := &points[i]; pt.Async && pt.Mapped() {
			if k := awaitOf(awaits, pt.IL); k >= 0 {
				s.pointed[k] = true
			}
		}
	}
	var out []uint32
	for _, k := range s.candidates(inner) {
		out = append(out, awaits[k].IL)
	}
	return out, nil
}

// awaitOf returns which await the code of an IL offset belongs to: the call that makes what is awaited, or the await
// itself; -1: to none.
func awaitOf(awaits []name.Await, il uint32) int {
	return slices.IndexFunc(awaits, func(a name.Await) bool { return a.IL >= il })
}

// resumedAt is what is known of where a method is suspended.
type resumedAt struct {
	awaits  []name.Await
	pointed []bool // which of them have a point for suspensions in the code
	all     bool   // the code has as many suspension points as there are awaits: none was merged, or left out
	at      int    // the await of the point at the address; -1: there is none
	state   int32  // number of the suspension point
}

// candidates returns the awaits that it can be.
func (s *resumedAt) candidates(inner string) (out []int) {
	numbered := s.all && s.state >= 0 && int(s.state) < len(s.awaits)
	for k := range s.awaits {
		can := false
		switch {
		case s.at >= 0 && numbered:
			can = k == s.at || k == int(s.state)
		case s.at >= 0: // one without a point may have become one with it
			can = k == s.at || !s.pointed[k]
		case numbered:
			can = k == int(s.state)
		default:
			can = true
		}
		if can {
			out = append(out, k)
		}
	}
	if len(out) < 2 || inner == "" {
		return out
	}
	calls := slices.DeleteFunc(slices.Clone(out), func(k int) bool {
		return !slices.Contains(s.awaits[k].Calls, inner)
	})
	if len(calls) > 0 {
		return calls
	}
	return out
}

// stepName returns the name of a step's method, as calls of it have it; "": it is not known.
func (p *Process) stepName(s *async.Step) string {
	switch {
	case s == nil:
		return ""
	case s.Resumption != nil:
		if m, _, ok := p.resumedMethod(s.Resumption); ok {
			if n, err := p.Runtime.Names.MethodName(m.Module, m.RID); err == nil {
				return source.LastName(n)
			}
		}
		return ""
	case s.Box != nil:
		_, full := p.asyncReader().MachineName(s.Box.Machine)
		return machineMethod(full)
	}
	return source.LastName(s.Label)
}

// machineMethod returns the name of the method that the type of a state machine was made of, as the C# compiler names
// it: Type+<Method>d__3, with the interface before a dash if the method implements it explicitly.
func machineMethod(full string) string {
	full = full[strings.LastIndexByte(full, '+')+1:]
	end := strings.LastIndex(full, ">d")
	if end < 1 || full[0] != '<' {
		return ""
	}
	name := full[1:end]
	return name[strings.LastIndexByte(name, '-')+1:]
}

// resumedMethod returns the method of a Continuation, and whether its code can be unloaded.
func (p *Process) resumedMethod(r *async.Resumption) (m method.Method, passing, ok bool) {
	code, err := p.Runtime.Code.Lookup(r.IP)
	if err != nil || code.MethodDesc == 0 {
		return m, false, false
	}
	known, err := p.methodOf(&code)
	return known.method, code.Collectible, err == nil && known.method.HasMetadata()
}

// awaitHelpers begin the names of the runtime's own methods that suspend others: they are no code that awaits.
const awaitHelpers = "System.Runtime.CompilerServices.AsyncHelpers."

// programSteps are the steps of a chain without the runtime's own: helpers, and what a method that is compiled to a
// state machine is called by. That one only returns its task, and has a box of its own.
func (p *Process) programSteps(steps []async.Step) []async.Step {
	return slices.DeleteFunc(steps, func(s async.Step) bool {
		if s.Resumption == nil {
			return false
		}
		m, passing, ok := p.resumedMethod(s.Resumption)
		if !ok {
			return false
		}
		if has, err := p.Runtime.Names.HasStateMachine(m.Module, m.RID); err == nil && has {
			return true
		}
		n, err := p.Runtime.Names.Method(&m, passing)
		return err == nil && n.Assembly == coreLib && strings.HasPrefix(n.Exact, awaitHelpers)
	})
}

// resumedPlace is AwaitPlace of a method that the runtime itself has suspended.
func (p *Process) resumedPlace(m *async.Resumption, inner *async.Step) (out Place, ok bool) {
	called := p.stepName(inner)
	f, code := p.resumedFrame(m)
	if code == nil || p.image == 0 || !p.method.HasMetadata() {
		return out, false
	}
	out = Place{Module: p.module(code, f.Module), Method: p.method.RID, IL: -1}
	if il := p.awaitILs(code, m, called); len(il) == 1 && il[0] < math.MaxInt32 {
		out.IL, out.Next = int32(il[0]), int32(il[0])+1
	}
	return out, true
}
