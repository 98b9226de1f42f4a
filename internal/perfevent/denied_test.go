package perfevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// report is a sampler's output.
type report struct {
	Error          string
	Unavailable    bool
	Exited         bool
	KernelExcluded bool
	BufferBytes    int
	Samples        int
	Elsewhere      int // samples outside the target's burning function
	InKernel       int
	Scope          Scope
	Why            string
	Named          int // samples with a thread's name
	Foreign        int // records of other processes that came here
	OfChild        int // samples of the process's child
	Refusals       []string
}

// sampler is another user. Its arguments are the action: "sample", "open", "few files", "scope",
// or an action and a denied system call; and the object: the target's program, or a PID.
var sampler = role.New("sampler", func(a role.Args) error {
	var r report
	arg := a[1]
	pid, _ := strconv.Atoi(arg)
	do, denied, _ := strings.Cut(a[0], " without ")
	if denied != "" {
		if err := testenv.DenySyscalls(denied); err != nil {
			r.fail(err)
			do = ""
		}
	}
	switch do {
	case "scope":
		r.scope(pid)
	case "inside", "inside nested":
		if err := r.inside(arg, do == "inside nested"); err != nil {
			r.fail(err)
		}
	case "sample":
		r.sample(arg)
	case "few files":
		r.fewFiles(Options{PID: pid})
	case "few files for threads":
		r.fewFiles(Options{PID: pid, Scope: PerThread})
	case "open":
		r.open(Options{PID: pid})
	}
	return json.NewEncoder(os.Stdout).Encode(r)
})

func (r *report) open(o Options) {
	e, err := Open(o)
	if err == nil {
		e.Close()
	} else {
		r.fail(err)
	}
}

// fewFiles opens with fewer and fewer file descriptors, down to one more than are in use. The
// descriptors in use, and each scope's need, differ from machine to machine.
func (r *report) fewFiles(o Options) {
	const enough = 100
	r.Unavailable = true
	for n := uint64(enough); ; n-- {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0) // the lowest free descriptor
		unix.Close(fd)
		if err != nil || uint64(fd) >= n {
			return
		}
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n})
		var at report
		at.open(o)
		if at.Error != "" {
			r.Refusals = append(r.Refusals, at.Error)
			r.Unavailable = r.Unavailable && at.Unavailable
		}
	}
}

func (r *report) fail(err error) {
	r.Error, r.Unavailable, r.Exited = err.Error(), errors.Is(err, ErrUnavailable), errors.Is(err, ErrExited)
}

// sample samples a process of our own.
func (r *report) sample(path string) {
	cmd := exec.Command(path, "2")
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		r.fail(err)
		return
	}
	defer cmd.Wait()
	defer stdin.Close()
	var a, b [2]uint64
	if _, err := fmt.Fscanf(stdout, "burn_a %d %d\nburn_b %d %d\n", &a[0], &a[1], &b[0], &b[1]); err != nil {
		r.fail(err)
		return
	}
	e, err := Open(Options{PID: cmd.Process.Pid, Period: time.Millisecond, Kernel: true})
	if err != nil {
		r.fail(err)
		return
	}
	defer e.Close()
	r.KernelExcluded, r.BufferBytes = e.KernelExcluded(), e.BufferBytes()
	r.Scope, _ = e.Scope()
	for end := time.Now().Add(hang); r.Samples < 500 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := e.Read(func(rec *Record) {
			if rec.Kind != Sampled {
				return
			}
			r.Samples++
			if ip := uint64(rec.Context.IP); !within(ip, a) && !within(ip, b) {
				r.Elsewhere++
			}
			if rec.InKernel || len(rec.Kernel) > 0 {
				r.InKernel++
			}
		}); err != nil {
			r.fail(err)
			return
		}
	}
}

// scope samples a process in the best scope.
func (r *report) scope(pid int) {
	e, err := Open(Options{PID: pid, Period: time.Millisecond, Kernel: true})
	if err != nil {
		r.fail(err)
		return
	}
	defer e.Close()
	s, why := e.Scope()
	r.Scope, r.KernelExcluded = s, e.KernelExcluded()
	if why != nil {
		r.Why = why.Error()
	}
	for end := time.Now().Add(hang); r.Samples < 100 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := e.Read(func(rec *Record) {
			if rec.Kind == Sampled {
				r.Samples++
				if rec.PID != pid {
					r.Elsewhere++
				}
				if rec.Name == "target" {
					r.Named++
				}
			}
		}); err != nil {
			r.fail(err)
			return
		}
	}
	r.Foreign = e.Stats().Foreign
}

