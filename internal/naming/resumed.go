package naming

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/source"
	"clrsnap/snapshot"
)

// The methods that the runtime itself suspends (async.Resumption), and the lines of their awaits.
//
// A Continuation has an address in the method's code, and the number of the suspension point. The code's debug info
// has a point for suspensions at the very address. But optimised code lacks the point if the await's helper was
// inlined. The point before then belongs to another await, and equal awaits of several lines may have become one. So
// a line is shown only if all possible awaits are on the line: no line is better than a wrong line.

// resumptionFrame describes a method suspended by the runtime itself, with a line. inner is the step that the method
// awaits; nil: none.
func (n *Namer) resumptionFrame(m *async.Resumption, inner *async.Step) snapshot.Frame {
	called := n.StepName(inner)
	f, code := n.ResumedFrame(m)
	if code != nil {
		f.Line = n.resumptionLine(&f.Of, code, m, f.Module, called)
	}
	return f.Frame
}

// ResumedFrame is resumptionFrame without a line. code is nil if the method is not known.
func (n *Namer) ResumedFrame(m *async.Resumption) (f NamedFrame, code *codemap.Code) {
	f.Kind, f.IP, f.Display = snapshot.Async, uint64(m.IP), fmt.Sprintf("[code at %v]", m.IP)
	f.Short = f.Display
	if n.runtime == nil {
		n.NameResumedAhead(&f.Frame, m.IP)
		return f, nil
	}
	c, err := n.runtime.Code.Lookup(m.IP)
	if err != nil || c.MethodDesc == 0 {
		return f, nil
	}
	if f.Of, _, err = n.nameCode(&f.Frame, &c, m.IP); err != nil { // the frame itself says so
		return f, nil
	}
	if f.Generics == snapshot.SharedGenerics && m.Context != 0 {
		n.nameSaved(&f.Frame, &f.Of.Method, m.Context, c.Collectible)
	}
	return f, &c
}

// resumptionLine returns the line of the await at which a method of an assembly is suspended; nil: the line is not
// known.
func (n *Namer) resumptionLine(
	of *ImageMethod, code *codemap.Code, m *async.Resumption, assembly, inner string,
) *snapshot.SourceLine {
	if n.lines == nil || n.lines.late || !of.HasPlace() {
		return nil
	}
	in := of.assembly(code, assembly)
	a, err := n.lines.finder.Assembly(&in)
	if err != nil {
		return nil
	}
	return oneAwaitLine(a, of.RID, n.awaitILs(&of.Method, code, m, inner))
}

