package session

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

// openBusy starts a program whose threads compute all the time, and opens it.
func openBusy(t testing.TB, framework string, threads int) *Process {
	t.Helper()
	a := testenv.Start(t, "busy", testenv.Options{
		Runtime: framework, Args: []string{"--threads", strconv.Itoa(threads), "--max-seconds", "600"},
	})
	p, err := Open(context.Background(), a.PID, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// computing returns how many of the program's threads have a stack that is complete and has their method.
func computing(s *profile.Snapshot) (n int, wrong string) {
	for i := range s.Threads {
		t := &s.Threads[i]
		if !strings.HasPrefix(t.Name, "busy-") {
			continue
		}
		found := false
		for k := range t.Frames {
			found = found || t.Frames[k].Method == "Busy.Program.Work"
		}
		if !t.Complete || !found || t.Mode == "" {
			wrong = fmt.Sprintf("%s: complete: %v, %d frames: %s", t.Name, t.Complete, len(t.Frames), t.Error)
			continue
		}
		n++
	}
	return n, wrong
}

// TestNobodyIsStopped: the stacks of many threads that compute are all there, and none of them is stopped, but for
// those that have a CPU all the time, and while the collector keeps threads from running. Where the kernel does not
// tell registers, they are stopped, and the snapshot says why.
func TestNobodyIsStopped(t *testing.T) {
	layer.Each(t)
	testenv.EachRuntime(t, func(t *testing.T, framework string) {
		threads := max(50, 8*runtime.NumCPU())
		p := openBusy(t, framework, threads)
		for name, take := range map[string]func() (*profile.Snapshot, error){
			"stacks": func() (*profile.Snapshot, error) { return p.SnapshotAll(context.Background(), nil) },
			"waits":  func() (*profile.Snapshot, error) { return p.SnapshotWaits(context.Background(), nil) },
		} {
			testenv.UntilSeen(t, func() string {
				s, err := take()
				if err != nil {
					t.Fatal(err)
				}
				if s.Registers.From == profile.RegistersStops {
					layer.Lacking(t, s.Registers.Reason)
				}
				if n, wrong := computing(s); n != threads || s.Released > 0 {
					t.Errorf("%s: %d of %d threads, %d released; %s", name, n, threads, s.Released, wrong)
				}
				if len(s.Stops) > 0 || s.Registers.From != profile.RegistersKernel {
					return fmt.Sprintf("%s without a stop: %d stops, %+v", name, len(s.Stops), s.Registers)
				}
				return ""
			})
		}
	})
}

// TestWithoutRegisters: the same without the kernel's registers.
func TestWithoutRegisters(t *testing.T) {
	const threads = 4
	p := openBusy(t, "", threads)
	p.Live.NoLook = true
	for end := time.Now().Add(testenv.Hang); ; {
		s, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := computing(s)
		stopped := s.Registers.From == profile.RegistersStops && s.Registers.Reason != "" && len(s.Stops) >= threads
		if n == threads && stopped {
			return
		}
		if time.Now().After(end) { // a thread that gets no CPU has no stack
			t.Fatalf("%d threads, %d stops, %+v; %s", n, len(s.Stops), s.Registers, wrong)
		}
	}
}

// BenchmarkBusy takes the stacks of computing threads in both ways, in turns.
func BenchmarkBusy(b *testing.B) {
	layer.Quiet(b)
	for _, threads := range []int{20, 50, 200} {
		b.Run(strconv.Itoa(threads), func(b *testing.B) {
			p := openBusy(b, "", threads)
			var took [2]time.Duration
			stops := 0
			for b.Loop() {
				for i, without := range []bool{false, true} {
					p.Live.NoLook = without
					began := time.Now()
					s, err := p.SnapshotAll(context.Background(), nil)
					if err != nil {
						b.Fatal(err)
					}
					if took[i] += time.Since(began); !without {
						stops += len(s.Stops)
					}
				}
			}
			b.ReportMetric(float64(took[0].Milliseconds())/float64(b.N), "ms/kernel")
			b.ReportMetric(float64(took[1].Milliseconds())/float64(b.N), "ms/stops")
			b.ReportMetric(float64(stops)/float64(b.N), "stops")
		})
	}
}
