// Package walk walks stacks: from the registers of a thread, frame by frame, to the base of its
// stack, through managed and native code alike.
//
// The package works on a capture: registers, the head of the runtime's Thread object and a copy
// of the live part of the stack, all taken at one moment. The thread itself runs on meanwhile.
// Everything else (code, unwind information, MethodDescs) does not change while code is alive,
// and is read from the target through small interfaces. Code that can be unloaded is checked at
// each use.
//
// There are four ways to step from a frame to its caller. Managed code has the runtime's unwind
// information. Native code has call frame information; without call frame information, the walker
// follows its instructions, from both sides (package insns). The few pieces of code with neither
// (stubs, copied helpers, PLT entries) are leaves with the return address on top of the stack or
// near the top. Where all of these fail, the runtime's explicit Frames lead back to managed code,
// and the walk says which frames may be missing. A walk never reports a guess.
package walk

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// Code finds the code around an address: the runtime's code map.
type Code interface {
	Lookup(ip arch.Addr) (codemap.Code, error)
	IsFilter(c *codemap.Code) (bool, error)
}

// Methods says which methods DoStackSnapshot skips.
type Methods interface {
	// Hidden reports whether a method has no metadata or is machinery: part of the managed code
	// with which the runtime dispatches exceptions.
	Hidden(methodDesc arch.Addr) (hidden, machinery bool, err error)
}

// Modules knows the target's native code.
type Modules interface {
	// Find returns the module around an address; nil for none.
	Find(ip arch.Addr) *module.Module
	// Executable reports whether there can be code at an address.
	Executable(ip arch.Addr) bool
}

// Compile compiles the step of a managed function at an address.
type Compile func(c *codemap.Code, ip arch.Addr) (*unwind.Step, error)

// Thread is a captured thread.
type Thread struct {
	Context arch.Context
	Stack   *target.Stack
	Info    thread.Thread // zero Address: not a thread of the runtime
	Head    []byte        // the head of the Thread object, as captured
	// Unwound are the stack pointers of frames that an exception in flight has already unwound:
	// [Low, High).
	UnwoundLow, UnwoundHigh arch.Addr
	// Gap is why no walk of the capture can be complete; nil: the capture lacks nothing.
	Gap error
}

// Kind is the kind of a frame's code.
type Kind uint8

// The kinds of frame. Stub covers the runtime's generated stubs and the helpers that the runtime
// copies to its own memory.
const (
	Native Kind = iota
	Managed
	Stub
)

// Frame is one frame of a walk. It is valid during the visit only.
type Frame struct {
	Kind    Kind
	Context *arch.Context // registers in this frame
	Code    *codemap.Code // of managed frames, and of stubs in the code map
	Module  *module.Module
	Exact   bool // execution goes on at the ip; false: a call returns to the ip
	// Handler is the method's place in a catch or finally body, which Walk does not visit by
	// itself: the IP is then the place where the method left the code that the body belongs to.
	// nil: in no such body.
	Handler *Place
	site    *site
	walk    *unwinding
}

// IP returns the frame's instruction pointer.
func (f *Frame) IP() arch.Addr { return f.Context.IP }

// Place is where a method is.
type Place struct {
	IP    arch.Addr
	Exact bool // as Frame.Exact
}

// Place returns the method's place: in the body of the method, or in the body of a handler.
func (f *Frame) Place() Place {
	if f.Handler != nil {
		return *f.Handler
	}
	return Place{f.IP(), f.Exact}
}

// Epilog reports whether the frame is being torn down: its contents may be overwritten.
func (f *Frame) Epilog() bool { return f.Exact && f.site.step != nil && f.site.step.Epilog }

// Note is a number for the visitor's use, kept with the code at the instruction pointer for as
// long as the Walker knows the code: 0 at first. nil: the code is not known.
func (f *Frame) Note() *uint32 {
	if f.site == nil {
		return nil
	}
	return &f.site.note
}

// Walked reports whether a walk has found the frame, with its stack and registers. For the frames
// of a notification only the instruction pointer is known.
func (f *Frame) Walked() bool { return f.walk != nil }

