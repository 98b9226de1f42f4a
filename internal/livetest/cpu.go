package livetest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the used CPU time of a process.
func CPU(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	var ts unix.Timespec
	const scheduler = 2 // CPUCLOCK_SCHED, as in clock_getcpuclockid
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// MachineCPU is the time in which CPUs have not been idle. It includes time that other machines took
// away from this machine.
func MachineCPU(tb testing.TB) time.Duration {
	tb.Helper()
	busy, stolen := machineTimes(tb)
	return busy + stolen
}

// StolenCPU is the time that other machines took away from this machine. The kernel's clocks of CPUs
// go on meanwhile, and so samples stand for stolen time; the CPU time of threads does not include it.
func StolenCPU(tb testing.TB) time.Duration {
	tb.Helper()
	_, stolen := machineTimes(tb)
	return stolen
}

func machineTimes(tb testing.TB) (busy, stolen time.Duration) {
	tb.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d",
		&user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		tb.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture of .NET
	return time.Duration(user+nice+system+irq+softirq) * tick, time.Duration(steal) * tick
}
