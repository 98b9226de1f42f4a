package live

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

func TestTracerKilledAnyTime(t *testing.T) {
	pr := start(t, nil, "storm")
	p := open(t, pr)
	const n = 50
	for range n {
		cmd := tracer.Command(pr.pid)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "tracing\n" {
			t.Fatalf("tracer: %q %v", line, err)
		}
		time.Sleep(time.Duration(rand.Intn(10000)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		advances(t, p, pr) // would hang for ever after a lost signal
	}
	untraced(t, p, pr.arg)
}

func TestTracerKilledBeforeItGivesASignalBack(t *testing.T) {
	pr := start(t, nil, "storm")
	p := open(t, pr)
	for range 5 {
		cmd := staller.Command(pr.arg)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "signal") {
			t.Fatalf("tracer: %q %v", line, err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		advances(t, p, pr)
	}
}

func TestAlreadyTraced(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	tr := start(t, nil, "tracer", strconv.Itoa(pr.arg))
	var c target.Capture
	err := capture(p, &target.Request{TID: pr.arg}, &c)
	if !errors.Is(err, ErrTraced) || !strings.Contains(err.Error(), strconv.Itoa(tr.pid)+" (target)") {
		t.Fatalf("%v", err)
	}
	t.Log(err)
	if err := capture(p, &target.Request{TID: pr.pid}, &c); err != nil {
		t.Errorf("another thread: %v", err)
	}
	tr.kill()
	if err := capture(p, &target.Request{TID: pr.arg}, &c); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	z := start(t, nil, "zombie")
	s := start(t, nil, "spin")
	cases := []struct {
		name string
		pid  int
		want error
		text string
	}{
		{"zombie", z.arg, ErrZombie, "(target)"},
		{"nonexistent", 1<<22 - 3, ErrNoProcess, "ps"},
		{"zero", 0, ErrNoProcess, ""},
		{"negative", -1, ErrNoProcess, ""},
		{"thread id", s.arg, ErrNotProcess, "attach to " + strconv.Itoa(s.pid)},
	}
	if st, err := procfs.ParseStat(readProc("2/stat")); err == nil && st.KernelThread() {
		cases = append(cases, cases[0])
		c := &cases[len(cases)-1]
		c.name, c.pid, c.want, c.text = "kernel thread", 2, ErrKernelThread, "kthreadd"
	}
	for _, c := range cases {
		_, err := Open(c.pid)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		} else {
			t.Log(err)
		}
		if f := CheckAccess(c.pid); len(f) != 1 || f[0].OK {
			t.Errorf("%s: findings %v", c.name, f)
		}
	}
}

// asNobody runs Open and CheckAccess as another user and returns their results.
func asNobody(t *testing.T, pid int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING TESTED: needs root to become another user")
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != "."; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755|os.ModeSticky)
		if d == os.TempDir() || filepath.Dir(d) == os.TempDir() {
			break
		}
	}
	cmd := opener.Command(pid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Path, cmd.Dir = filepath.Join(dir, "test"), "/"
	if err := role.Copy(cmd.Path); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestOtherUser(t *testing.T) {
	pr := start(t, nil, "spin")
	out := asNobody(t, pr.pid)
	first, rest, _ := strings.Cut(out, "\n")
	t.Log(out)
	for _, want := range []string{"operation not permitted", "uid 0",
		"run as the same user (uid 0 gid 0), or run as root"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q lacks %q", first, want)
		}
	}
	if !strings.Contains(rest, "false user:") || !strings.Contains(rest, "false memory:") {
		t.Errorf("findings: %s", rest)
	}
}

func TestSameUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING TESTED: needs root to become another user")
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	pr := start(t, nobody, "spin")
	if out := asNobody(t, pr.pid); !strings.HasPrefix(out, "<nil>\n") && procfs.Sysctl(yamaScope) == "" {
		t.Errorf("same user: %s", out)
	}
	un := start(t, nobody, "undumpable")
	out := asNobody(t, un.pid)
	if first, _, _ := strings.Cut(out, "\n"); !strings.Contains(first, "not dumpable") ||
		!strings.Contains(first, "root") {
		t.Errorf("not dumpable: %s", out)
	}
}

func TestMainThreadHasEnded(t *testing.T) {
	pr := start(t, nil, "headless")
	if !within(waitLimit, func() bool { return taskState(pr.pid, pr.pid) == 'Z' }) {
		t.Fatal("the main thread does not end")
	}
	p := open(t, pr)
	advances(t, p, pr)
	var c target.Capture
	if err := capture(p, &target.Request{TID: pr.arg}, &c); err != nil || c.SPUnmapped {
		t.Errorf("%v", err)
	}
	if err := capture(p, &target.Request{TID: pr.pid}, &c); !errors.Is(err, target.ErrThreadExited) {
		t.Errorf("the dead main thread: %v", err)
	}
	advances(t, p, pr)
}

func TestPIDNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING TESTED: needs root to make a PID namespace")
	}
	pr := start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "ticks")
	p := open(t, pr)
	ns, err := p.NSTid(pr.pid)
	if err != nil || ns != pr.tid || ns == pr.pid {
		t.Errorf("NSTid(%d) = %d %v, it calls itself %d", pr.pid, ns, err, pr.tid)
	}
	same := start(t, nil, "ticks")
	q := open(t, same)
	if ns, err := q.NSTid(same.pid); err != nil || ns != same.pid {
		t.Errorf("NSTid(%d) = %d %v", same.pid, ns, err)
	}
}

