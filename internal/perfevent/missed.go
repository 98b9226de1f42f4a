package perfevent

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// countMissed compares the ticks of busy CPUs' timers with the expected ticks. A timer that comes
// late by a period or more gives one tick for all its turns that have passed. Ticks of idle CPUs
// are not counted: not every kernel has them.
func (e *Events) countMissed() {
	if e.filter == nil {
		return
	}
	came, ok := e.filter.counted()
	idle, known := e.idle.since()
	if !ok || !known {
		return
	}
	e.stats.Missed = max(0, int((e.enabled-idle)/e.o.Period)-came)
}

// idleTimes is the idle time of each CPU.
type idleTimes map[int]time.Duration

// since is the idle time of the CPUs since t. A CPU that has been switched off or on since then
// is left out.
func (t idleTimes) since() (sum time.Duration, ok bool) {
	now := readIdle()
	for cpu, from := range t {
		if to, ok := now[cpu]; ok {
			sum += max(0, to-from)
		}
	}
	return sum, len(t) > 0 && len(now) > 0
}

// readIdle reads the idle times of the machine, or of the container, if /proc/stat is the
// container's own.
func readIdle() idleTimes {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	return parseIdle(string(b))
}

// parseIdle reads the lines of single CPUs in /proc/stat: user, nice, system, idle, iowait and
// others, in hundredths of a second on every architecture that .NET runs on (proc_stat(5)).
func parseIdle(stat string) idleTimes {
	t := idleTimes{}
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		cpu, err1 := strconv.Atoi(f[0][len("cpu"):]) // fails for "cpu", the sum of all CPUs
		idle, err2 := strconv.ParseUint(f[4], 10, 48)
		iowait, err3 := strconv.ParseUint(f[5], 10, 48)
		if err1 == nil && err2 == nil && err3 == nil {
			t[cpu] = time.Duration(idle+iowait) * 10 * time.Millisecond
		}
	}
	return t
}
