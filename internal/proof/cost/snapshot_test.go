package cost

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"

	"golang.org/x/sys/unix"
)

// samples are durations. Medians are reported; for busy machines also ratios of the tenth
// percentiles and of the fastest.
type samples []time.Duration

func (s samples) at(percent int) float64 {
	slices.Sort(s)
	return float64(s[len(s)*percent/100])
}

func report(b *testing.B, what, other samples, name, floor string, unit time.Duration) {
	u := float64(unit)
	b.ReportMetric(what.at(50)/u, name+"-p50")
	b.ReportMetric(other.at(50)/u, floor+"-p50")
	b.ReportMetric(what.at(50)/other.at(50), "ratio-p50")
	b.ReportMetric(what.at(10)/other.at(10), "ratio-p10")
	b.ReportMetric(what.at(0)/other.at(0), "ratio-min")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

// BenchmarkStop measures how long a thread is kept from running to capture
// registers, Thread object and a stack of 60 frames. The floor stops the thread
// for its registers only, with the simplest code. Both are measured from the
// request to stop to the moment at which the thread may go on. Aim: 1.3 times the
// floor.
func BenchmarkStop(b *testing.B) {
	a := testenv.Start(b, "spin", testenv.Options{Args: []string{"--threads", "1", "--depth", "60"}})
	p := livetest.Open(b, a, clrsnap.Options{})
	th := livetest.ThreadNamed(b, p, "spin-0")
	s, err := p.Suspend(th.ID)
	if err != nil {
		b.Fatal(err)
	}
	var stops, floors samples
	err = livetest.Traced(s, func(capture func() error) error {
		for i := 0; b.Loop(); i++ {
			// The second stop finds a thread that has just run: take turns.
			for _, first := range []bool{i%2 == 0, i%2 != 0} {
				time.Sleep(50 * time.Microsecond)
				if first {
					d, err := bareStop(th.OSThreadID)
					if err != nil {
						return err
					}
					floors = append(floors, d)
					continue
				}
				if err := capture(); err != nil {
					return err
				}
				stops = append(stops, livetest.Pause(s))
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	n, complete := livetest.BareWalk(s)
	b.ReportMetric(float64(n), "frames")
	if !complete {
		b.Error("the walk is not complete")
	}
	report(b, stops, floors, "stop-ns", "floor-ns", 1)
}

func bareStop(tid int) (time.Duration, error) {
	var ws unix.WaitStatus
	var regs unix.PtraceRegs
	if err := unix.PtraceSeize(tid); err != nil {
		return 0, err
	}
	start := time.Now()
	_ = unix.PtraceInterrupt(tid)
	// A running thread stops within 5 µs; any other thread needs a CPU, perhaps this CPU.
	for flags := unix.WALL | unix.WNOHANG; ; {
		n, err := unix.Wait4(tid, &ws, flags, nil)
		if n == tid || err != nil {
			break
		}
		if time.Since(start) > 100*time.Microsecond {
			flags = unix.WALL
		}
	}
	_ = unix.PtraceGetRegs(tid, &regs)
	_ = unix.PtraceDetach(tid)
	return time.Since(start), nil
}

// BenchmarkWalk walks one capture again and again, with everything in caches.
// The floor copies the captured stack once. CoreCLR's own walk, from inside the
// process, takes 88 ns a frame; aim: 60.
func BenchmarkWalk(b *testing.B) {
	for _, depth := range []int{60, 1000} {
		b.Run(strconv.Itoa(depth), func(b *testing.B) {
			a := testenv.Start(b, "spin", testenv.Options{
				Args: []string{"--threads", "1", "--depth", strconv.Itoa(depth)},
			})
			p := livetest.Open(b, a, clrsnap.Options{})
			s, err := p.Suspend(livetest.ThreadNamed(b, p, "spin-0").ID)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Release()
			frames, complete := livetest.BareWalk(s)
			if !complete || frames < depth {
				b.Fatalf("%d frames, complete %v", frames, complete)
			}
			var walks, reads samples
			stackCopy := make([]byte, 8<<20)
			for b.Loop() {
				start := time.Now()
				livetest.BareWalk(s)
				walked := time.Now()
				livetest.CopyStack(s, stackCopy)
				walks, reads = append(walks, walked.Sub(start)), append(reads, time.Since(walked))
			}
			b.ReportMetric(float64(frames), "frames")
			report(b, walks, reads, "ns/frame", "floor-ns/frame", time.Duration(frames))
		})
	}
}

// BenchmarkWalkOnly is for profiles: nothing but warm walks of 1,000 frames.
func BenchmarkWalkOnly(b *testing.B) {
	a := testenv.Start(b, "spin", testenv.Options{Args: []string{"--threads", "1", "--depth", "1000"}})
	p := livetest.Open(b, a, clrsnap.Options{})
	s, err := p.Suspend(livetest.ThreadNamed(b, p, "spin-0").ID)
	if err != nil {
		b.Fatal(err)
	}
	frames, total := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		frames, _ = livetest.BareWalk(s)
		total += frames
	}
	b.ReportMetric(float64(b.Elapsed())/float64(total), "ns/frame")
}

// BenchmarkSnapshotAll is the price of a profiler's snapshot of all threads, names included.
func BenchmarkSnapshotAll(b *testing.B) {
	a := testenv.Start(b, "idle", testenv.Options{Args: []string{"--threads", "50"}})
	for _, o := range []clrsnap.Options{{}, {AlwaysStop: true}} {
		b.Run(fmt.Sprintf("AlwaysStop=%v", o.AlwaysStop), func(b *testing.B) {
			p := livetest.Open(b, a, o)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.SnapshotAll(context.Background(), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommand measures clrsnap stack from exec to its last byte, on a process
// with 50 threads. The floor executes the same file for its version. Aim: 60 ms.
func BenchmarkCommand(b *testing.B) {
	exe := livetest.Command(b)
	a := testenv.Start(b, "idle", testenv.Options{Args: []string{"--threads", "50"}})
	run := func(args ...string) time.Duration {
		start := time.Now()
		out, err := exec.Command(exe, args...).Output()
		if err != nil || len(out) == 0 {
			b.Fatalf("%v: %d bytes, %v", args, len(out), err)
		}
		return time.Since(start)
	}
	var stacks, floors samples
	for b.Loop() {
		stacks = append(stacks, run("stack", strconv.Itoa(a.PID)))
		floors = append(floors, run("--version"))
	}
	report(b, stacks, floors, "stack-ms", "floor-ms", time.Millisecond)
}
