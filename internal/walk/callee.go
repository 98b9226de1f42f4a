package walk

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// Callee returns the MethodDesc of a managed frame's current P/Invoke. 0: the frame is in no
// P/Invoke, or the runtime does not say which. Code shared by several P/Invokes, for example a
// stub, and code that calls several P/Invokes, keeps a Frame inside its own frame. The Frame
// names the called P/Invoke and has the call's return address. Code compiled ahead of time does
// not name its callee (amd64/pinvokestubs.S, JIT_PInvokeBegin).
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
