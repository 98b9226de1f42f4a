package session

import (
	"errors"
	"math"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/inlining"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/source"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Call is a call by managed code. Other methods may have been inlined at the call. A Call stays
// valid after the walk.
type Call struct {
	Frame  int // index of the caller in the stack, leaf first
	Code   codemap.Code
	IP     arch.Addr // return address
	Callee arch.Addr // MethodDesc of the called frame, or of the P/Invoke that the caller is in
}

// inlined remembers the methods inlined at calls.
type inlined struct {
	known    map[callKey][]InlinedFrame
	profiler bool // a profiler is loaded, and may have the runtime compile other IL
	modules  int  // number of modules at the latest search for a profiler
}

type callKey struct{ ip, callee arch.Addr }

// InlinedFrame is an inlined method: a frame without registers, and the IL place of the call in
// progress within the method. Without a module the place is unknown, or no lines are wanted.
type InlinedFrame struct {
	Frame profile.Frame
	Place Place
}

// maxInlined bounds the calls with remembered inlined methods: about 300 bytes each.
const maxInlined = 1 << 14

// Call describes the call in progress in a managed frame; above is the called frame. False: nothing
// can be said about the call.
func (p *Process) Call(f *walk.Frame, frame int, above *profile.Frame) (Call, bool) {
	if p.inlined == nil || f.Kind != walk.Managed || f.Exact || f.Code.Collectible {
		return Call{}, false
	}
	c := Call{Frame: frame, Code: *f.Code, IP: f.IP(), Callee: f.Callee()}
	if above.Kind == profile.Managed {
		c.Callee = arch.Addr(above.FunctionID)
	}
	return c, c.Callee != 0
}

// callsByThread holds the calls of stacks, by thread id.
type callsByThread map[int]keptCalls

func (c callsByThread) keep(tid int, calls keptCalls) {
	if calls.len() > 0 {
		c[tid] = calls
	}
}

// addInlined adds to captured stacks the methods that were certainly inlined at the stacks' calls.
func (p *Process) addInlined(threads []profile.Thread, calls callsByThread) {
	if !p.Options.Inlined || p.inlined == nil || len(calls) == 0 || p.profiled() {
		return
	}
	p.Engine.Begin() // the runtime records inlining before the code runs, but perhaps not long before
	var buf []Call
	var packed packing
	for i := range threads {
		t := &threads[i]
		kept, ok := calls[t.OSThreadID]
		if !ok {
			continue
		}
		buf = kept.unpack(buf[:0])
		if t.Packed != nil {
			p.packInlined(&packed, t, buf)
		} else {
			t.Frames = p.withInlined(nil, t.Frames, buf)
		}
	}
}

// callsForWaits is the number of calls kept of a stack, from the leaf on, if inlined methods are
// not wanted: the calls serve to find inlined primitives.
const callsForWaits = 16

// withPrimitive returns the frames that describe the wait of the thread just walked. Most often
// these are the frames of the thread's stack. But the caller of the outermost primitive may
// certainly have reached the primitive through another, inlined primitive: the JIT inlines
// ManualResetEventSlim.Wait, say, and Monitor.Wait has a frame. Then the inlined primitive is
// added. An inlined method gets the part of the stack that belongs to the caller; the caller has no
// part left then.
func (p *Process) withPrimitive(frames []profile.Frame, calls []Call) []profile.Frame {
	at := profile.PrimitiveOf(frames).Outer + 1
	if first := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind == profile.Managed }); at <= first {
		at = first // no primitive has a frame
	}
	i := slices.IndexFunc(calls, func(c Call) bool { return c.Frame == at })
	if i < 0 || at+1 >= len(frames) || frames[at+1].SP <= frames[at].SP || p.profiled() {
		return frames
	}
	found := p.InlinedAt(&calls[i])
	if len(found) == 0 || profile.PrimitiveOf([]profile.Frame{found[0].Frame}).Kind == "" {
		return frames
	}
	out := p.withInlined(nil, frames, calls[i:i+1])
	outer := profile.PrimitiveOf(out).Outer
	if outer < at {
		return frames
	}
	for k := outer + 1; k <= at+len(found); k++ {
		out[k].SP = frames[at+1].SP
	}
	return out
}

