package cost

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// BenchmarkAgainst compares commands with an earlier clrsnap, the file CLRSNAP_BASE, on programs whose threads compute
// all the time. Both run in turns, from exec to the last byte. With CLRSNAP_BENCH_RIGHTS=user, the commands lack the
// capabilities that an ordinary user lacks, except for ptrace.
//
//	make bench BENCH=Against/50/stack TESTFLAGS='-benchtime 5x' CLRSNAP_BASE=/tmp/earlier/clrsnap
func BenchmarkAgainst(b *testing.B) {
	base := os.Getenv("CLRSNAP_BASE")
	if base == "" {
		b.Skip("SKIPPED: CLRSNAP_BASE names no earlier clrsnap")
	}
	layer.Quiet(b)
	exe := livetest.Command(b)
	for _, threads := range []int{20, 50, 200} {
		b.Run(strconv.Itoa(threads), func(b *testing.B) {
			a := testenv.Start(b, "spin", testenv.Options{
				Args: []string{"--threads", strconv.Itoa(threads), "--max-seconds", "36000"},
			})
			pid := strconv.Itoa(a.PID)
			for name, args := range map[string][]string{
				"stack": {"stack", pid}, "stop-all": {"stack", pid, "--stop-all"}, "locks": {"locks", pid},
				"tasks": {"tasks", pid}, "why": {"why", pid, "--for", "3s"},
			} {
				b.Run(name, func(b *testing.B) { against(b, exe, base, args) })
			}
			livetest.EndsWell(b, a)
		})
	}
}

// against runs two commands in turns.
func against(b *testing.B, exe, base string, args []string) {
	var took [2][]float64 // ms
	var cpu [2][]float64
	for n := 0; b.Loop(); n++ {
		for i := range 2 {
			i ^= n & 1 // each goes first in half of the turns
			begun := time.Now()
			m := livetest.RunMeasured(b, limited([]string{exe, base}[i], args))
			took[i] = append(took[i], float64(time.Since(begun).Microseconds())/1e3)
			cpu[i] = append(cpu[i], float64(m.CPU.Microseconds())/1e3)
			if m.Status != 0 && m.Status != 1 { // 1: a thread got no CPU in time
				b.Fatalf("%v: status %d: %s", args, m.Status, m.Stderr)
			}
		}
	}
	for i, who := range []string{"", "-base"} {
		all, e := mean(took[i])
		b.ReportMetric(all, "ms"+who)
		b.ReportMetric(e, "ms"+who+"-error")
		used, _ := mean(cpu[i])
		b.ReportMetric(used, "cpu-ms"+who)
	}
	now, _ := mean(took[0])
	before, _ := mean(took[1])
	b.ReportMetric(before/now, "times-as-fast")
}

// limited returns a command, with a user's rights if wanted.
func limited(exe string, args []string) *exec.Cmd {
	if os.Getenv("CLRSNAP_BENCH_RIGHTS") != "user" {
		return exec.Command(exe, args...)
	}
	const lacking = "-bpf,-perfmon,-sys_admin,-sys_nice,-sys_resource,-dac_read_search"
	return exec.Command("setpriv", append([]string{"--bounding-set=" + lacking, exe}, args...)...)
}
