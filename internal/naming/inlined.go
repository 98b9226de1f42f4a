package naming

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
	"clrsnap/snapshot"
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
	known    map[CallKey][]InlinedFrame
	profiler bool // a profiler is loaded, and may have the runtime compile other IL
	modules  int  // number of modules at the latest search for a profiler
}

// CallKey identifies a call.
type CallKey struct{ ip, callee arch.Addr }

// Key identifies the call.
func (c *Call) Key() CallKey { return CallKey{c.IP, c.Callee} }

// InlinedFrame is an inlined method: a frame without registers, and the IL place of the call in
// progress within the method. Without a module the place is unknown, or no lines are wanted.
type InlinedFrame struct {
	Frame snapshot.Frame
	Place Place
}

// maxInlined bounds the calls with remembered inlined methods: about 300 bytes each.
const maxInlined = 1 << 14

// Call describes the call in progress in a managed frame; above is the called frame. False: nothing
// can be said about the call.
func (n *Namer) Call(f *walk.Frame, frame int, above *snapshot.Frame) (Call, bool) {
	if n.inlined == nil || f.Kind != walk.Managed || f.Exact || f.Code.Collectible {
		return Call{}, false
	}
	c := Call{Frame: frame, Code: *f.Code, IP: f.IP(), Callee: f.Callee()}
	if above.Kind == snapshot.Managed {
		c.Callee = arch.Addr(above.FunctionID)
	}
	return c, c.Callee != 0
}