func TestThreads(t *testing.T) {
	pr := start(t, nil, "sleepers", "50")
	p := open(t, pr)
	tids, err := p.Threads()
	if err != nil || len(tids) != 51 {
		t.Fatalf("%d threads, %v", len(tids), err)
	}
	i, err := p.Thread(pr.arg)
	if err != nil || i.Name != "target" || i.State != 'S' || i.StartTime < p.StartTime() {
		t.Errorf("%+v %v", i, err)
	}
	w, err := p.ThreadWait(pr.arg)
	if err != nil || w.Running || w.Syscall != unix.SYS_POLL || w.Runs == 0 {
		t.Errorf("%+v %v", w, err)
	}
	if _, err := p.Thread(unix.Getpid()); !errors.Is(err, target.ErrThreadExited) {
		t.Errorf("not its thread: %v", err)
	}
}

func TestTryBlockedEqualsStop(t *testing.T) {
	pr := start(t, nil, "sleepers", "5")
	p := open(t, pr)
	tids, _ := p.Threads()
	for _, tid := range tids[1:] {
		var a, b target.Capture
		req := &target.Request{TID: tid, Head: pr.ptr, HeadLen: 512}
		if err := p.TryBlocked(req, &a); err != nil {
			t.Fatal(err)
		}
		if err := p.Capture(req, &b); err != nil {
			t.Fatal(err)
		}
		asp, _ := a.Context.Reg(arch.RSP)
		bsp, _ := b.Context.Reg(arch.RSP)
		if a.Context.IP != b.Context.IP || asp != bsp || a.SyscallNr != b.SyscallNr || a.SyscallArgs != b.SyscallArgs {
			t.Errorf("%v %#x %d, stopped: %v %#x %d", a.Context.IP, asp, a.SyscallNr, b.Context.IP, bsp, b.SyscallNr)
		}
		if a.Stack.Base != b.Stack.Base || !bytes.Equal(a.Stack.Data, b.Stack.Data) || !bytes.Equal(a.Head, b.Head) {
			t.Error("the copies differ")
		}
		if a.Stopped || a.Pause != 0 || a.Context.Valid.Len() != 1+len(a.SyscallArgs) {
			t.Errorf("stopped %v pause %v valid %b", a.Stopped, a.Pause, a.Context.Valid)
		}
		for r := range uint8(16) {
			if known, ok := a.Context.Reg(r); ok && known != b.Context.Regs[r] {
				t.Errorf("register %d: %#x, stopped %#x", r, known, b.Context.Regs[r])
			}
		}
	}
	run := start(t, nil, "spin")
	q := open(t, run)
	var c target.Capture
	for range 1000 {
		if err := q.TryBlocked(&target.Request{TID: run.arg}, &c); !errors.Is(err, ErrNotBlocked) {
			t.Fatalf("a running thread: %v", err)
		}
	}
	run.kill()
	if err := q.TryBlocked(&target.Request{TID: run.arg}, &c); !errors.Is(err, ErrExited) {
		t.Errorf("after the end: %v", err)
	}
}

func TestMemory(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	for _, noVM := range []bool{false, true} {
		p.noVM.Store(noVM)
		var b [512]byte
		if err := p.ReadMemory(b[:], pr.ptr); err != nil || b[77] != 77 {
			t.Fatal(err)
		}
		if err := p.ReadMemory(b[:], 0x10); err == nil || errors.Is(err, ErrExited) {
			t.Errorf("unmapped: %v", err)
		}
		ms, err := p.Mappings()
		if err != nil {
			t.Fatal(err)
		}
		for i := range ms {
			if ms[i].Path == "[stack]" { // nothing follows at once
				if n, err := p.ReadPartial(b[:], ms[i].End-100); n != 100 || err != nil {
					t.Errorf("partial: %d %v", n, err)
				}
				if err := p.ReadMemory(b[:], ms[i].End-100); err == nil {
					t.Error("read short")
				}
			}
		}
	}
}

func TestOpenMapping(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "with space (deleted)")
	prog, err := os.ReadFile(testProgram(t, "target"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, prog, 0o755); err != nil {
		t.Fatal(err)
	}
	p := open(t, startFile(t, exe, nil, "ticks"))
	check := func(what string) {
		t.Helper()
		ms, err := p.Mappings()
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.OpenMapping(&ms[0])
		if err != nil {
			if os.Geteuid() == 0 {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		defer f.Close()
		if got, _ := io.ReadAll(io.NewSectionReader(f, 0, 1<<30)); !bytes.Equal(got, prog) {
			t.Errorf("%s: another file (%v)", what, ms[0])
		}
	}
	check("in place")
	if f, err := p.OpenFile(exe); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	_ = os.Rename(exe, exe+"2")
	_ = os.Remove(exe + "2")
	check("deleted")
	_ = os.WriteFile(exe, []byte("another"), 0o755)
	check("replaced")
}

func TestOpenFileNeverBlocks(t *testing.T) {
	p := open(t, start(t, nil, "ticks"))
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	_ = unix.Mkfifo(fifo, 0o666)
	for _, path := range []string{fifo, "/dev/null", dir} {
		if _, err := p.OpenFile(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestCPUTime compares the CPU clocks of a process.
func TestCPUTime(t *testing.T) {
	self, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	begin, before, used := time.Now(), self.CPUTime(), time.Duration(0)
	for used < 20*time.Millisecond && time.Since(begin) < waitLimit {
		used = self.CPUTime() - before
	}
	if used < 20*time.Millisecond {
		t.Errorf("a loop of %v used %v", time.Since(begin), used)
	}
}
