package cfi

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/symbol"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

const liveProgram = `
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int x;
static void handler(int s) { puts("ready"); fflush(stdout); for (;;) pause(); }
static int compare(const void *a, const void *b) { raise(SIGUSR1); return ++x; }
__attribute__((noinline)) int g(int n) {
	int a[] = {2, 1};
	char v[n];
	v[n - 1] = 1;
	qsort(a, 2, sizeof a[0], compare);
	return v[n - 1] + a[0];
}
__attribute__((noinline)) int f(int n) { return g(n) + x; }
int main(void) { signal(SIGUSR1, handler); return f(100) + x; }`

// mapped is an executable mapping of an image.
type mapped struct {
	lo, hi, bias arch.Addr
	table        *Table
	symbols      *symbol.Table
}

// TestLive unwinds a stopped process from inside a signal handler through
// libc's functions to the outermost frame.
func TestLive(t *testing.T) {
	gcc := testenv.CC(t)
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.out")
	if err := os.WriteFile(src, []byte(liveProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(gcc, "-O2", "-fomit-frame-pointer", "-o", exe, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	cmd := exec.Command(exe)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if l, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(l, err)
	}
	ctx := stop(t, cmd.Process.Pid)
	got := strings.Join(walk(t, cmd.Process.Pid, &ctx), " ")
	// Between these functions are functions of libc, whose names depend on its
	// version.
	want := []string{"handler", "<signal>", "compare", "g", "f", "main", "__libc_start_main", "_start", "<end>"}
	rest := got
	for _, w := range want {
		_, after, ok := strings.Cut(" "+rest+" ", " "+w+" ")
		if !ok {
			t.Fatalf("%q is missing in %s", w, got)
		}
		rest = strings.TrimSpace(after)
	}
}

// stop attaches and returns the registers.
func stop(t *testing.T, pid int) arch.Context {
	runtime.LockOSThread() // until the test ends: ptrace belongs to the thread
	if err := syscall.PtraceAttach(pid); err != nil {
		t.Skip("SKIPPED, NOT TESTED:", err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &r); err != nil {
		t.Fatal(err)
	}
	c := arch.Context{IP: arch.Addr(r.Rip), Valid: 0xffff, Machine: arch.MachineAMD64}
	copy(c.Regs[:], []uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15})
	return c
}

type processMemory struct{ *os.File }

func (m processMemory) ReadMemory(p []byte, addr arch.Addr) error {
	if _, err := m.ReadAt(p, int64(addr)); err != nil {
		return &target.ReadError{Addr: addr, Len: len(p), Err: err}
	}
	return nil
}

func images(t *testing.T, pid int) (out []mapped) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		var lo, hi, off uint64
		if _, err := fmt.Sscanf(f[0]+" "+f[2], "%x-%x %x", &lo, &hi, &off); err != nil || len(f) < 6 ||
			f[1] != "r-xp" || f[5][0] != '/' {
			continue
		}
		file, err := os.Open(f[5])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		m, err := elfx.New(file)
		if err != nil {
			t.Fatal(err)
		}
		bias, err := m.Bias(arch.Addr(lo), off)
		if err != nil {
			t.Fatal(err)
		}
		tab, _ := open(t, f[5])
		out = append(out, mapped{arch.Addr(lo), arch.Addr(hi), bias, tab, symbol.New(m)})
	}
	return out
}

// walk returns the names of the functions on the stack.
func walk(t *testing.T, pid int, c *arch.Context) (names []string) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stack := &target.Stack{Live: target.NewReader(processMemory{f})}
	mods := images(t, pid)
	exact := true
	for range 50 {
		pc := c.IP
		if !exact {
			pc--
		}
		for _, m := range mods {
			if !pc.In(m.lo, m.hi) {
				continue
			}
			name := "?"
			if fn, _, ok := m.symbols.Lookup(pc - m.bias); ok {
				name = fn.Short
			}
			s, err := m.table.Step(pc - m.bias)
			if err != nil {
				t.Fatalf("%v %s: %v after %v", pc, name, err, names)
			}
			if s.Signal {
				name = "<signal>"
			}
			names = append(names, name)
			if s.End {
				return append(names, "<end>")
			}
			if err := s.Apply(c, stack); err != nil {
				t.Fatalf("%v %s: %v after %v", pc, name, err, names)
			}
			exact = s.Signal
			break
		}
	}
	t.Fatalf("no end: %v", names)
	return nil
}
