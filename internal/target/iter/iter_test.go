package iter

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { role.Main(m) }

// ways are the two ways to visit the threads of one process.
var ways = map[string]func(int) (*Iterator, error){
	"the kernel visits no others": New, "the program drops others": newOwn,
}

func open(t testing.TB, way func(int) (*Iterator, error), pid int) *Iterator {
	t.Helper()
	i, err := way(pid)
	if errors.Is(err, ErrUnavailable) {
		layer.Lacking(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// reader starts threads that read from a pipe, and prints what the iterator reports of them and
// of the reading thread.
var reader = role.New("reader", func(role.Args) error {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return err
	}
	blocked := map[int]bool{}
	tids := make(chan int)
	for range 3 {
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			var b [1]byte
			_, _ = unix.Read(pipe[0], b[:])
		}()
		blocked[<-tids] = true
	}
	runtime.LockOSThread()
	for name, way := range ways {
		i, err := way(os.Getpid())
		if err != nil {
			return err
		}
		defer i.Close()
		var before, after []Task
		for range 10_000 { // until all threads have come to their call
			if before, err = i.Read(before); err != nil {
				return err
			}
			if after, err = i.Read(after); err != nil {
				return err
			}
			if err = told(before, after, blocked, pipe[0]); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Println("all is as it should be")
	return nil
})

// told describes the faults of two readings.
func told(before, after []Task, blocked map[int]bool, file int) error {
	rested, reads := 0, false
	for k := range before {
		a := &before[k]
		at := slices.IndexFunc(after, func(t Task) bool { return t.TID == a.TID })
		if int(a.PID) != os.Getpid() || at < 0 {
			return fmt.Errorf("a thread that there is not: %+v", a)
		}
		b := &after[at]
		switch {
		case int(a.TID) == unix.Gettid(): // reads the iterator's file
			if a.OnCPU == 0 || a.Rested(b) || a.Runs == 0 || a.Start == 0 {
				return fmt.Errorf("the thread that reads: %+v", a)
			}
			reads = true
		case blocked[int(a.TID)]:
			r := &a.Regs
			if !a.Rested(b) || a.Ready() || a.Ended() || a.OfKernel() || !a.Settled() ||
				r.OrigRAX != unix.SYS_READ || r.RDI != uint64(file) || r.RDX != 1 {
				return fmt.Errorf("a thread that waits: %+v", a)
			}
			rested++
		}
	}
	if rested != len(blocked) || !reads {
		return fmt.Errorf("%d of the threads that wait were seen", rested)
	}
	return nil
}

// TestRead reads a process, in the test's PID namespace and in a new PID namespace.
func TestRead(t *testing.T) {
	open(t, New, os.Getpid())
	for name, flags := range map[string]uintptr{"here": 0, "in a PID namespace": unix.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			cmd := reader.Command()
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) {
				layer.Lacking(t, "no right to make a PID namespace")
			}
			if err != nil || !strings.Contains(string(out), "as it should be") {
				t.Fatalf("%v: %s", err, out)
			}
		})
	}
}

// TestDenied: without the right, the error names the required right.
func TestDenied(t *testing.T) {
	open(t, New, os.Getpid())
	cmd := reader.Command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "that takes CAP_BPF and CAP_PERFMON") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSettled: registers that the kernel is about to replace one by one are no state of the
// thread.
func TestSettled(t *testing.T) {
	const frame, handler, code = 0x7f00_0000_1000, 0x40_0000, 0x41_0000
	for _, c := range []struct {
		name string
		regs Regs
		want bool
	}{
		{"in code", Regs{OrigRAX: none, RIP: code, RSP: frame, RDI: 7}, true},
		{"in a system call", Regs{OrigRAX: unix.SYS_FUTEX, RIP: code, RSP: frame}, true},
		{"in rt_sigreturn", Regs{OrigRAX: unix.SYS_RT_SIGRETURN, RIP: code, RSP: frame}, false},
		{"in execve", Regs{OrigRAX: unix.SYS_EXECVE, RIP: code, RSP: frame}, false},
		{"at a handler", Regs{OrigRAX: none, RIP: handler, RSP: frame, RDI: 34, RSI: frame + 312,
			RDX: frame + 8}, true},
		{"before the stack pointer", Regs{OrigRAX: none, RIP: handler, RSP: frame + 999, RDI: 34, RSI: frame + 312,
			RDX: frame + 8}, false},
	} {
		if got := (&Task{Regs: c.regs}).Settled(); got != c.want {
			t.Errorf("%s: settled: %v", c.name, got)
		}
	}
}

const none = ^uint64(0)

func BenchmarkRead(b *testing.B) {
	i := open(b, New, os.Getpid())
	var tasks []Task
	for b.Loop() {
		var err error
		if tasks, err = i.Read(tasks); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*max(1, len(tasks))), "ns/thread")
}
