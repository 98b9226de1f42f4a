package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// NeedQuiet ends a proof that measures time, if other programs or other machines use too much of the CPUs at the
// proof's beginning. Nothing of the test itself may run yet.
func NeedQuiet(tb testing.TB) {
	tb.Helper()
	if busy := Busy(tb); busy != "" {
		tb.Skip("NOT JUDGED: " + busy)
	}
}

// Busy measures for a second how much of the CPUs other programs and other machines use. The text says so if that is
// too much for a measurement; "": the machine is quiet. Nothing of the test itself may run meanwhile.
func Busy(tb testing.TB) string {
	tb.Helper()
	const looks, most = time.Second, 0.4 // CPUs
	before := busyTime(tb)
	time.Sleep(looks)
	if used := (busyTime(tb) - before).Seconds() / looks.Seconds(); used > most {
		return fmt.Sprintf("others use %.1f CPUs, and %.1f at most may be used", used, most)
	}
	return ""
}

// busyTime is the time that all CPUs were not idle, with the time that other machines took away.
func busyTime(tb testing.TB) time.Duration {
	tb.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal time.Duration
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d",
		&user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		tb.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that .NET runs on
	return (user + nice + system + irq + softirq + steal) * tick
}
