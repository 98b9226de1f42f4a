package testenv

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// OneCPU has this process and other processes share one CPU until the test ends: while this process computes, the
// threads of the others wait.
func OneCPU(tb testing.TB, pids ...int) {
	tb.Helper()
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		tb.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if may.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	self := os.Getpid()
	tb.Cleanup(func() { setAffinity(tb, self, &may) })
	for _, pid := range append(pids, self) {
		setAffinity(tb, pid, &one)
	}
}

// setAffinity has all threads of a process run on some CPUs.
func setAffinity(tb testing.TB, pid int, cpus *unix.CPUSet) {
	tb.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			tb.Fatal(err)
		}
		if err := unix.SchedSetaffinity(tid, cpus); err != nil && err != unix.ESRCH {
			tb.Fatal(err)
		}
	}
}
