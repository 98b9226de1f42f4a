package cost

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"

	"golang.org/x/sys/unix"
)

// wakers keep CPUs from halting. The wake-up time of a halted CPU of a virtual machine
// depends on the physical machine, and changes by a factor within seconds.
type wakers []*exec.Cmd

// keepAwake starts a process for each CPU, until the benchmark ends. The process runs only
// while no other process wants the CPU.
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
			b.Logf("CPU %d may halt: %v", cpu, err)
		}
		idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
		if err := unix.SchedSetAttr(c.Process.Pid, &idle, 0); err != nil {
			b.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// cpu is the CPU time that the wakers have used.
func (w wakers) cpu(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, c := range w {
		sum += livetest.CPU(b, c.Process.Pid)
	}
	return sum
}
