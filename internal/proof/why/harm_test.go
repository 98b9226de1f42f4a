package why

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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
	dir := newGroup(t, "cpu")
	if exists(dir, "cpu.max") {
		write(t, dir, "cpu.max", "10000 100000")
	} else {
		write(t, dir, "cpu.cfs_quota_us", "10000")
	}
	write(t, dir, "cgroup.procs", strconv.Itoa(a.PID))
}

// littleMemory has a program start in a control group with a limit of 120 MB; .NET lets the heap have three
// quarters.
func littleMemory(t *testing.T) testenv.Options {
	t.Helper()
	dir := newGroup(t, "memory")
	file := "memory.limit_in_bytes"
	if exists(dir, "memory.max") {
		file = "memory.max"
	}
	write(t, dir, file, strconv.Itoa(120<<20))
	return testenv.Options{Prepare: func(c *exec.Cmd) {
		join := fmt.Sprintf(`echo $$ >%s/cgroup.procs && exec "$0" "$@"`, dir)
		c.Args = append([]string{"sh", "-c", join, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}}
}

// newGroup makes a control group with a controller below our own group, until the end of the test.
func newGroup(t *testing.T, controller string) (dir string) {
	t.Helper()
	parent, err := ownGroup(controller)
	if err == nil {
		dir, err = os.MkdirTemp(parent, "clrsnap-why-")
	}
	if err != nil {
		layer.Lacking(t, fmt.Sprintf("no control group with the controller %s can be made: %v", controller, err))
	}
	t.Cleanup(func() {
		if err := moveAll(dir, parent); err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ownGroup is the folder of this process's control group.
func ownGroup(controller string) (string, error) {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	defer f.Close()
	v2 := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.SplitN(lines.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[0] == "0" {
			v2 = filepath.Join("/sys/fs/cgroup", part[2])
		}
		if part[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, part[2]), nil
		}
	}
	if !exists(v2, "cgroup.controllers") {
		return "", errors.New("none is mounted")
	}
	return v2, nil
}

func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
		layer.Lacking(t, fmt.Sprintf("a control group cannot be set up: %v", err))
	}
}

// moveAll moves all processes of a control group to another group.
func moveAll(from, to string) error {
	text, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(text)) {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
