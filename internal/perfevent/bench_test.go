package perfevent

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// BenchmarkRead is our cost of taking a sample out of a ring: ns/sample without looking at the
// stack, and with a copy of the stack.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{16 << 10, 32 << 10, MaxStackBytes} {
		for _, copied := range []bool{false, true} {
			b.Run(fmt.Sprintf("stack=%d/copy=%v", size, copied), func(b *testing.B) {
				p := start(b, "M")
				p.number("magic")
				e := open(b, Options{PID: p.pid, Period: 100 * time.Microsecond, StackBytes: size})
				to := make([]byte, MaxStackBytes)
				n, spent := 0, time.Duration(0)
				for n < b.N {
					if _, err := e.Wait(50 * time.Millisecond); err != nil {
						b.Fatal(err)
					}
					from := time.Now()
					if err := e.Read(func(r *Record) {
						if r.Kind != Sampled {
							return
						}
						n++
						if copied {
							copy(to, r.Stack)
						}
					}); err != nil {
						b.Fatal(err)
					}
					spent += time.Since(from)
				}
				b.ReportMetric(0, "ns/op") // mostly waiting
				b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/sample")
				b.ReportMetric(float64(e.Stats().Lost)/float64(n), "lost/sample")
			})
		}
	}
}

// BenchmarkTarget is the cost for the target: the CPU time of a fixed amount of work, sampled, as
// a percentage above the time of the same work alone.
func BenchmarkTarget(b *testing.B) {
	p := start(b, "")
	p.scan("READY")
	work := func() float64 {
		p.command("w")
		return float64(p.number("work"))
	}
	for _, rate := range []time.Duration{99, 999} {
		for _, size := range []int{16 << 10, MaxStackBytes} {
			b.Run(fmt.Sprintf("rate=%d/stack=%d", rate, size), func(b *testing.B) {
				var alone, sampled float64
				for b.Loop() {
					alone += work()
					e := open(b, Options{PID: p.pid, Period: time.Second / rate, StackBytes: size, Kernel: true})
					sampled += work()
					e.Close()
				}
				b.ReportMetric(100*(sampled/alone-1), "percent")
			})
		}
	}
}

// BenchmarkOpen is for a process with 200 threads.
func BenchmarkOpen(b *testing.B) {
	p := start(b, strings.Repeat("s", 200))
	p.scan("READY")
	for b.Loop() {
		e, err := Open(Options{PID: p.pid})
		if err != nil {
			b.Fatal(err)
		}
		e.Close()
	}
}

// BenchmarkKernelSymbols names as many functions as a recording has, and compares with reading
// the same file.
func BenchmarkKernelSymbols(b *testing.B) {
	const file = "/proc/kallsyms"
	all, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	var addrs []uint64
	lines := bytes.Split(all, []byte{'\n'})
	for i := 0; i < len(lines); i += 1 + len(lines)/200 {
		var addr uint64
		if fmt.Sscanf(string(lines[i]), "%x", &addr); addr > 0 {
			addrs = append(addrs, addr+1)
		}
	}
	if len(addrs) == 0 {
		b.Skip("SKIPPED: kernel.kptr_restrict hides the symbols")
	}
	b.Run("name", func(b *testing.B) {
		for b.Loop() {
			if named, err := NameKernel(addrs); err != nil || len(named) == 0 {
				b.Fatalf("%d names, %v", len(named), err)
			}
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			f, err := os.Open(file)
			if err != nil {
				b.Fatal(err)
			}
			for buf := make([]byte, 4<<10); err == nil; {
				_, err = f.Read(buf)
			}
			f.Close()
		}
	})
}
