package walk

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
	"clrsnap/internal/unwind/insns"
)

// musl has no unwind information. Its functions are small enough for package insns to find their
// callers from the machine code. The walker recognises the base of a stack and the return from a
// signal handler by their instructions (AMD64 code; musl, src/signal/x86_64/restore.s,
// src/thread/x86_64/clone.s, src/env/__libc_start_main.c and src/thread/pthread_create.c):
var (
	// __restore_rt, the return address of signal handlers: mov rax, 15 (rt_sigreturn); syscall
	restoreSignal = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}
	// __clone, behind the call of a thread's first function: mov edi, eax;
	// xor eax, eax; mov al, 60 (exit); syscall; hlt
	endThread = []byte{0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4}
	// Behind the calls of main and of a thread's own function. The result becomes the argument of
	// a function that does not return: mov rdi, rax or mov edi, eax; call
	passResult = []byte{0x89, 0xc7, 0xe8}
)

// enders are the functions called after passResult.
var enders = map[string]bool{"exit": true, "pthread_exit": true, "thrd_exit": true}

// readCode fills b with the code at an address; nil if the code cannot be read.
func (w *Walker) readCode(b []byte, at arch.Addr) []byte {
	if w.mem.ReadMemory(b, at) != nil {
		return nil
	}
	return b
}

// starters are the functions with such calls (musl and glibc).
var starters = map[string]bool{
	"__libc_start_main": true, "libc_start_main_stage2": true, "__libc_start_call_main": true,
	"start": true, "start_c11": true, "start_thread": true,
}

// atBase reports whether the current frame is the base of a thread's stack. The frame's module
// has no unwind information for the frame.
func (u *unwinding) atBase(s *site) bool {
	if u.exact || u.w.arch.Machine != arch.AMD64.Machine {
		return false
	}
	var buf [16]byte
	at := u.ctx.IP
	after := u.w.readCode(buf[:], at)
	if bytes.HasPrefix(after, endThread) {
		return true
	}
	if len(after) > 0 && after[0] == 0x48 {
		at, after = at+1, after[1:]
	}
	if !bytes.HasPrefix(after, passResult) {
		return false
	}
	const length = 7 // of both instructions
	to := at + length + arch.Addr(int64(int32(binary.LittleEndian.Uint32(after[len(passResult):]))))
	f, offset, ok := s.mod.Symbol(to)
	return ok && offset == 0 && enders[f.Name] && u.starts(s)
}

// maxStart bounds the distance between the stack pointer of a thread's own starter and the return
// address of __clone's call, in bytes.
const maxStart = 512

// starts reports whether the current function is a starter, by its name. In a library without
// names of its inner functions, the function is a starter if the stack ends above the function's
// frame, or if its caller is the end of __clone; memory may go on behind a thread's stack.
func (u *unwinding) starts(s *site) bool {
	if f, _, ok := s.mod.Symbol(u.ctx.IP - 1); ok {
		return starters[f.Name]
	}
	sp := arch.Addr(u.ctx.Regs[u.w.arch.SP])
	if !u.t.Stack.Contains(sp + nearBase) {
		return true
	}
	for at := sp; at < sp+maxStart; at += 8 {
		var buf [16]byte
		ip, ok := u.t.Stack.Uint64(at)
		if ok && u.w.isReturn(arch.Addr(ip)) && bytes.HasPrefix(u.w.readCode(buf[:], arch.Addr(ip)), endThread) {
			return true
		}
	}
	return false
}

// byCode has the results from the machine code of a site without unwind information.
type byCode struct {
	steps     []*unwind.Step
	confirmed map[confirmation]bool
	jumpsAway map[arch.Addr]bool // of call targets, by start
}

// confirmation is a question to package insns: does the function that begins at start reach the
// site with a frame from which step leads to the caller?
type confirmation struct {
	start arch.Addr
	step  *unwind.Step
}

// unknownStart stands for a function with an unknown start.
const unknownStart arch.Addr = 0

// maxAnswers bounds the kept answers of one kind for one site.
const maxAnswers = 64

