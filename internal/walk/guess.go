package walk

import (
	"bytes"
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind/insns"
)

// What musl has instead of unwind information is its code. Its functions are small
// enough for package insns to find their callers; three of its ends are known by their
// instructions (AMD64 code; musl, src/signal/x86_64/restore.s, src/thread/x86_64/clone.s,
// src/env/__libc_start_main.c and src/thread/pthread_create.c):
var (
	// __restore_rt, to which signal handlers return: mov rax, 15 (rt_sigreturn); syscall
	restoreSignal = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}
	// __clone, behind the call of a thread's first function: mov edi, eax;
	// xor eax, eax; mov al, 60 (exit); syscall; hlt
	endThread = []byte{0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4}
	// Behind the calls of main and of a thread's own function, whose result becomes the
	// argument of a function that does not return: mov rdi, rax or mov edi, eax; call
	passResult = []byte{0x89, 0xc7, 0xe8}
)

// enders are the functions that the last of these call.
var enders = map[string]bool{"exit": true, "pthread_exit": true, "thrd_exit": true}

// readCode reads the instructions at an address, as many as there are.
func (w *Walker) readCode(b []byte, at arch.Addr) []byte {
	if w.mem.ReadMemory(b, at) != nil {
		return nil
	}
	return b
}

// atBase reports whether the frame at hand, which is of a module without unwind
// information for it, is the base of a thread's stack.
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
	return ok && offset == 0 && enders[f.Name]
}

// byCode steps by what the code at hand does until it returns. There must be one step
// only that leads to where a call has been, or to the end of a signal handler.
func (u *unwinding) byCode(s *site) bool {
	if !s.searched {
		s.searched, s.guesses = true, insns.Steps(u.w.mem, u.w.arch, u.ctx.IP)
	}
	var found *arch.Context
	for _, g := range s.guesses {
		c := *u.ctx
		if g.Apply(&c, u.t.Stack) != nil || c.Regs[u.w.arch.SP] <= u.ctx.Regs[u.w.arch.SP] || !u.w.isReturn(c.IP) && !u.w.returnsFromSignal(c.IP) {
			continue
		}
		if found != nil {
			return false
		}
		found = &c
	}
	if found == nil {
		return false
	}
	*u.ctx, u.exact = *found, false
	return true
}

// Where the kernel has put the registers of what a signal has interrupted, from the
// stack pointer of the handler's caller on: struct ucontext of the kernel's
// arch/x86/include/uapi/asm, sigcontext behind uc_flags, uc_link and uc_stack.
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

// signalReturn steps from where signal handlers return to, if this is it, to what the
// signal has interrupted.
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
