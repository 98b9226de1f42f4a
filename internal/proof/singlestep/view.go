package singlestep

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"

	"golang.org/x/sys/unix"
)

// view is the memory of a stopped thread, read after each step with one system
// call: the instruction at hand, the Thread object's head and the stack.
type view struct {
	p      *live.Process
	arch   *arch.Arch
	regs   *unix.PtraceRegs
	object arch.Addr
	head   []byte
	hasObj bool
	code   [16]byte
	stack  target.Stack

	buf, extra []byte
	tracker    []byte
	stacks     []span // by their numbers
	current    int
}

// span is the memory of one stack.
type span struct{ lo, hi uint64 }

const (
	maxStack = 1 << 20 // copied bytes of one stack
	redZone  = 128     // bytes below the stack pointer, in use or just used
)

func newView(p *live.Process, head int) *view {
	return &view{p: p, arch: p.Arch(), head: make([]byte, head), buf: make([]byte, maxStack),
		extra: make([]byte, maxStack), current: -1}
}

// read copies the memory at the registers.
func (v *view) read(regs *unix.PtraceRegs) error {
	v.regs = regs
	n, from := v.stackOf(regs.Rsp), regs.Rsp
	size := uint64(len(v.code)) // for an unknown stack: no more than can be there
	if n >= 0 {
		from = max(v.stacks[n].lo, regs.Rsp-redZone)
		size = min(v.stacks[n].hi-from, maxStack)
	}
	local := [3]unix.Iovec{{Base: &v.buf[0]}, {Base: &v.head[0]}, {Base: &v.code[0]}}
	remote := [3]unix.RemoteIovec{{Base: uintptr(from)}, {Base: uintptr(v.object)}, {Base: uintptr(regs.Rip)}}
	for i, l := range [3]int{int(size), len(v.head), len(v.code)} {
		local[i].SetLen(l)
		remote[i].Len = l
	}
	clear(v.code[:])
	parts := 3
	if v.object == 0 {
		local[1], remote[1], parts = local[2], remote[2], 2
	}
	got, err := unix.ProcessVMReadv(v.p.PID(), local[:parts], remote[:parts], 0)
	if err != nil {
		return err
	}
	v.hasObj = parts == 3 && got >= int(size)+len(v.head)
	v.stack = target.Stack{Region: target.Region{Base: arch.Addr(from), Data: v.buf[:min(got, int(size))]}}
	return nil
}

// also copies the part of another stack from sp on.
func (v *view) also(number int, sp uint64) {
	if number < 0 {
		return
	}
	s := v.stacks[number]
	from := max(s.lo, sp-redZone)
	n, _ := v.p.ReadPartial(v.extra[:min(s.hi-from, maxStack)], arch.Addr(from)) // the walk will miss unreadable memory
	v.stack.Extra = append(v.stack.Extra[:0], target.Region{Base: arch.Addr(from), Data: v.extra[:n]})
}

func (v *view) word(addr uint64) (uint64, bool) {
	if x, ok := v.stack.Uint64(arch.Addr(addr)); ok {
		return x, true
	}
	var b [8]byte
	if v.p.ReadMemory(b[:], arch.Addr(addr)) != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// returns reports whether a call lies before ip.
func (v *view) returns(ip uint64) bool {
	var code [7]byte
	at, ok := arch.Addr(ip).Offset(-int64(len(code)))
	return ok && v.p.ReadMemory(code[:], at) == nil && v.arch.EndsInCall(code[:])
}

// stackOf numbers stacks by their mappings.
func (v *view) stackOf(sp uint64) int {
	if v.current >= 0 && sp >= v.stacks[v.current].lo && sp < v.stacks[v.current].hi {
		return v.current
	}
	for i, s := range v.stacks {
		if sp >= s.lo && sp < s.hi {
			v.current = i
			return i
		}
	}
	maps, err := v.p.Mappings()
	if err != nil {
		return -1
	}
	m := maps.Find(arch.Addr(sp))
	if m == nil {
		return -1
	}
	s := span{uint64(m.Start), uint64(m.End)}
	for i := range v.stacks { // the main thread's stack grows
		if v.stacks[i].hi == s.hi {
			v.stacks[i], v.current = s, i
			return i
		}
	}
	v.stacks = append(v.stacks, s)
	v.current = len(v.stacks) - 1
	return v.current
}

// isStack reports whether addr lies on one of the stacks seen so far.
func (v *view) isStack(addr uint64) bool {
	for _, s := range v.stacks {
		if addr >= s.lo && addr < s.hi {
			return true
		}
	}
	return false
}

func (v *view) context() arch.Context {
	r := v.regs
	return arch.Context{
		Machine: arch.MachineAMD64, IP: arch.Addr(r.Rip), Valid: 1<<16 - 1,
		Regs: [arch.MaxRegs]uint64{
			r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
			r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
		},
	}
}

// beside copies the runtime's data about an exception in flight, where the data is
// not on the stack.
func (v *view) beside(at arch.Addr, size int) {
	v.tracker = slices.Grow(v.tracker[:0], size)[:size]
	if v.p.ReadMemory(v.tracker, at) == nil {
		v.stack.Extra = append(v.stack.Extra, target.Region{Base: at, Data: v.tracker})
	}
}