// CallerSP returns the stack pointer of a managed frame's caller after the return. The result is
// false if not known: for a frame from the runtime, not from a walk of ours.
func (f *Frame) CallerSP() (arch.Addr, bool) {
	if f.site == nil || f.site.step == nil {
		return 0, false
	}
	c := *f.Context
	if f.site.step.Apply(&c, f.walk.t.Stack) != nil {
		return 0, false
	}
	return arch.Addr(c.Regs[f.walk.w.arch.SP]), true
}

// Thread returns the runtime's thread on which a walk has found the frame; 0: none.
func (f *Frame) Thread() arch.Addr {
	if f.walk == nil {
		return 0
	}
	return f.walk.t.Info.Address
}

// Extent returns the frame's part of the stack: from its stack pointer to its caller's. false:
// not known, as for CallerSP.
func (f *Frame) Extent() (low, high arch.Addr, ok bool) {
	if f.walk == nil {
		return 0, 0, false
	}
	sp, known := f.Context.Reg(f.walk.w.arch.SP)
	high, ok = f.CallerSP()
	return arch.Addr(sp), high, ok && known
}

// Word reads 8 bytes of the walked stack; false: not known, as for CallerSP.
func (f *Frame) Word(at arch.Addr) (uint64, bool) {
	if f.walk == nil {
		return 0, false
	}
	return f.walk.t.Stack.Uint64(at)
}

// Errors of a walk. The wrapping text has the address and the reason.
var (
	// ErrStopped: the visitor asked to stop.
	ErrStopped = errors.New("stopped by the visitor")
	// ErrLost: the caller of a frame cannot be found.
	ErrLost = errors.New("the walk cannot go on")
	// ErrMissing: stack memory is needed that was not captured, at Stack.Miss.
	ErrMissing = errors.New("stack memory was not captured")
	// ErrUnsafe: the capture contradicts itself.
	ErrUnsafe = errors.New("the thread's state is inconsistent")
)

const (
	// maxSignals bounds the signal frames of one walk: across a signal frame the stack pointer
	// need not move up.
	maxSignals = 32
	// maxFrames bounds the frames of one walk.
	maxFrames = 1 << 20
	// maxSites bounds the cache of compiled steps: 50 MB.
	maxSites = 1 << 17
)

// Walker walks the stacks of one target. It is not safe for concurrent use.
type Walker struct {
	arch    *arch.Arch
	mem     *target.Reader
	code    Code
	compile Compile
	modules Modules
	methods Methods
	chain   *thread.Chain
	sites   siteCache
	epoch   uint32

	// the state of the latest walk, for the next walk; nil: a walk is using the state
	folding   *folding
	unwinding *unwinding
}

// take takes the kept state for a walk; a visitor may walk meanwhile.
func take[T any](kept **T) *T {
	t := *kept
	if *kept = nil; t == nil {
		t = new(T)
	}
	return t
}

// give keeps t for the next walk, without t's references.
func give[T any](kept **T, t *T) {
	var none T
	*t = none
	*kept = t
}

// Options are the parts of a Walker.
type Options struct {
	Arch    *arch.Arch
	Memory  target.Memory // the target's code, for the code before a return address
	Code    Code
	Compile Compile
	Modules Modules
	Methods Methods
	Chain   *thread.Chain
}

// New returns a Walker.
func New(o Options) *Walker {
	return &Walker{
		arch: o.Arch, mem: target.NewReader(o.Memory), code: o.Code, compile: o.Compile,
		modules: o.Modules, methods: o.Methods, chain: o.Chain,
	}
}

// Begin starts a new moment: cached knowledge of unloadable code is checked again on its next
// use.
func (w *Walker) Begin() { w.epoch++ }

// Forget drops the cache of native code. It is called after modules have been loaded or unloaded.
func (w *Walker) Forget() {
	w.sites.reset(func(s *site) bool { return s.mod == nil })
}

// Result says how a walk ended.
type Result struct {
	// Complete: the base of the stack was reached and nothing was skipped.
	Complete bool
	// Err says why the walk is not complete; nil with Complete.
	Err error
	// Gap says what may have been skipped, also if the visitor stopped the walk.
	Gap error
}
