package walk

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// Callee returns the MethodDesc of the P/Invoke that a managed frame is in; 0 if it is in none, or
// if the runtime does not say which. Code that is shared by several P/Invokes, such as a stub, and
// code that calls several of them, keeps a Frame within its own, which says which one it has called
// and where that returns to. Code compiled ahead of time does not say what it calls
// (amd64/pinvokestubs.S, JIT_PInvokeBegin).
func (f *Frame) Callee() arch.Addr {
	u := f.walk
	if u == nil || f.Kind != Managed || f.Exact || u.t.Info.Address == 0 {
		return 0
	}
	sp := arch.Addr(f.Context.Regs[u.w.arch.SP])
	for n := 0; u.called < sp; n++ {
		next, ok := u.w.chain.Next(u.t.Stack, u.called)
		if !ok || u.called == 0 || n == maxChain {
			return 0
		}
		u.called = next
	}
	if u.called == thread.FrameTop {
		return 0
	}
	returns, desc := u.w.chain.PInvoke(u.t.Stack, u.called)
	if returns != f.Context.IP {
		return 0
	}
	return desc
}
