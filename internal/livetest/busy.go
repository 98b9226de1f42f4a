package livetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartBusy starts n processes that do nothing but use CPUs, until the test ends.
func StartBusy(tb testing.TB, n int) {
	tb.Helper()
	for range n {
		c := exec.Command("timeout", "900", "sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait() // killed
		})
	}
}

// Measured is the result of a run of a command.
type Measured struct {
	Stdout []byte
	Stderr string
	Status int
	Peak   int // most memory, in KB
	Own    int // most of the memory that is no page of a file, in KB
	CPU    time.Duration
}

// RunMeasured runs a command. The kernel's own maximum of a process's memory (ru_maxrss) is at least
// the memory of the parent at the start, so the maximum is read from the process.
func RunMeasured(tb testing.TB, c *exec.Cmd) Measured {
	tb.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	var r Measured
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // checked below
	}()
	for running := true; running; {
		peak, own := memory(c.Process.Pid)
		r.Peak, r.Own = max(r.Peak, peak), max(r.Own, own)
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
		}
	}
	r.Stdout, r.Stderr, r.Status = out.Bytes(), errs.String(), c.ProcessState.ExitCode()
	r.CPU = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return r
}

// memory returns the most memory of a process since it was executed, and how much of its memory now is no page of a
// file, in KB. memory returns 0 if the process has ended, or is not executed yet.
func memory(pid int) (peak, own int) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if self, _ := os.Executable(); err != nil || exe == self {
		return 0, 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	number := func(name string) (kb int) {
		if _, rest, ok := strings.Cut(string(b), "\n"+name+":"); ok {
			_, _ = fmt.Sscan(rest, &kb) // 0 then
		}
		return kb
	}
	return number("VmHWM"), number("RssAnon")
}
