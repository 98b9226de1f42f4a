package cost

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// BenchmarkCore has the command show all stacks of core dumps, in the page cache, of a
// program with 1 GB of objects. The floors: the same command showing only its version,
// and one read of the whole dump. Aims: 1 s, and 150 MB of resident memory.
func BenchmarkCore(b *testing.B) {
	command := livetest.Command(b)
	for _, kind := range []testenv.DumpKind{testenv.DumpGCore, testenv.DumpKernel} {
		b.Run(string(kind), func(b *testing.B) {
			o := testenv.DumpOptions(b, kind, testenv.Options{Args: []string{"--heap", "1024", "--threads", "64"}})
			path := testenv.Dump(b, testenv.Start(b, "idle", o), kind)
			st, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			var stacks, starts, reads samples
			var resident int64
			for b.Loop() {
				took, rss := timed(b, exec.Command(command, "stack", "--core", path, "--json"))
				stacks, resident = append(stacks, took), max(resident, rss)
				took, _ = timed(b, exec.Command(command, "version"))
				starts = append(starts, took)
				reads = append(reads, readThrough(b, path))
			}
			report(b, stacks, starts, "stacks-ms", "start-ms", time.Millisecond)
			b.ReportMetric(reads.at(50)/float64(time.Millisecond), "read-ms-p50")
			b.ReportMetric(float64(resident)/1024, "resident-MB")
			b.ReportMetric(float64(st.Size()>>20), "core-MB")
		})
	}
}

// timed runs a command, and returns its duration and its peak memory in KB.
func timed(b *testing.B, c *exec.Cmd) (time.Duration, int64) {
	b.Helper()
	begun := time.Now()
	if out, err := c.Output(); err != nil {
		b.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return time.Since(begun), c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
}

func readThrough(b *testing.B, path string) time.Duration {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	begun := time.Now()
	if _, err := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}
