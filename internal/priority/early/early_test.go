package early

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestBegun: the main thread of this test has the highest nice value, if that is permitted.
func TestBegun(t *testing.T) {
	if !Begun() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no right to raise the priority, or somebody has chosen a priority")
	}
	defer syscall.Setpriority(syscall.PRIO_PROCESS, os.Getpid(), 0)
	if got, err := syscall.Getpriority(syscall.PRIO_PROCESS, os.Getpid()); got != notNice-highest || err != nil {
		t.Errorf("getpriority says %d, %v", got, err)
	}
}

// calm gives all threads of this process the ordinary nice value, which child processes inherit.
func calm(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, 0)
	}
}

// TestEntry: a program that is linked with the entry has the highest nice value before Go has started a thread. A
// chosen priority stays, in the main thread and in Go's threads.
func TestEntry(t *testing.T) {
	if runtime.GOARCH != "amd64" || !Begun() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: there is no entry for this machine, or no right to raise the priority")
	}
	calm(t)
	program := filepath.Join(t.TempDir(), "start")
	build := exec.Command("go", "build", "-ldflags", "-E clrsnap_entry", "-o", program, "./testdata/start")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		how  []string
		nice string
		is   bool
	}{
		{[]string{"chrt", "--other", "0", program}, "-20", true},
		{[]string{"nice", "-n", "5", program}, "5", false},
		{[]string{"chrt", "--batch", "0", program}, "0", false},
	} {
		cmd := exec.Command(c.how[0], c.how[1:]...)
		out, err := cmd.CombinedOutput()
		f := strings.Fields(string(out))
		if err != nil || len(f) < 3 || f[0] == "true" != c.is {
			t.Errorf("%s: %v: %s", cmd, err, out)
			continue
		}
		for _, nice := range f[1:] {
			if nice != c.nice {
				t.Errorf("%s: %s, want %s", cmd, out, c.nice)
			}
		}
	}
}