// oneAwaitLine returns the common line of some IL offsets of a method; nil: there are several lines, or none.
func oneAwaitLine(a *source.Assembly, rid uint32, ils []uint32) (out *snapshot.SourceLine) {
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

// awaitILs is FindAwaitILs. For code that stays, the offsets are found once.
func (n *Namer) awaitILs(of *method.Method, code *codemap.Code, m *async.Resumption, inner string) []uint32 {
	key := ResumedKey{m.IP, m.State, inner}
	if il, ok := n.lines.resumed[key]; ok && !code.Collectible {
		return il
	}
	il, err := n.FindAwaitILs(of, code, m, inner)
	if err == nil && !code.Collectible {
		if len(n.lines.resumed) >= maxLines {
			clear(n.lines.resumed)
		}
		n.lines.resumed[key] = il
	}
	return il
}

// FindAwaitILs returns the IL offsets of the possible awaits of a method. inner is the name of the callee whose task
// the method awaits; "": not known.
func (n *Namer) FindAwaitILs(
	of *method.Method, code *codemap.Code, m *async.Resumption, inner string,
) ([]uint32, error) {
	points, err := n.ilMap(code)
	if err != nil {
		return nil, err
	}
	awaits, err := n.runtime.Names.Awaits(of.Module, of.RID)
	if err != nil {
		return nil, err
	}
	il, exact := points.Await(uint32(m.IP - code.MethodStart))
	if len(awaits) == 0 { // the method is not async, and returns the task of another method
		if exact {
			return []uint32{il}, nil
		}
		return nil, nil
	}
	suspensions, err := n.runtime.IL.Suspensions(code)
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

// awaitOf returns the await of the code at an IL offset. An await's code begins with the call that makes the awaited
// object; -1: the offset belongs to no await.
func awaitOf(awaits []name.Await, il uint32) int {
	return slices.IndexFunc(awaits, func(a name.Await) bool { return a.IL >= il })
}

// resumedAt is the knowledge of where a method is suspended.
type resumedAt struct {
	awaits  []name.Await
	pointed []bool // the awaits with a point for suspensions in the code
	all     bool   // the code has as many suspension points as there are awaits: none was merged, or left out
	at      int    // the await of the point at the address; -1: there is none
	state   int32  // number of the suspension point
}

// candidates returns the awaits at which the method may be suspended.
func (s *resumedAt) candidates(inner string) (out []int) {
	numbered := s.all && s.state >= 0 && int(s.state) < len(s.awaits)
	for k := range s.awaits {
		can := false
		switch {
		case s.at >= 0 && numbered:
			can = k == s.at || k == int(s.state)
		case s.at >= 0: // an await without a point may have been merged with the await at the point
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

// StepName returns the name of a step's method, in the form of calls of the method; "": not known.
func (n *Namer) StepName(s *async.Step) string {
	switch {
	case s == nil:
		return ""
	case s.Resumption != nil:
		if m, _, ok := n.ResumedMethod(s.Resumption); ok {
			if name, err := n.runtime.Names.MethodName(m.Module, m.RID); err == nil {
				return source.LastName(name)
			}
		}
		return ""
	case s.Box != nil:
		_, class := s.Box.Fields()
		_, full, err := n.engine.Managed.Objects.FullName(class)
		if err != nil {
			return ""
		}
		return machineMethod(full)
	}
	return source.LastName(s.Label)
}

// machineMethod returns the name of the method of a state machine, by the C# compiler's name of the state machine's
// type: Type+<Method>d__3. An interface that the method implements explicitly stands before a dash.
func machineMethod(full string) string {
	full = full[strings.LastIndexByte(full, '+')+1:]
	end := strings.LastIndex(full, ">d")
	if end < 1 || full[0] != '<' {
		return ""
	}
	name := full[1:end]
	return name[strings.LastIndexByte(name, '-')+1:]
}

// ResumedMethod returns the method of a Continuation, and whether its code can be unloaded.
func (n *Namer) ResumedMethod(r *async.Resumption) (m method.Method, passing, ok bool) {
	if n.runtime == nil {
		return m, false, false
	}
	code, err := n.runtime.Code.Lookup(r.IP)
	if err != nil || code.MethodDesc == 0 {
		return m, false, false
	}
	known, err := n.MethodOf(&code)
	return known.Method, code.Collectible, err == nil && known.Method.HasMetadata()
}

// awaitHelpers begin the names of the runtime's own methods that suspend others. These methods do not await.
const awaitHelpers = "System.Runtime.CompilerServices.AsyncHelpers."

// ProgramSteps are the steps of a chain without the runtime's own steps: without helpers, and without the callers of
// methods compiled to a state machine. A caller only returns the method's task, and the method has its own box.
func (n *Namer) ProgramSteps(steps []async.Step) []async.Step {
	return slices.DeleteFunc(steps, func(s async.Step) bool {
		if s.Resumption == nil {
			return false
		}
		if n.runtime == nil {
			f, _ := n.ResumedFrame(s.Resumption)
			return f.Module == coreLib && strings.HasPrefix(f.Method, awaitHelpers)
		}
		m, passing, ok := n.ResumedMethod(s.Resumption)
		if !ok {
			return false
		}
		if has, err := n.runtime.Names.HasStateMachine(m.Module, m.RID); err == nil && has {
			return true
		}
		named, err := n.runtime.Names.Method(&m, passing)
		return err == nil && named.Assembly == coreLib && strings.HasPrefix(named.Exact, awaitHelpers)
	})
}

// resumedPlace is AwaitPlace of a method that the runtime itself has suspended.
func (n *Namer) resumedPlace(m *async.Resumption, inner *async.Step) (out Place, ok bool) {
	called := n.StepName(inner)
	f, code := n.ResumedFrame(m)
	if code == nil || !f.Of.HasPlace() {
		return out, false
	}
	out = Place{Module: f.Of.assembly(code, f.Module), Method: f.Of.RID, IL: -1}
	if il := n.awaitILs(&f.Of.Method, code, m, called); len(il) == 1 && il[0] < math.MaxInt32 {
		out.IL, out.Next = int32(il[0]), int32(il[0])+1
	}
	return out, true
}
