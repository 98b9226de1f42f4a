package why

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

// fewDescriptors leaves room for the 400 files that a program keeps open, and for 20 more.
func fewDescriptors(t *testing.T, a *testenv.App) {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.PID))
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(len(open) + 400 + 20)
	if err := unix.Prlimit(a.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		t.Fatal(err)
	}
}

// stop stops a program as Ctrl-Z does, until the end of the test.
func stop(t *testing.T, a *testenv.App) {
	t.Helper()
	if err := syscall.Kill(a.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(a.PID, syscall.SIGCONT) }) // fails if the program has ended
}

// debug has another process stop all threads of a program with ptrace, as debuggers do.
func debug(t *testing.T, a *testenv.App) {
	t.Helper()
	if said := testenv.StartSaying(t, debugger.Command(a.PID)); said != "attached" {
		t.Fatalf("the debugger says %q", said)
	}
}

var debugger = role.New("debugger", func(a role.Args) error {
	runtime.LockOSThread()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", a.Int(0)))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("no threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.PtraceSeize(tid); errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		} else if err != nil {
			return err
		}
		if err := unix.PtraceInterrupt(tid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	fmt.Println("attached")
	time.Sleep(time.Hour) // until the test kills this process, whose end detaches the threads
	return nil
})

// throttle limits a program to a tenth of a CPU by a control group.
func throttle(t *testing.T, a *testenv.App) {
	t.Helper()
	if err := testenv.LimitCPU(t, a.PID, 0.1); err != nil {
		layer.Lacking(t, err.Error())
	}
}

// littleMemory has a program start in a control group with a limit of 120 MB; .NET lets the heap have three
// quarters.
func littleMemory(t *testing.T) testenv.Options {
	t.Helper()
	dir, err := testenv.NewGroup(t, "memory")
	if err == nil {
		err = testenv.SetGroup(dir, strconv.Itoa(120<<20), "memory.max", "memory.limit_in_bytes")
	}
	if err != nil {
		layer.Lacking(t, err.Error())
	}
	return testenv.Options{Prepare: func(c *exec.Cmd) {
		join := fmt.Sprintf(`echo $$ >%s/cgroup.procs && exec "$0" "$@"`, dir)
		c.Args = append([]string{"sh", "-c", join, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}}
}