// agentLibrary is our own profiler, and changes no IL.
const agentLibrary = "libclrsnap-agent.so"

// profiled reports whether a profiler is loaded: a library with the entry point by which the
// runtime finds a profiler. A profiler can have methods compiled from other IL than the assembly's.
// The assembly's IL proves nothing then.
func (p *Process) profiled() bool {
	modules := p.Engine.Modules.All()
	if p.inlined.modules == len(modules) {
		return p.inlined.profiler
	}
	p.inlined.modules = len(modules)
	p.inlined.profiler = false
	for _, m := range modules {
		if strings.HasPrefix(m.Name, agentLibrary) {
			continue
		}
		if at, err := m.Lookup("DllGetClassObject"); err == nil && at != 0 {
			p.inlined.profiler = true
		}
	}
	return p.inlined.profiler
}

// withInlined adds to a stack, leaf first, the methods that were certainly inlined at the stack's
// calls. calls are in ascending order of frames. The calls should be examined after the capture of
// the stack: the data read by then includes every method inlined into the stack's methods. The
// result is appended to out, or is frames if nothing was inlined.
func (p *Process) withInlined(out, frames []profile.Frame, calls []Call) []profile.Frame {
	from, begin := 0, len(out)
	for i := range calls {
		c := &calls[i]
		found := p.InlinedAt(c)
		if len(found) == 0 || c.Frame >= len(frames) {
			continue
		}
		out = append(out, frames[from:c.Frame]...)
		for i := range found {
			caller, f := &frames[c.Frame], found[i].Frame
			f.IP, f.SP, f.Tier = caller.IP, caller.SP, caller.Tier
			out = append(out, f)
		}
		from = c.Frame
	}
	if len(out) == begin {
		return frames
	}
	return append(out, frames[from:]...)
}

// BeginInlined begins a moment for calls of InlinedAt; false: nothing can be said.
func (p *Process) BeginInlined() bool {
	if p.inlined == nil || p.profiled() {
		return false
	}
	p.Engine.Begin()
	return true
}

// InlinedIn is InlinedAt of a call by a method. InlinedIn finds the code of the method, and says
// nothing about collectible code.
func (p *Process) InlinedIn(c Call, method arch.Addr) []InlinedFrame {
	if p.inlined == nil {
		return nil
	}
	if found, ok := p.inlined.known[callKey{c.IP, c.Callee}]; ok {
		return found
	}
	code, err := p.Engine.Code(c.IP, method)
	if err != nil || code.MethodDesc != method || code.Collectible || !p.BeginInlined() {
		return nil
	}
	c.Code = code
	return p.InlinedAt(&c)
}

// InlinedAt returns the methods that were certainly inlined at a call, innermost first. The result
// is remembered.
func (p *Process) InlinedAt(c *Call) []InlinedFrame {
	key := callKey{c.IP, c.Callee}
	if found, ok := p.inlined.known[key]; ok {
		return found
	}
	found, err := p.findInlined(c)
	if err != nil {
		return nil // the data may be readable the next time
	}
	if len(p.inlined.known) >= maxInlined {
		clear(p.inlined.known)
	}
	p.inlined.known[key] = found
	return found
}