// play runs a sampler in a new process, as a user.
func play(t *testing.T, uid uint32, do, arg string, caps ...uintptr) report {
	t.Helper()
	cmd := sampler.Command(do, arg)
	cmd.Path, cmd.Dir = testBinary(t), "/"
	cmd.Stderr = os.Stderr
	if strings.HasPrefix(do, "inside") {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	}
	if uid != uint32(os.Getuid()) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, AmbientCaps: caps}
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// testBinary copies the test binary to a place where everybody may execute it.
func testBinary(t *testing.T) string {
	t.Helper()
	dir, err := targetDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "perfevent.test")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := role.Copy(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can be another user")
	}
}

// TestUnprivileged: where the setting allows it, any user can sample his own processes, without
// the kernel and with smaller buffers; else the error names the setting.
func TestUnprivileged(t *testing.T) {
	layer.Live(t)
	need(t)
	needRoot(t)
	r := play(t, nobody, "sample", targetPath(t))
	t.Logf("kernel.perf_event_paranoid is %d: %+v", paranoid(), r)
	if paranoid() > 2 {
		if !r.Unavailable || !strings.Contains(r.Error, "sysctl kernel.perf_event_paranoid=2") {
			t.Errorf("%+v", r)
		}
		return
	}
	if r.Error != "" || r.Samples < 500 || r.Elsewhere > r.Samples/20 || r.BufferBytes < minRing {
		t.Errorf("%+v", r)
	}
	if r.KernelExcluded != (paranoid() > 1) || r.KernelExcluded && r.InKernel > 0 {
		t.Errorf("kernel.perf_event_paranoid is %d: %+v", paranoid(), r)
	}
}

// TestDenied: the error gives the obstacle and the remedy.
func TestDenied(t *testing.T) {
	layer.Live(t)
	p := start(t, "sss")
	p.scan("READY")
	self := strconv.Itoa(p.pid)
	checkFewFiles(t, play(t, uint32(os.Getuid()), "few files", self), "file descriptors")
	checkFewFiles(t, play(t, uint32(os.Getuid()), "few files for threads", self), "4 threads on")
	needRoot(t)
	r := play(t, nobody, "open", self)
	if !r.Unavailable || !strings.Contains(r.Error, "CAP_PERFMON") {
		t.Errorf("another user: %+v", r)
	}
	t.Log(r.Error)

	p.end()
	if _, err := Open(Options{PID: p.pid}); !errors.Is(err, ErrExited) {
		t.Errorf("a process that has ended: %v", err)
	}
	for _, o := range []Options{{}, {PID: 1, Period: 1}, {PID: 1, StackBytes: 12}, {PID: 1, StackBytes: 1 << 16},
		{PID: 1, BufferBytes: 12345}, {PID: 1, BufferBytes: 4096}} {
		if e, err := Open(o); err == nil {
			e.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

// checkFewFiles requires that every refusal says how to raise the limit, and one refusal gives
// the need.
func checkFewFiles(t *testing.T, r report, needed string) {
	t.Helper()
	if !r.Unavailable || len(r.Refusals) < 3 {
		t.Errorf("few files: %+v", r)
	}
	for _, s := range r.Refusals {
		if !strings.Contains(s, "ulimit -n") {
			t.Errorf("few files: %s", s)
		}
	}
	if !slices.ContainsFunc(r.Refusals, func(s string) bool { return strings.Contains(s, needed) }) {
		t.Errorf("%q is not in %q", needed, r.Refusals)
	}
}

// TestRefusals: each refusal by the kernel or a sandbox comes with advice.
func TestRefusals(t *testing.T) {
	e := &Events{o: Options{PID: 42}}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{e.refused(unix.ENOSYS), "no perf events"},
		{e.refused(unix.EPERM), "--cap-add PERFMON"},
		{e.openError(unix.EACCES, 1), "process 42 is another user's"},
		{e.openError(unix.ENFILE, 1), "fs.file-max"},
	} {
		if !errors.Is(tt.err, ErrUnavailable) || !strings.Contains(tt.err.Error(), tt.want) ||
			strings.Contains(tt.err.Error(), "\n") {
			t.Errorf("%v: want %q", tt.err, tt.want)
		}
		if e, ok := errors.AsType[*Error](tt.err); !ok || e.Remedy == "" && !errors.Is(e, unix.ENOSYS) {
			t.Errorf("%v: without a remedy", tt.err)
		}
	}
}
