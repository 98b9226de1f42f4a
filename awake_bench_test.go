package clrsnap_test

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wakers keep processors from halting: how long a halted one of a virtual machine takes
// to wake up is up to the physical machine, and changes by a factor within seconds.
type wakers []*exec.Cmd

// keepAwake starts a process for each processor, until the benchmark ends, that runs only
// if nobody else wants to.
func keepAwake(b *testing.B) (all wakers) {
	b.Helper()
	for cpu := range runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(c.Process.Pid, &one); err != nil {
			b.Logf("processor %d may halt: %v", cpu, err)
		}
		if err := unix.SchedSetAttr(c.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			b.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// cpu is the CPU time that they have used.
func (w wakers) cpu(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, c := range w {
		sum += processCPU(b, c.Process.Pid)
	}
	return sum
}
