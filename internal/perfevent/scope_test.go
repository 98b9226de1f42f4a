package perfevent

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// TestScopes: each scope is used with exactly its requirements, samples the process and nothing
// else, and says why the scope is not better.
func TestScopes(t *testing.T) {
	layer.Live(t)
	p := start(t, "2")
	p.burner()
	needRoot(t)
	pid := strconv.Itoa(p.pid)
	if paranoid() < 1 {
		t.Fatalf("kernel.perf_event_paranoid is %d: everybody may watch whole CPUs, "+
			"which this test must be able to forbid", paranoid())
	}
	for _, tt := range []struct {
		name     string
		uid      uint32
		role     string
		caps     []uintptr
		want     Scope
		why      string
		noKernel bool
	}{
		{name: "root", role: "scope", want: Filtered},
		{name: "all capabilities", uid: nobody, role: "scope",
			caps: []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_PERFMON, unix.CAP_BPF}, want: Filtered},
		{name: "no CAP_BPF", uid: nobody, role: "scope", caps: []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_PERFMON},
			want: Unfiltered, why: "CAP_BPF"},
		{name: "no CAP_PERFMON", uid: nobody, role: "scope", caps: []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_BPF},
			want: PerThread, why: "CAP_PERFMON", noKernel: true},
		{name: "no bpf(2)", role: "scope without bpf", want: Unfiltered, why: "CAP_BPF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := play(t, tt.uid, tt.role, pid, tt.caps...)
			if r.Error != "" || r.Scope != tt.want || !strings.Contains(r.Why, tt.why) ||
				(r.Why == "") != (tt.why == "") || strings.Contains(r.Why, "\n") {
				t.Fatalf("%v, because %q; want %v: %+v", r.Scope, r.Why, tt.want, r)
			}
			t.Log(r.Why)
			if r.Samples < 100 || r.Elsewhere > 0 || r.KernelExcluded != (tt.noKernel && paranoid() > 1) {
				t.Errorf("%+v", r)
			}
			if tt.want == Filtered && (r.Named != r.Samples || r.Foreign > 0) {
				t.Errorf("the kernel's filter lets others pass, or does not name threads: %+v", r)
			}
		})
	}
	if r := play(t, 0, "scope without perf_event_open", pid); !r.Unavailable ||
		!strings.Contains(r.Error, "--cap-add PERFMON") {
		t.Errorf("without perf_event_open: %+v", r)
	}
}

// TestParanoid: where everybody may watch whole CPUs, no capability is needed. No other test may
// depend on the setting meanwhile.
func TestParanoid(t *testing.T) {
	layer.Quiet(t)
	need(t)
	needRoot(t)
	const file = "/proc/sys/kernel/perf_event_paranoid"
	was := strconv.Itoa(paranoid())
	if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	defer func() {
		if err := os.WriteFile(file, []byte(was), 0o644); err != nil {
			t.Error(err)
		}
	}()
	r := play(t, nobody, "sample", targetPath(t))
	if r.Error != "" || r.Scope != Unfiltered || r.KernelExcluded || r.Samples < 500 {
		t.Errorf("%+v", r)
	}
}

// TestNamespaces: in a container, where the kernel's ids are hidden from us, the filter knows a
// process by its id in its own PID namespace. The process may be in a namespace inside ours, and
// so may its children.
func TestNamespaces(t *testing.T) {
	layer.Live(t)
	needRoot(t)
	need(t)
	for _, role := range []string{"inside", "inside nested"} {
		r := play(t, 0, role, targetPath(t))
		if r.Error != "" || r.Scope != Filtered || r.Why != "" || r.Samples < 100 || r.OfChild < 100 ||
			r.Elsewhere > 0 || r.Foreign > 0 || r.Named < r.Samples {
			t.Errorf("%s: %+v", role, r)
		}
	}
}

// inside samples a process, and its child, in a PID namespace other than the kernel's own;
// nested: the process is in a further namespace.
func (r *report) inside(path string, nested bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	var stdin io.WriteCloser
	var pid, child int
	for i := range 2 { // the test samples the second process, whose own id is another process's id here
		cmd := exec.Command(path, "2")
		if nested && i == 1 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		}
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			return err
		}
		defer cmd.Wait()
		defer in.Close()
		stdin, pid = in, cmd.Process.Pid
		lines := bufio.NewScanner(out)
		go func() {
			for lines.Scan() {
			}
		}()
	}
	e, err := Open(Options{PID: pid, Period: time.Millisecond, Children: true})
	if err != nil {
		return err
	}
	defer e.Close()
	scope, why := e.Scope()
	if r.Scope = scope; why != nil {
		r.Why = why.Error()
	}
	if _, err := io.WriteString(stdin, "f"); err != nil {
		return err
	}
	end := time.Now().Add(hang)
	for ; (r.Samples < 100 || r.OfChild < 100) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		err := e.Read(func(rec *Record) {
			if rec.Kind != Sampled {
				return
			}
			if rec.Name == "target" {
				r.Named++
			}
			status, err := statusOf(rec.PID)
			switch {
			case rec.PID == pid:
				r.Samples++
			case err == nil && status.PPID == pid:
				r.OfChild, child = r.OfChild+1, rec.PID
			default:
				r.Elsewhere++
			}
		})
		if err != nil {
			return err
		}
	}
	r.Foreign = e.Stats().Foreign
	return unix.Kill(child, unix.SIGKILL)
}
