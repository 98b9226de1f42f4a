package walk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// The runtime has a handful of assembly functions with incomplete call frame information. The
// walker recognises these functions by their machine code alone, read from the target. All are
// AMD64 code; on other architectures nothing matches.
//
// Sources (dotnet/runtime, src/coreclr): vm/amd64/asmhelpers.S, OnHijackTripThread;
// pal/inc/unixasmmacrosamd64.inc, the macro push_register, which pushes without call frame
// information (OnHijackTripThread, the allocation helpers); vm/amd64, the files with
// ClrRestoreNonvolatileContextWorker, whose frame register is never set;
// pal/src/arch/amd64/context2.S, RtlRestoreContext;
// pal/src/arch/amd64/callsignalhandlerwrapper.S.
var (
	// push rax (room for the return address); push rbp, rbx, r15, r14, r13, r12,
	// rcx, rdx, rax; mov rdi, rsp
	hijackTrip = []byte{0x50, 0x55, 0x53, 0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x51, 0x52, 0x50,
		0x48, 0x89, 0xe7}
	// The same without rcx, before .NET 10.
	hijackTripOlder = []byte{0x50, 0x55, 0x53, 0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x52, 0x50,
		0x48, 0x89, 0xe7}
	// push rbp; mov r10, rdi; mov r11, rsi; test byte [r10+30h], 2 (CONTEXT_INTEGER
	// in ContextFlags)
	restoreContext = []byte{0x55, 0x49, 0x89, 0xfa, 0x49, 0x89, 0xf3, 0x41, 0xf6, 0x42, 0x30, 0x02}
	// mov rsp, [r10+98h] (CONTEXT.Rsp); jmp rax
	restoreSP   = []byte{0x49, 0x8b, 0xa2, 0x98, 0, 0, 0}
	restoreJump = []byte{0xff, 0xe0}
	// pop rbp; ret
	restoreBack = []byte{0x5d, 0xc3}
)

// maxAsm is how many bytes of code before an instruction are read: more than the distance from
// the start of any of these functions to a relevant instruction.
const maxAsm = 256

// amend corrects the step of native code with incomplete call frame information. It runs once for
// each address, so a warm walk does not pay for it.
func (w *Walker) amend(s *site, pc arch.Addr, exact bool) {
	st := s.step
	if st == nil || st.End || st.Slow != nil || w.arch.ReturnSlot < 0 {
		return
	}
	if st.IPOff != -int32(w.arch.PointerSize) {
		// No call has pushed this return address: the frame was built by hand, and returns to an
		// interrupted instruction. Registers have changed since, unless the information says
		// where they are saved.
		st.Signal, s.built = true, true
		st.Keep &= 1 << w.arch.SP
		return
	}
	if st.CFAReg != w.arch.SP && !exact {
		return // compiled code with a frame pointer
	}
	start, ok := s.mod.Function(pc)
	if !ok || pc < start {
		return
	}
	var buf [maxAsm]byte
	from := max(start, pc-min(pc, maxAsm))
	code := buf[:pc-from]
	if len(code) > 0 && w.mem.ReadMemory(code, from) != nil {
		return
	}
	var head [32]byte
	if w.mem.ReadMemory(head[:], start) != nil {
		return
	}
	switch {
	case bytes.HasPrefix(head[:], hijackTrip), bytes.HasPrefix(head[:], hijackTripOlder):
		s.kind, s.entry = siteTrip, pc == start
	case bytes.HasPrefix(head[:], restoreContext) && exact && pc > start:
		w.amendRestore(s, pc, code)
	}
	if exact {
		w.overwritten(s, from, code)
	}
	if from == start {
		w.afterReturn(s, start, pc, code)
	}
	w.freed(s, from, code)
	w.pushed(s, start, pc, head[:])
}

