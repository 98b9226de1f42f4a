package perfevent

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv/layer"
)

const magicWord = 0x1122334400000000 // of the first word; the others follow

// checkMagic compares a sample of magic in target.c with magic's stack and registers.
func checkMagic(t *testing.T, r *Record, words int) {
	t.Helper()
	n := min(words, len(r.Stack)/8)
	for i := range n {
		if got := binary.LittleEndian.Uint64(r.Stack[8*i:]); got != magicWord+uint64(i) {
			t.Fatalf("word %d of the stack is %#x", i, got)
		}
	}
	for i, reg := range []uint8{arch.RBX, arch.R12, arch.R13, arch.R14, arch.R15, arch.RBP, arch.RCX, arch.RDX,
		arch.RSI, arch.RDI, arch.R8, arch.R9, arch.R10, arch.R11, arch.RAX} {
		if got, ok := r.Context.Reg(reg); !ok || got != 0x5eed0001+uint64(i) {
			t.Fatalf("%s is %#x, %v", arch.AMD64.RegNames[reg], got, ok)
		}
	}
	if sp, ok := r.Context.Reg(arch.RSP); !ok || sp == 0 || sp%8 != 0 {
		t.Fatalf("the stack pointer is %#x, %v", sp, ok)
	}
}

// isSet reports whether magic in target.c has filled its stack: magic sets RAX last.
func isSet(r *Record) bool {
	last, _ := r.Context.Reg(arch.RAX)
	return last == 0x5eed000f
}

// TestStack: the copy is the stack from the stack pointer up, at every size, and Truncated
// reports a longer stack.
func TestStack(t *testing.T) {
	layer.Live(t)
	eachScope(t, testStack)
}

func testStack(t *testing.T, scope Scope) {
	const few, many = 3000, 60000 // words, as in target.c
	p := start(t, "m")
	tid := p.number("magic")
	for _, size := range []int{8, 1024, 16 << 10, 32 << 10, MaxStackBytes} {
		e := open(t, Options{PID: p.pid, Period: time.Millisecond, StackBytes: size, Scope: scope})
		seen := 0
		readUntil(t, e, func(r *Record) {
			if r.Kind != Sampled || r.TID != tid || seen == 0 && !isSet(r) {
				return
			}
			seen++
			checkMagic(t, r, few)
			// A record of the greatest size has less room for the stack, because of its other
			// fields.
			if len(r.Stack) < min(8*few, size) || size < MaxStackBytes && r.Truncated != (len(r.Stack) == size) {
				t.Fatalf("%d of %d bytes of the stack, truncated: %v", len(r.Stack), size, r.Truncated)
			}
		}, func() bool { return seen >= 50 })
		e.Close()
	}

	p.command("M")
	tid = p.number("magic")
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, StackBytes: MaxStackBytes, Scope: scope})
	seen := 0
	readUntil(t, e, func(r *Record) {
		if r.Kind != Sampled || r.TID != tid || seen == 0 && !isSet(r) {
			return
		}
		seen++
		checkMagic(t, r, many)
		// Beside the copy a record holds its other fields.
		if len(r.Stack) < MaxStackBytes-512 || !r.Truncated {
			t.Fatalf("%d bytes of the stack, truncated: %v", len(r.Stack), r.Truncated)
		}
	}, func() bool { return seen >= 200 })
}

// TestKernel: a thread in the kernel has the registers of its own code and the kernel's call
// chain, with names of functions.
func TestKernel(t *testing.T) {
	layer.Live(t)
	p := start(t, "k2")
	tid := p.number("kernel")
	other, _ := p.burner()
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, Kernel: true})
	if e.KernelExcluded() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: the kernel may not be sampled by this user")
	}
	var all, inKernel, others, othersIn int
	var chains [][]uint64
	readUntil(t, e, func(r *Record) {
		if r.Kind != Sampled {
			return
		}
		if r.Context.Machine != arch.MachineAMD64 || uint64(r.Context.IP)>>47 != 0 || len(r.Stack) == 0 {
			t.Fatalf("no registers of its own code: %v", r.Context)
		}
		if r.InKernel != (len(r.Kernel) > 0) {
			t.Fatalf("in the kernel: %v, chain %x", r.InKernel, r.Kernel)
		}
		if r.TID == other {
			others++
			othersIn += len(r.Kernel[:min(1, len(r.Kernel))])
		}
		if r.TID != tid {
			return
		}
		all++
		if r.InKernel {
			inKernel++
		}
		for _, ip := range r.Kernel {
			if ip>>63 == 0 {
				t.Fatalf("%#x is not in the kernel", ip)
			}
		}
		chains = append(chains, slices.Clone(r.Kernel))
	}, func() bool { return all >= 500 && others >= 500 })
	if inKernel < all*3/4 {
		t.Errorf("%d of %d samples of a thread that reads are in the kernel", inKernel, all)
	}
	if othersIn > others/4 {
		t.Errorf("%d of %d samples of a thread that computes are in the kernel", othersIn, others)
	}
	functions, err := NameKernel(slices.Concat(chains...))
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) == 0 {
		t.Skip("the names were not tested: kernel.kptr_restrict hides the symbols")
	}
	names := map[string]int{} // the number of chains with each name
	for _, chain := range chains {
		seen := map[string]bool{}
		for _, ip := range chain {
			seen[functions[ip].Name] = true
		}
		for name := range seen {
			names[name]++
		}
	}
	for _, name := range []string{"do_syscall_64", "vfs_read"} {
		if names[name] < inKernel*3/4 {
			t.Errorf("%s is in %d of %d chains: %v", name, names[name], inKernel, names)
		}
	}
}
