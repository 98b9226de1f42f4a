package cost

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// BenchmarkHeapFile measures how expensive it is to write a heap to a file: a .gcdump and pictures, also with
// --retained, of a program with 1 GB of objects, 20 million. "cpu-s" and "cpu-ns/object" are the command's CPU time,
// the least of all runs; the memory is the most of all runs. The first lines are the reading part: the heap alone,
// the heap with references and roots, and the heap with what each type retains. Another size:
// CLRSNAP_BENCH_MEGABYTES.
func BenchmarkHeapFile(b *testing.B) {
	exe := livetest.Command(b)
	megabytes := os.Getenv("CLRSNAP_BENCH_MEGABYTES")
	if megabytes == "" {
		megabytes = "1000"
	}
	a := testenv.Start(b, "heap", testenv.Options{Args: []string{"--megabytes", megabytes}})
	h, err := livetest.Open(b, a, clrsnap.Options{}).Heap(context.Background(), clrsnap.HeapOptions{})
	if err != nil {
		b.Fatal(err)
	}
	objects := float64(h.Objects().Count)
	for _, flags := range []string{
		"--json", "--roots ^Shop\\.Node$", "--retained", "-o heap.gcdump", "-o heap.html", "-o heap.svg",
		"--retained -o heap.html",
	} {
		b.Run(strings.ReplaceAll(flags, " ", "_"), func(b *testing.B) {
			dir := b.TempDir()
			var cpu samples
			resident := 0
			for b.Loop() {
				cmd := exec.Command(exe, append([]string{"heap", strconv.Itoa(a.PID)}, strings.Fields(flags)...)...)
				cmd.Dir = dir
				m := livetest.RunMeasured(b, cmd)
				if m.Status != 0 {
					b.Fatalf("%s: status %d\n%s", flags, m.Status, m.Stderr)
				}
				cpu, resident = append(cpu, m.CPU), max(resident, m.Peak)
			}
			b.ReportMetric(cpu.at(0)/1e9, "cpu-s")
			b.ReportMetric(cpu.at(0)/objects, "cpu-ns/object")
			b.ReportMetric(float64(resident)/1024, "resident-MB")
			b.ReportMetric(float64(resident)*1024/objects, "bytes/object")
			if files, _ := filepath.Glob(filepath.Join(dir, "heap.*")); len(files) > 0 {
				i, err := os.Stat(files[0])
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(i.Size())/1e6, "file-MB")
			}
		})
	}
}
