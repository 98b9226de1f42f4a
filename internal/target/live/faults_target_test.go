package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// books are the records of testdata/faults.c, in shared memory.
type books struct {
	progress, victim, action, done      uint64
	usr1, rt, last, disorder            uint64
	main, generation, respawned, childs uint64
	sleepy, wrong                       uint64
}

// Actions of the victim thread.
const (
	actExitThread = 1 + iota
	actExec
	actFork
	actVfork
	actClone
	actExitProcess
)

const actExitCode = 37

// faultTarget is a process that records every event.
type faultTarget struct {
	exe, file string
	books     *books
	cmd       *exec.Cmd
	want      books // usr1 and rt: the sent signals

	patient *Process // a Process with a long watchdog limit
	strict  *Process // a Process with the default watchdog limit
}

func newFaultTarget(t *testing.T) *faultTarget {
	ft := &faultTarget{exe: testProgram(t, "faults"), file: filepath.Join(t.TempDir(), "books")}
	t.Cleanup(ft.end)
	return ft
}

// begin starts a process, unless one runs.
func (ft *faultTarget) begin() error {
	if ft.cmd != nil {
		return nil
	}
	if err := os.WriteFile(ft.file, make([]byte, 4096), 0o666); err != nil {
		return err
	}
	f, err := os.OpenFile(ft.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	ft.books, ft.want = (*books)(unsafe.Pointer(&mem[0])), books{}
	ft.cmd = exec.Command(ft.exe, "target", ft.file)
	ft.cmd.Stderr = os.Stderr
	if err := ft.cmd.Start(); err != nil {
		return err
	}
	if !within(waitLimit, func() bool { return get(&ft.books.progress) > 0 }) {
		return fmt.Errorf("target %d does not begin", ft.pid())
	}
	if ft.patient, err = Open(ft.pid()); err != nil {
		return err
	}
	ft.patient.Watchdog = 20 * time.Second
	ft.strict, err = Open(ft.pid())
	return err
}

func (ft *faultTarget) pid() int    { return ft.cmd.Process.Pid }
func (ft *faultTarget) victim() int { return int(get(&ft.books.victim)) }

func get(p *uint64) uint64    { return atomic.LoadUint64(p) }
func put(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// ask makes the victim perform an action, as soon as it runs.
func (ft *faultTarget) ask(action uint64) { put(&ft.books.action, action) }

// over notes the end of the process, and its status.
func (ft *faultTarget) over() *os.ProcessState {
	ft.patient.Close()
	ft.strict.Close()
	_ = ft.cmd.Wait() // the state has the result
	state := ft.cmd.ProcessState
	_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(ft.books)), 4096))
	ft.cmd = nil
	return state
}

func (ft *faultTarget) end() {
	if ft.cmd != nil {
		_ = ft.cmd.Process.Kill()
		ft.over()
	}
}

// check requires that the target goes on, in all its threads, and has got every signal.
func (ft *faultTarget) check() error {
	b := ft.books
	progress, main := get(&b.progress), get(&b.main)
	if !within(10*time.Second,
		func() bool { return get(&b.progress) > progress+1 && get(&b.main) > main+1 && get(&b.action) == 0 }) {
		return fmt.Errorf("the target stands still: victim %d → %d, main thread %d → %d, action %d\n%s", progress,
			get(&b.progress), main, get(&b.main), get(&b.action), states(ft.pid()))
	}
	if !within(waitLimit, func() bool { return get(&b.usr1) == ft.want.usr1 && get(&b.rt) == ft.want.rt }) {
		return fmt.Errorf("signals: %d of %d, queued: %d of %d", get(&b.usr1), ft.want.usr1, get(&b.rt), ft.want.rt)
	}
	if get(&b.disorder) != 0 || get(&b.wrong) != 0 {
		return fmt.Errorf("queued signals out of order: %d; wrong: %#x", get(&b.disorder), get(&b.wrong))
	}
	return notHeld(ft.pid())
}

// notHeld requires that no thread of a process is traced, or stopped. It gives up before a
// watchdog with a limit of 20 seconds would help.
func notHeld(pid int) error {
	var last string
	if within(10*time.Second, func() bool { last = held(pid); return last == "" }) {
		return nil
	}
	return fmt.Errorf("%s", last)
}

func held(pid int) string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		s, err := procfs.ParseStatus(b)
		if err != nil || s.TracerPID != 0 || s.State == 't' || s.State == 'T' {
			return fmt.Sprintf("%s: traced by %d, state %c (%v)", file, s.TracerPID, s.State, err)
		}
	}
	return ""
}

func states(pid int) string {
	var out string
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		out += string(b)
	}
	return out
}

// leftTasks lists tracers and watchdogs that are in parents, or have their parent there.
func leftTasks(parents ...int) []string {
	var out []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		s, err := procfs.ParseStat(b)
		if err != nil || s.Comm != "clrsnap-watch" && s.Comm != "clrsnap-trace" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		for _, parent := range parents {
			if s.PPID == parent || pid == parent {
				out = append(out, fmt.Sprintf("%d (%s) %c, child of %d", pid, s.Comm, s.State, s.PPID))
			}
		}
	}
	return out
}