// findInlined is InlinedAt without remembered results.
func (p *Process) findInlined(c *Call) ([]InlinedFrame, error) {
	found, err := p.certainAt(c)
	if err != nil {
		return nil, err
	}
	var out []InlinedFrame
	for i := range slices.Backward(found) {
		f, err := p.inlinedFrame(&found[i])
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// certainAt returns the methods that were certainly inlined at a call, outermost first: the methods
// recorded by the runtime, or the proved methods if there are more.
func (p *Process) certainAt(c *Call) ([]inlining.Frame, error) {
	found, _, err := p.Recorded(c)
	if err != nil {
		return nil, err
	}
	proved, err := p.Proved(c)
	if err != nil && !errors.Is(err, inlining.ErrUnknown) {
		return nil, err
	}
	if len(proved) > len(found) { // a method inlined several times is certain, but the occurrence is not
		found = proved
	}
	return found, nil
}

// Recorded returns the runtime's record of the methods inlined at a call, outermost first; false:
// there is no record, as usual.
func (p *Process) Recorded(c *Call) (found []inlining.Frame, ok bool, err error) {
	t, err := p.Runtime.IL.Tree(&c.Code)
	if err != nil || t == nil {
		return nil, false, err
	}
	callee, ok, err := p.called(c)
	if err != nil || !ok {
		return nil, true, err
	}
	found, err = p.Runtime.Inlined.Recorded(t, uint32(c.IP-c.Code.MethodStart), callee)
	return found, true, err
}

// Proved returns the methods that were certainly inlined at a call in code without a record,
// outermost first.
func (p *Process) Proved(c *Call) ([]inlining.Frame, error) {
	of, ok, err := p.Runtime.Inlined.Definition(c.Code.MethodDesc)
	if err != nil || !ok {
		return nil, err
	}
	callee, ok, err := p.called(c)
	if err != nil || !ok {
		return nil, err
	}
	points, err := p.Runtime.IL.Of(&c.Code)
	if err != nil {
		return nil, err
	}
	start, end := points.Statement(uint32(c.IP - 1 - c.Code.MethodStart))
	return p.Runtime.Inlined.Prove(&c.Code, of, callee, inlining.Range{Start: start, End: end})
}

// called returns the method that a call calls; false: the method is not certain. The frame above
// may belong to another method: a method may have left the frame to the target of a tail call.
func (p *Process) called(c *Call) (d inlining.Definition, ok bool, err error) {
	above, err := p.Runtime.Methods.Read(c.Callee)
	if err != nil {
		return d, false, err
	}
	desc := c.Callee
	if above.Class != method.PInvoke { // else the code itself calls the P/Invoke
		if desc, err = p.Runtime.Inlined.Callee(c.IP); err != nil || desc == 0 {
			return d, false, err
		}
	}
	return p.Runtime.Inlined.Definition(desc)
}

func (p *Process) inlinedFrame(f *inlining.Frame) (out InlinedFrame, err error) {
	n, err := p.nameInlined(f)
	if err != nil {
		return out, err
	}
	out.Frame = profile.Frame{
		Kind: profile.Managed, Inlined: true, FunctionID: uint64(f.Desc), Method: n.Exact, Display: n.Display,
		Short: n.Short, Signature: n.Signature, Module: n.Assembly, Owner: p.Owner(n.Assembly, n.Image),
		Unproved: n.Unproved,
	}
	if p.lines == nil || n.Image == 0 {
		return out, nil
	}
	out.Place = Place{
		Module: source.Module{Assembly: n.Assembly, Address: f.Module, Image: n.Image}, Method: f.RID, IL: -1,
	}
	if f.HasIL && f.IL < math.MaxInt32 {
		out.Place.IL, out.Place.Next = int32(f.IL), int32(f.IL)+1
		if !p.lines.late {
			out.Frame.Line = p.lineAt(&out.Place)
		}
	}
	return out, nil
}

func (p *Process) nameInlined(f *inlining.Frame) (name.Method, error) {
	if f.Desc == 0 {
		return p.Runtime.Names.Definition(f.Module, f.RID)
	}
	m, err := p.Runtime.Methods.Read(f.Desc)
	if err != nil {
		return name.Method{}, err
	}
	return p.Runtime.Names.Method(&m, false)
}

// lineAt returns the source line of an inlined method's call; nil: there is none.
func (p *Process) lineAt(at *Place) *profile.SourceLine {
	a, err := p.lines.finder.Assembly(&at.Module)
	if err != nil {
		return nil
	}
	l, err := a.Line(at.Method, uint32(at.IL))
	if err != nil {
		return nil
	}
	return &profile.SourceLine{File: l.File, Line: l.Line, Column: l.Column, URL: l.URL, Approximate: l.Approximate}
}
