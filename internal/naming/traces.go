package naming

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// TraceFrame names a frame of an exception's stack trace. The name comes from the frame's
// MethodDesc, if the frame's address is in code of the same method: the memory of an unloaded
// method can belong to another method. above is the method that the frame has called; "": unknown.
func (s Stacks) TraceFrame(f *thread.TraceFrame, above string) snapshot.TraceFrame {
	if s.runtime == nil {
		return s.traceFrameAhead(f)
	}
	out := snapshot.TraceFrame{EndsTrace: f.EndsTrace}
	out.Kind, out.IP, out.SP, out.FunctionID = snapshot.Managed, uint64(f.IP), uint64(f.SP), uint64(f.Method)
	out.Display = fmt.Sprintf("[method %v]", f.Method)
	out.Short = out.Display
	if f.IP == 0 {
		if m, err := s.runtime.Methods.Read(f.Method); err == nil {
			_, _ = s.nameMethod(&out.Frame, &m, true) // else the placeholder stays
		}
		return out
	}
	code, err := s.engine.Code(f.IP, f.Method)
	if err != nil || code.MethodDesc != f.Method || !code.Kind.Managed() {
		return out
	}
	// For the line, an address within an instruction is as good as the address where execution goes
	// on.
	m, err := s.methodFrame(&out.Frame, &code, f.IP, walk.Place{IP: f.IP, Exact: true}, above)
	if err != nil {
		return out
	}
	out.Hidden, _ = s.runtime.Names.HiddenInTraces(&m.Method)
	if suspends, err := s.runtime.Names.Suspends(&m.Method); err == nil && suspends {
		out.EndsTrace = false // as .NET prints: an async method throws the awaited exception again
	}
	if f.Resumed {
		at := async.Resumption{IP: f.IP, State: noState}
		out.Line = s.resumptionLine(&m, &code, &at, out.Module, source.LastName(above))
		return out
	}
	s.confirmLine(&out.Frame, &m, &code, above)
	return out
}

// noState is the number of an unknown suspension point.
const noState = -1

// confirmLine makes an approximate line of a trace's frame certain if the call has the same line.
// If the call has another line, the frame keeps the line of the address alone, as .NET prints.
func (s Stacks) confirmLine(f *snapshot.Frame, m *ImageMethod, code *codemap.Code, above string) {
	if source.LastName(above) == "" || f.Line == nil || !f.Line.Approximate {
		return
	}
	behind := walk.Place{IP: arch.Addr(f.IP) + 1} // an address in the call
	if l := s.line(m, code, behind, f.Module, above); l != nil && !l.Approximate && l.Line == f.Line.Line &&
		l.File == f.Line.File {
		f.Line = l
	}
}

// longestCall is the length of a call instruction, in bytes.
const longestCall = 8

// traceFrameAhead is TraceFrame.
func (s Stacks) traceFrameAhead(f *thread.TraceFrame) snapshot.TraceFrame {
	out := snapshot.TraceFrame{EndsTrace: f.EndsTrace}
	out.Kind, out.IP = snapshot.Managed, uint64(f.IP)
	out.Display = fmt.Sprintf("[code at %v]", f.IP)
	out.Short = out.Display
	if s.engine.Ahead == nil || s.found == nil || s.found.Module == nil {
		return out
	}
	in := s.found.Module
	at := f.IP
	if code, err := target.NewReader(s.engine.Cache).Bytes(at-longestCall, longestCall); err == nil &&
		s.engine.Arch.EndsInCall(code) {
		at-- // in the call
	}
	m, start, ok := s.methodAhead(in, at)
	out.Hidden = s.engine.Ahead.Hidden(start)
	if !ok {
		if s.nameNative(&out.Frame, nativePlace{in, f.IP, at}); out.Method != "" {
			out.Kind, out.Module = snapshot.Native, in.Name
		}
		return out
	}
	out.Tier, out.Offset = TierAhead, uint64(f.IP-start)
	setName(&out.Frame, &m)
	if s.lines != nil {
		out.Line = s.lineAhead(nativePlace{in, f.IP, at}, start)
	}
	return out
}