// afterReturn corrects the step of code behind a ret in the middle of a function. The call frame
// information goes on as if the frame were still popped there. But a jump from before the pops
// reaches that code, so the frame is as it was at the jump.
func (w *Walker) afterReturn(s *site, start, pc arch.Addr, code []byte) {
	for at := len(code) - 1; at > 0; at-- {
		if !bytes.HasPrefix(code[at-1:], restoreBack) {
			continue
		}
		after := start + arch.Addr(at) + 1
		jump, ok := jumpTo(code[:at], at+1)
		if !ok {
			continue
		}
		body, err1 := s.mod.Step(start + arch.Addr(jump))
		then, err2 := s.mod.Step(after)
		first, err3 := s.mod.Step(start)
		if err1 != nil || err2 != nil || err3 != nil || body.CFAReg != w.arch.SP || then.CFAReg != w.arch.SP {
			return
		}
		w.pushed(&site{mod: s.mod, step: body}, start, start+arch.Addr(jump), code)
		if sound := then.CFAOff == body.CFAOff; sound || body.IPOff != s.step.IPOff ||
			s.step.CFAReg != w.arch.SP || first.CFAReg != w.arch.SP {
			return
		}
		body.CFAOff += s.step.CFAOff - then.CFAOff
		if body.CFAOff < int32(w.arch.PointerSize) {
			return
		}
		// Anything below the stack pointer has been popped.
		body.Saved = slices.DeleteFunc(body.Saved, func(r unwind.Saved) bool {
			popped := -r.Off > body.CFAOff
			if popped {
				body.Keep |= 1 << r.Reg
			}
			return popped
		})
		s.step = body
		return
	}
}

// freed corrects the step in an epilog that takes the argument registers off the stack before it
// pops the others (EPILOG_WITH_TRANSITION_BLOCK_RETURN): the call frame information lacks the
// epilog's add rsp, 30h.
func (w *Walker) freed(s *site, from arch.Addr, code []byte) {
	if s.step.CFAReg != w.arch.SP {
		return
	}
	const length = 4 // of the instruction
	at := bytes.LastIndex(code, addSP)
	if at < 0 || at+length > len(code) || !onlyPops(code[at+length:]) {
		return
	}
	before, err1 := s.mod.Step(from + arch.Addr(at))
	after, err2 := s.mod.Step(from + arch.Addr(at) + length)
	size := int32(int8(code[at+3]))
	if err1 == nil && err2 == nil && before.CFAReg == w.arch.SP && before.CFAOff == after.CFAOff &&
		after.CFAReg == w.arch.SP && s.step.CFAOff > size {
		s.step.CFAOff -= size
	}
}

// addSP is add rsp; a constant of one byte follows.
var addSP = []byte{0x48, 0x83, 0xc4}

// onlyPops reports whether code has only pops of registers.
func onlyPops(code []byte) bool {
	for len(code) > 0 {
		if code[0] == 0x41 && len(code) > 1 {
			code = code[1:]
		}
		if code[0]&0xf8 != 0x58 {
			return false
		}
		code = code[1:]
	}
	return true
}

// testResult is test rax, rax, which precedes the jump in all these functions.
var testResult = []byte{0x48, 0x85, 0xc0}

// jumpTo finds a short conditional jump (je, jne) to offset target.
func jumpTo(code []byte, target int) (int, bool) {
	for at := len(testResult); at+1 < len(code); at++ {
		if (code[at] == 0x74 || code[at] == 0x75) && bytes.HasSuffix(code[:at], testResult) &&
			at+2+int(int8(code[at+1])) == target {
			return at, true
		}
	}
	return 0, false
}

// amendRestore corrects the step of ClrRestoreNonvolatileContextWorker, a function without a
// frame of its own, although its call frame information has rbp as its frame pointer.
func (w *Walker) amendRestore(s *site, pc arch.Addr, code []byte) {
	var next [2]byte
	if w.mem.ReadMemory(next[:], pc) != nil {
		return
	}
	st := s.step
	st.CFAReg, st.CFAOff, st.IPOff = arch.RSP, 16, -8
	st.Saved = []unwind.Saved{{Reg: arch.RBP, Off: -16}}
	st.Keep &^= 1 << arch.RBP
	switch {
	case bytes.Equal(next[:], restoreJump) && bytes.HasSuffix(code, restoreSP):
		s.kind = siteJump
	case bytes.HasSuffix(code, restoreBack[:1]) && next[0] == restoreBack[1]:
		st.CFAOff, st.Saved = 8, nil
		st.Keep |= 1 << arch.RBP
	}
}