// stepByCode steps by following the current machine code until its return. The step must lead
// behind a call, or to the end of a signal handler. The step is certain if that call leads to a
// function whose code reaches the site with the step's frame. An uncertain step is taken only if
// it is the only step and onlyCertain is false; the walk is incomplete then.
func (u *unwinding) stepByCode(s *site, onlyCertain bool) bool {
	if s.byCode == nil {
		s.byCode = &byCode{
			steps:     insns.Steps(u.w.mem, u.w.arch, u.ctx.IP),
			confirmed: map[confirmation]bool{},
			jumpsAway: map[arch.Addr]bool{},
		}
	}
	var likely, certain []arch.Context
	for _, st := range s.byCode.steps {
		c := *u.ctx
		if st.Apply(&c, u.t.Stack) != nil || c.Regs[u.w.arch.SP] <= u.ctx.Regs[u.w.arch.SP] ||
			!u.w.isReturn(c.IP) && !u.w.returnsFromSignal(c.IP) {
			continue
		}
		likely = append(likely, c)
		if u.confirms(s, st, &c) {
			certain = append(certain, c)
		}
	}
	switch {
	case len(certain) == 1:
		*u.ctx = certain[0]
	case len(likely) == 1 && !onlyCertain:
		if u.gap == nil {
			u.gap = fmt.Errorf("the frame above %v was found by following machine code in %s and may not be "+
				"its caller: %w",
				u.ctx.IP, s.mod.Name, unwind.ErrNoInfo)
		}
		*u.ctx = likely[0]
	default:
		return false
	}
	u.exact = false
	return true
}

// confirms reports whether the call that returns to caller leads to a function that reaches the
// site with the frame that step undoes. If the call's target is not known, confirms uses the
// symbol of the current function, or else the code before the site.
func (u *unwinding) confirms(s *site, step *unwind.Step, caller *arch.Context) bool {
	mem, a := u.w.mem, u.w.arch
	callees := insns.Callees(mem, a, caller)
	away := len(callees) == 0
	for _, start := range callees {
		if u.comesFrom(s, start, step) {
			return true
		}
		away = away || remember(s.byCode.jumpsAway, start, func() bool { return insns.JumpsAway(mem, a, start) })
	}
	if !away {
		return false
	}
	pc := u.ctx.IP
	if !u.exact {
		pc--
	}
	if _, offset, ok := s.mod.Symbol(pc); ok {
		return u.comesFrom(s, pc-arch.Addr(offset), step)
	}
	return u.comesFrom(s, unknownStart, step)
}

// comesFrom is insns.Confirms, or insns.ConfirmsAnyEntry if the start is unknown.
func (u *unwinding) comesFrom(s *site, start arch.Addr, step *unwind.Step) bool {
	return remember(s.byCode.confirmed, confirmation{start, step}, func() bool {
		if start == unknownStart {
			return insns.ConfirmsAnyEntry(u.w.mem, u.w.arch, u.ctx.IP, u.exact, step)
		}
		return insns.Confirms(u.w.mem, u.w.arch, start, u.ctx.IP, u.exact, step)
	})
}

// remember returns the answer to a question, and computes each answer once.
func remember[Q comparable](answers map[Q]bool, question Q, work func() bool) bool {
	answer, known := answers[question]
	if !known {
		answer = work()
		if len(answers) < maxAnswers {
			answers[question] = answer
		}
	}
	return answer
}

// The kernel's places for the registers of the interrupted code, from the stack pointer of the
// handler's caller on: struct ucontext of the kernel's arch/x86/include/uapi/asm, sigcontext
// behind uc_flags, uc_link and uc_stack.
const (
	savedRegisters = 40
	savedIP        = savedRegisters + 16*8
)

var savedOrder = [...]uint8{
	arch.R8, arch.R9, arch.R10, arch.R11, arch.R12, arch.R13, arch.R14, arch.R15,
	arch.RDI, arch.RSI, arch.RBP, arch.RBX, arch.RDX, arch.RAX, arch.RCX, arch.RSP,
}

// returnsFromSignal reports whether signal handlers return to ip.
func (w *Walker) returnsFromSignal(ip arch.Addr) bool {
	var buf [9]byte
	return w.arch.Machine == arch.AMD64.Machine && bytes.Equal(w.readCode(buf[:], ip), restoreSignal)
}

// signalReturn steps from the return address of signal handlers to the code that the signal has
// interrupted. It returns false at any other address.
func (u *unwinding) signalReturn() bool {
	if u.exact || !u.w.returnsFromSignal(u.ctx.IP) {
		return false
	}
	c, sp := *u.ctx, arch.Addr(u.ctx.Regs[arch.RSP])
	for i, r := range savedOrder {
		v, ok := u.t.Stack.Uint64(sp + savedRegisters + arch.Addr(8*i))
		if !ok {
			return false
		}
		c.Set(r, v)
	}
	ip, ok := u.t.Stack.Uint64(sp + savedIP)
	if !ok {
		return false
	}
	c.IP = arch.Addr(ip)
	*u.ctx, u.exact = c, true
	return true
}
