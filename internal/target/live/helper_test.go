package live

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) {
	role.Play()
	code := m.Run()
	if binaryDir != "" {
		os.RemoveAll(binaryDir)
	}
	os.Exit(code)
}

// opener reports whether it may open a process.
var opener = role.New("opener", func(a role.Args) error {
	_, err := Open(a.Int(0))
	fmt.Println(err)
	for _, f := range CheckAccess(a.Int(0)) {
		fmt.Printf("%v %s: %s | %s\n", f.OK, f.Check, f.Detail, f.Remedy)
	}
	return nil
})

// staller looks at a signal-delivery-stop as poll does, and then waits to be killed at the worst
// moment: before the signal is given back.
var staller = role.New("staller", func(a role.Args) error {
	runtime.LockOSThread()
	te := tracee{tid: uintptr(a.Int(0))}
	if te.seize(&shared{}); te.errno != 0 {
		return te.errno
	}
	for te.info.signo == 0 {
		te.look()
	}
	fmt.Println("signal", te.info.status)
	time.Sleep(time.Minute)
	return nil
})

// tracer captures threads until it is killed.
var tracer = role.New("tracer", func(a role.Args) error {
	p, err := Open(a.Int(0))
	if err != nil {
		return err
	}
	fmt.Println("tracing")
	return p.Trace(func(t *Tracer) error {
		var c target.Capture
		for {
			tids, _ := p.Threads()
			for _, tid := range tids {
				if err := t.Capture(&target.Request{TID: tid}, &c); errors.Is(err, ErrTracerLost) {
					return err
				}
			}
		}
	})
})

var (
	binaryOnce sync.Once
	binaryDir  string
	binaryErr  error
)

// testProgram compiles testdata/<name>.c.
func testProgram(t testing.TB, name string) string {
	binaryOnce.Do(func() {
		var gcc string
		if gcc, binaryErr = exec.LookPath("gcc"); binaryErr != nil {
			return
		}
		if binaryDir, binaryErr = os.MkdirTemp("", "live"); binaryErr != nil {
			return
		}
		_ = os.Chmod(binaryDir, 0o755)
		for _, name := range []string{"target", "faults"} {
			out, err := exec.Command(gcc, "-O1", "-pthread", "-o", filepath.Join(binaryDir, name),
				"testdata/"+name+".c").CombinedOutput()
			if err != nil {
				binaryErr = fmt.Errorf("%w\n%s", err, out)
			}
		}
	})
	if errors.Is(binaryErr, exec.ErrNotFound) {
		layer.Lacking(t, "no gcc to build the target programs with")
	}
	if binaryErr != nil {
		t.Fatal(binaryErr)
	}
	return filepath.Join(binaryDir, name)
}

// program is a running test program.
type program struct {
	cmd     *exec.Cmd
	pid     int
	tid     int       // the main thread, in the program's PID namespace
	arg     int       // the mode's own output
	cnt     arch.Addr // uint64[4]
	ptr     arch.Addr
	stopped bool
}

func start(t testing.TB, attr *syscall.SysProcAttr, mode ...string) *program {
	t.Helper()
	return startFile(t, testProgram(t, "target"), attr, mode...)
}

// startFile starts a copy of the target.
func startFile(t testing.TB, exe string, attr *syscall.SysProcAttr, mode ...string) *program {
	t.Helper()
	cmd := exec.Command(exe, mode...)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pr := &program{cmd: cmd, pid: cmd.Process.Pid}
	t.Cleanup(func() { pr.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %v", mode, err)
	}
	var cnt, ptr string
	if _, err := fmt.Sscanf(line, "ready %d %d %s %s", &pr.tid, &pr.arg, &cnt, &ptr); err != nil {
		t.Fatalf("%v: %q: %v", mode, line, err)
	}
	pr.cnt, pr.ptr = hexAddr(cnt), hexAddr(ptr)
	return pr
}

func hexAddr(s string) arch.Addr {
	v, _ := strconv.ParseUint(s, 0, 64)
	return arch.Addr(v)
}

func (pr *program) kill() {
	if !pr.stopped {
		pr.stopped = true
		_ = pr.cmd.Process.Kill()
		_ = pr.cmd.Wait()
	}
}

func open(t testing.TB, pr *program) *Process {
	t.Helper()
	p, err := Open(pr.pid)
	if err != nil {
		if errors.Is(err, ErrPermission) {
			t.Skipf("SKIPPED, NOTHING TESTED: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.inside = openInside
	// A busy machine keeps the tracer and the threads waiting longer than users want.
	p.Watchdog, p.StopLimit = 500*time.Millisecond, waitLimit
	return p
}

// openInside makes open choose a tracer in a thread of ours.
var openInside bool

func counter(t testing.TB, p *Process, pr *program, i int) uint64 {
	t.Helper()
	var b [8]byte
	if err := p.ReadMemory(b[:], pr.cnt+arch.Addr(8*i)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

// advances fails the test unless the program makes progress.
func advances(t testing.TB, p *Process, pr *program) {
	t.Helper()
	c := counter(t, p, pr, 0)
	if !within(waitLimit, func() bool { return counter(t, p, pr, 0) > c+1 }) {
		t.Fatalf("the target stands still: its counter stays at %d", c)
	}
}

// waitLimit bounds a test's wait for a certain event. The event mostly comes at once, but can be
// late on a busy machine.
const waitLimit = 30 * time.Second

func within(d time.Duration, f func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}

// readProc reads /proc/<name>; empty on an error.
func readProc(name string) []byte {
	b, _ := os.ReadFile("/proc/" + name)
	return b
}

// taskState is the state of a thread as in proc_pid_stat(5); 0: the thread is gone.
func taskState(pid, tid int) byte {
	s, err := procfs.ParseStat(readProc(fmt.Sprintf("%d/task/%d/stat", pid, tid)))
	if err != nil {
		return 0
	}
	return s.State
}

// untraced fails the test if a thread of the target is still attached to us.
func untraced(t testing.TB, p *Process, tid int) {
	t.Helper()
	s, err := p.taskStatus(tid)
	if err != nil {
		t.Fatal(err)
	}
	if s.TracerPID != 0 {
		t.Fatalf("thread %d is still traced by %d", tid, s.TracerPID)
	}
}

func captureAll(p *Process, reqs []target.Request, out []target.Capture, errs []error) error {
	return p.Trace(func(t *Tracer) error {
		_, err := t.CaptureAll(reqs, out, errs)
		return err
	})
}

// capturing is the tests' way of capturing a thread: by itself, or at once with all others.
var capturing = (*Tracer).Capture

// captureAmongAll captures a thread at once with all others of its process.
func captureAmongAll(t *Tracer, req *target.Request, out *target.Capture) error {
	if t.p.StopLimit == 0 {
		t.p.StopLimit = waitLimit / 3 // a busy machine
	}
	tids, err := t.p.Threads()
	if err != nil {
		return err
	}
	reqs := []target.Request{*req}
	for _, tid := range tids {
		if tid != req.TID {
			reqs = append(reqs, target.Request{TID: tid, StackLimit: 4096})
		}
	}
	outs, errs := make([]target.Capture, len(reqs)), make([]error, len(reqs))
	err = t.CaptureEach(reqs, outs, errs)
	*out = outs[0]
	return errors.Join(err, errs[0])
}

// capture captures a thread with capturing.
func capture(p *Process, req *target.Request, out *target.Capture) error {
	return p.Trace(func(t *Tracer) error { return capturing(t, req, out) })
}