// overwritten marks as unknown the registers that the code before pc has loaded from a CONTEXT.
// The call frame information says neither that the old values are lost nor where they are.
func (w *Walker) overwritten(s *site, from arch.Addr, code []byte) {
	for r, off := range w.arch.ContextRegs {
		if !s.step.Keep.Has(uint8(r)) || uint8(r) == w.arch.SP {
			continue
		}
		for at := range loads(code, uint8(r), off) {
			if then, err := s.mod.Step(from + arch.Addr(at)); err == nil && then.Keep.Has(uint8(r)) {
				s.step.Keep &^= 1 << r
			}
		}
	}
}

// loads yields the offsets of mov reg, [rdi+off] and mov reg, [r10+off] in code.
func loads(code []byte, reg uint8, off uint16) iter.Seq[int] {
	return func(yield func(int) bool) {
		var load [6]byte
		load[0] = 0x8b
		binary.LittleEndian.PutUint32(load[2:], uint32(off))
		for _, base := range [2]byte{arch.RDI, arch.R10 & 7} {
			load[1] = 0x80 | reg&7<<3 | base
			for at := 1; at+len(load) <= len(code); at++ {
				rex := code[at-1]
				if rex&0xf8 == 0x48 && rex>>2&1 == reg>>3 && bytes.HasPrefix(code[at:], load[:]) && !yield(at-1) {
					return
				}
			}
		}
	}
}

// pushed adds the registers that a function pushes at its start, if its call frame information
// does not say where they are saved.
func (w *Walker) pushed(s *site, start, pc arch.Addr, head []byte) {
	st := s.step
	if st.CFAReg != w.arch.SP {
		return
	}
	first, err := s.mod.Step(start)
	if err != nil || first.CFAReg != w.arch.SP || first.CFAOff != int32(w.arch.PointerSize) {
		return // not called: the stack is not empty at the start
	}
	depth := int32(w.arch.PointerSize)
	known := arch.RegMask(0)
	for i := range st.Saved {
		known |= 1 << st.Saved[i].Reg
	}
	for at := 0; at < len(head); {
		reg, n, ok := push(head[at:])
		if at += n; !ok || start+arch.Addr(at) > pc {
			return
		}
		depth += int32(w.arch.PointerSize)
		if w.arch.NonVolatile.Has(reg) && !known.Has(reg) && st.CFAOff >= depth {
			known |= 1 << reg
			st.Saved = append(st.Saved, unwind.Saved{Reg: reg, Off: -depth})
			st.Keep &^= 1 << reg
		}
	}
}

// push decodes a push of a register.
func push(code []byte) (reg uint8, n int, ok bool) {
	if len(code) > 1 && code[0] == 0x41 && code[1]&0xf8 == 0x50 {
		return 8 + code[1]&7, 2, true
	}
	if len(code) > 0 && code[0]&0xf8 == 0x50 {
		return code[0] & 7, 1, true
	}
	return 0, 0, false
}

// special steps from code whose call frame information does not lead to its caller.
func (u *unwinding) special(s *site) error {
	if s.kind == siteTrip && (u.trip(s) || u.tripped() && u.follow(nil)) || s.kind == siteJump && u.jump() {
		return nil
	}
	return u.recover(errHidden)
}

var errHidden = errors.New("the runtime holds the return address elsewhere than on the stack")

// trip steps from the helper that a hijacked return leads to. Nothing has called the helper. The
// helper makes room for the return address in the slot that the ret has popped, and its call
// frame information is off by one word there. The Thread object has the true return address
// (threadsuspend.cpp, Thread::HijackThread).
func (u *unwinding) trip(s *site) bool {
	saved := *u.ctx
	if u.t.Info.Address != 0 && s.step.Apply(u.ctx, u.t.Stack) == nil {
		slot := u.ctx.Regs[u.w.arch.SP] - 16
		if s.entry {
			slot = saved.Regs[u.w.arch.SP] - 8
		}
		if ip, ok := u.hijacked(slot); ok {
			u.ctx.Set(u.w.arch.SP, slot+8)
			u.ctx.IP, u.exact = ip, false
			return true
		}
	}
	*u.ctx = saved
	return false
}

// jump steps from the end of a context's restoration. All registers are restored there, except
// the instruction pointer, which is in rax.
func (u *unwinding) jump() bool {
	ip, ok := u.ctx.Reg(arch.RAX)
	if !ok || !u.w.isCode(arch.Addr(ip)) {
		return false
	}
	u.ctx.IP, u.exact = arch.Addr(ip), true
	return true
}
