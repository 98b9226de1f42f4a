// Package walk walks stacks: from the registers of a thread, frame by frame, to
// the base of its stack, through managed and native code alike.
//
// It works on a capture: registers, the head of the runtime's Thread object and
// a copy of the live part of the stack, all taken at one moment. The thread
// itself runs on meanwhile. What else is needed (code, unwind information,
// MethodDescs) does not change while code is alive and is read from the target
// through small interfaces; code that can be unloaded is checked at each use.
//
// There are four ways to step from a frame to its caller. Managed code has the
// runtime's unwind information. Native code has call frame information; where it has
// none, its instructions are followed, from both sides (package insns). The few
// pieces that have neither (stubs, copied helpers, PLT entries) are leaves whose
// return address is on top of the stack or near it. Where all of these fail, the
// runtime's explicit Frames lead back to managed code, and the walk says what it
// may have missed. Nothing that had to be guessed is reported.
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

// Code finds the code that an address lies in: the runtime's code map.
type Code interface {
	Lookup(ip arch.Addr) (codemap.Code, error)
	IsFilter(c *codemap.Code) (bool, error)
}

// Methods says which methods DoStackSnapshot skips.
type Methods interface {
	// Hidden reports whether a method has no metadata or is machinery: part of
	// the managed code with which the runtime dispatches exceptions.
	Hidden(methodDesc arch.Addr) (hidden, machinery bool, err error)
}

// Modules knows the target's native code.
type Modules interface {
	// Find returns the module that an address lies in; nil for none.
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
	Info    thread.Thread // zero Address: not one of the runtime's threads
	Head    []byte        // the head of the Thread object, as captured
	// Unwound are the stack pointers of frames that an exception in flight has
	// already unwound: [Low, High).
	UnwoundLow, UnwoundHigh arch.Addr
	// Gap is what the capture lacks, so that no walk of it can be complete; nil: nothing.
	Gap error
}

// Kind is the kind of a frame's code.
type Kind uint8

// The kinds of frame. Stub covers the runtime's generated stubs and the helpers
// that it copies to memory of its own.
const (
	Native Kind = iota
	Managed
	Stub
)

// Frame is one frame of a walk. It is valid during the visit only.
type Frame struct {
	Kind    Kind
	Context *arch.Context // registers in this frame
	Code    *codemap.Code // of managed frames, and of stubs that the code map knows
	Module  *module.Module
	Exact   bool // the ip is where execution goes on, not where a call returns to
	// Handler is where the method is in a catch or finally body, which Walk does not visit by itself: the IP
	// is where it left the code that the body belongs to. nil: in none.
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

// Place returns where the frame's method is: in its body, or in that of a handler.
func (f *Frame) Place() Place {
	if f.Handler != nil {
		return *f.Handler
	}
	return Place{f.IP(), f.Exact}
}

// Epilog reports whether the frame is being torn down: what it held may be overwritten.
func (f *Frame) Epilog() bool { return f.Exact && f.site.step != nil && f.site.step.Epilog }

// Note is a number that the visitor of a Walker's frames keeps with the code at the instruction pointer, as long as the
// Walker knows the code: 0 at first. nil: it is not known.
func (f *Frame) Note() *uint32 {
	if f.site == nil {
		return nil
	}
	return &f.site.note
}

// Walked reports whether a walk has found the frame, so that its stack and registers are there. Of the frames of a
// notification only the instruction pointer is known.
func (f *Frame) Walked() bool { return f.walk != nil }

// CallerSP returns the stack pointer of a managed frame's caller, as it is after the return; false if it
// is not known. It is not of a frame that no walk of ours has found, but the runtime's.
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

// Thread returns the runtime's thread that a walk has found the frame on; 0: none.
func (f *Frame) Thread() arch.Addr {
	if f.walk == nil {
		return 0
	}
	return f.walk.t.Info.Address
}

// Extent returns the part of the stack that is the frame's: from its stack pointer to its caller's. false: that is not
// known, as for CallerSP.
func (f *Frame) Extent() (low, high arch.Addr, ok bool) {
	if f.walk == nil {
		return 0, 0, false
	}
	sp, known := f.Context.Reg(f.walk.w.arch.SP)
	high, ok = f.CallerSP()
	return arch.Addr(sp), high, ok && known
}

// Word reads 8 bytes of the stack that is walked; false: they are not known, as for CallerSP.
func (f *Frame) Word(at arch.Addr) (uint64, bool) {
	if f.walk == nil {
		return 0, false
	}
	return f.walk.t.Stack.Uint64(at)
}

// Errors of a walk. The text that wraps them has the address and the reason.
var (
	// ErrStopped: the visitor asked to stop.
	ErrStopped = errors.New("stopped by the visitor")
	// ErrLost: the caller of a frame cannot be found.
	ErrLost = errors.New("the walk cannot go on")
	// ErrMissing: stack memory is needed that was not captured; Stack.Miss
	// says which.
	ErrMissing = errors.New("stack memory was not captured")
	// ErrUnsafe: what was captured contradicts itself.
	ErrUnsafe = errors.New("the thread's state is inconsistent")
)

const (
	// maxSignals bounds the signal frames of one walk: across them the stack
	// pointer need not move up.
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

	// the state of the latest walk, for the next one; nil: a walk has it
	folding   *folding
	unwinding *unwinding
}

// take takes what is kept for the next walk; a visitor may walk meanwhile.
func take[T any](kept **T) *T {
	t := *kept
	if *kept = nil; t == nil {
		t = new(T)
	}
	return t
}

// give keeps t for the next walk, and nothing that it refers to.
func give[T any](kept **T, t *T) {
	var none T
	*t = none
	*kept = t
}

// Options is what a Walker is made of.
type Options struct {
	Arch    *arch.Arch
	Memory  target.Memory // the target's code, for what precedes a return address
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

// Begin starts a new moment: what is cached about code that can be unloaded is
// checked again when it is next used.
func (w *Walker) Begin() { w.epoch++ }

// Forget drops everything that is cached about native code. It is called when modules
// have been loaded or unloaded.
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