// WithPrimitive returns the frames that describe the wait of the thread just walked. Most often
// these are the frames of the thread's stack. But the caller of the outermost primitive may
// certainly have reached the primitive through another, inlined primitive: the JIT inlines
// ManualResetEventSlim.Wait, say, and Monitor.Wait has a frame. Then the inlined primitive is
// added. An inlined method gets the part of the stack that belongs to the caller; the caller has no
// part left then.
func (n *Namer) WithPrimitive(frames []snapshot.Frame, calls []Call) []snapshot.Frame {
	at := snapshot.PrimitiveOf(frames).Outer + 1
	if first := slices.IndexFunc(frames,
		func(f snapshot.Frame) bool { return f.Kind == snapshot.Managed }); at <= first {
		at = first // no primitive has a frame
	}
	i := slices.IndexFunc(calls, func(c Call) bool { return c.Frame == at })
	if i < 0 || at+1 >= len(frames) || frames[at+1].SP <= frames[at].SP || n.profiled() {
		return frames
	}
	found := n.InlinedAt(&calls[i])
	if len(found) == 0 || snapshot.PrimitiveOf([]snapshot.Frame{found[0].Frame}).Kind == "" {
		return frames
	}
	out := n.WithInlined(nil, frames, calls[i:i+1])
	outer := snapshot.PrimitiveOf(out).Outer
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

// Proves reports whether the IL of assemblies proves that methods were inlined.
func (n *Namer) Proves() bool { return n.inlined != nil && !n.profiled() }

// profiled reports whether a profiler is loaded: a library with the entry point by which the
// runtime finds a profiler. A profiler can have methods compiled from other IL than the assembly's.
// The assembly's IL proves nothing then.
func (n *Namer) profiled() bool {
	modules := n.engine.Modules.All()
	if n.inlined.modules == len(modules) {
		return n.inlined.profiler
	}
	n.inlined.modules = len(modules)
	n.inlined.profiler = false
	for _, m := range modules {
		if strings.HasPrefix(m.Name, agentLibrary) {
			continue
		}
		if at, err := m.Lookup("DllGetClassObject"); err == nil && at != 0 {
			n.inlined.profiler = true
		}
	}
	return n.inlined.profiler
}

// WithInlined adds to a stack, leaf first, the methods that were certainly inlined at the stack's
// calls. calls are in ascending order of frames. The calls should be examined after the capture of
// the stack: the data read by then includes every method inlined into the stack's methods. The
// result is appended to out, or is frames if nothing was inlined.
func (n *Namer) WithInlined(out, frames []snapshot.Frame, calls []Call) []snapshot.Frame {
	from, begin := 0, len(out)
	for i := range calls {
		c := &calls[i]
		found := n.InlinedAt(c)
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
func (n *Namer) BeginInlined() bool {
	if !n.Proves() {
		return false
	}
	n.engine.Begin() // the runtime records inlining before the code runs, but perhaps not long before
	return true
}

// InlinedIn is InlinedAt of a call by a method. InlinedIn finds the code of the method, and says
// nothing about collectible code.
func (n *Namer) InlinedIn(c Call, method arch.Addr) []InlinedFrame {
	if n.inlined == nil {
		return nil
	}
	if found, ok := n.inlined.known[c.Key()]; ok {
		return found
	}
	code, err := n.engine.Code(c.IP, method)
	if err != nil || code.MethodDesc != method || code.Collectible || !n.BeginInlined() {
		return nil
	}
	c.Code = code
	return n.InlinedAt(&c)
}

// InlinedAt returns the methods that were certainly inlined at a call, innermost first. The result
// is remembered.
func (n *Namer) InlinedAt(c *Call) []InlinedFrame {
	key := c.Key()
	if found, ok := n.inlined.known[key]; ok {
		return found
	}
	found, err := n.findInlined(c)
	if err != nil {
		return nil // the data may be readable the next time
	}
	if len(n.inlined.known) >= maxInlined {
		clear(n.inlined.known)
	}
	n.inlined.known[key] = found
	return found
}

// findInlined is InlinedAt without remembered results.
func (n *Namer) findInlined(c *Call) ([]InlinedFrame, error) {
	found, err := n.CertainAt(c)
	if err != nil {
		return nil, err
	}
	var out []InlinedFrame
	for i := range slices.Backward(found) {
		f, err := n.inlinedFrame(&found[i])
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// CertainAt returns the methods that were certainly inlined at a call, outermost first: the methods
// recorded by the runtime, or the proved methods if there are more.
func (n *Namer) CertainAt(c *Call) ([]inlining.Frame, error) {
	found, _, err := n.Recorded(c)
	if err != nil {
		return nil, err
	}
	proved, err := n.Proved(c)
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
func (n *Namer) Recorded(c *Call) (found []inlining.Frame, ok bool, err error) {
	t, err := n.runtime.IL.Tree(&c.Code)
	if err != nil || t == nil {
		return nil, false, err
	}
	callee, ok, err := n.called(c)
	if err != nil || !ok {
		return nil, true, err
	}
	found, err = n.runtime.Inlined.Recorded(t, uint32(c.IP-c.Code.MethodStart), callee)
	return found, true, err
}

// Proved returns the methods that were certainly inlined at a call in code without a record,
// outermost first.
func (n *Namer) Proved(c *Call) ([]inlining.Frame, error) {
	of, ok, err := n.runtime.Inlined.Definition(c.Code.MethodDesc)
	if err != nil || !ok {
		return nil, err
	}
	callee, ok, err := n.called(c)
	if err != nil || !ok {
		return nil, err
	}
	points, err := n.runtime.IL.Of(&c.Code)
	if err != nil {
		return nil, err
	}
	start, end := points.Statement(uint32(c.IP - 1 - c.Code.MethodStart))
	return n.runtime.Inlined.Prove(&c.Code, of, callee, inlining.Range{Start: start, End: end})
}

// called returns the method that a call calls; false: the method is not certain. The frame above
// may belong to another method: a method may have left the frame to the target of a tail call.
func (n *Namer) called(c *Call) (d inlining.Definition, ok bool, err error) {
	above, err := n.runtime.Methods.Read(c.Callee)
	if err != nil {
		return d, false, err
	}
	desc := c.Callee
	if above.Class != method.PInvoke { // else the code itself calls the P/Invoke
		if desc, err = n.runtime.Inlined.Callee(c.IP); err != nil || desc == 0 {
			return d, false, err
		}
	}
	return n.runtime.Inlined.Definition(desc)
}

func (n *Namer) inlinedFrame(f *inlining.Frame) (out InlinedFrame, err error) {
	m, err := n.nameInlined(f)
	if err != nil {
		return out, err
	}
	out.Frame = snapshot.Frame{Kind: snapshot.Managed, Inlined: true, FunctionID: uint64(f.Desc)}
	n.setOwned(&out.Frame, &m)
	if n.lines == nil || m.Image == 0 {
		return out, nil
	}
	out.Place = Place{
		Module: source.Module{Assembly: m.Assembly, Address: f.Module, Image: m.Image}, Method: f.RID, IL: -1,
	}
	if f.HasIL && f.IL < math.MaxInt32 {
		out.Place.IL, out.Place.Next = int32(f.IL), int32(f.IL)+1
		if !n.lines.late {
			out.Frame.Line = n.lineAt(&out.Place)
		}
	}
	return out, nil
}

func (n *Namer) nameInlined(f *inlining.Frame) (name.Method, error) {
	if f.Desc == 0 {
		return n.runtime.Names.Definition(f.Module, f.RID)
	}
	m, err := n.runtime.Methods.Read(f.Desc)
	if err != nil {
		return name.Method{}, err
	}
	return n.runtime.Names.Method(&m, false)
}

// lineAt returns the source line of an inlined method's call; nil: there is none.
func (n *Namer) lineAt(at *Place) *snapshot.SourceLine {
	a, err := n.lines.finder.Assembly(&at.Module)
	if err != nil {
		return nil
	}
	l, err := a.Line(at.Method, uint32(at.IL))
	if err != nil {
		return nil
	}
	return sourceLine(&l, false)
}
