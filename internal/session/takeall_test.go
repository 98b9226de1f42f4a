package session

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/priority"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// openBusy starts a program whose threads compute all the time, and opens the program.
func openBusy(t testing.TB, framework string, threads int) *Process {
	t.Helper()
	return openComputing(t, "busy", framework, threads)
}

func openComputing(t testing.TB, program, framework string, threads int) *Process {
	t.Helper()
	a := testenv.Start(t, program, testenv.Options{
		Runtime: framework, Args: []string{"--threads", strconv.Itoa(threads), "--max-seconds", "600"},
	})
	p, err := Open(context.Background(), a.PID, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// computing counts the program's threads with a complete stack and with their method.
func computing(s *snapshot.Snapshot) (n int, wrong string) {
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

// lookAgain has a snapshot look at all threads once more.
func lookAgain(o *Observed) Observer { return looksAgain{o} }

type looksAgain struct{ *Observed }

func (looksAgain) Begin()                                                     {}
func (looksAgain) Frame(*walk.Frame, method.Method, string, []snapshot.Frame) {}
func (looksAgain) Walked(int, arch.Addr)                                      {}

func (o looksAgain) Find(ctx context.Context) {
	all := make([]int, len(o.Snapshot().Threads))
	for i := range all {
		all[i] = i
	}
	o.LookAgain(ctx, all)
}

// TestNobodyIsStopped: the stacks of many computing threads are all there, and no thread is stopped. Exceptions are
// threads that have a CPU all the time, and the time during which the collector keeps threads from running. If the
// kernel does not tell registers, the threads are stopped, and the snapshot says why.
func TestNobodyIsStopped(t *testing.T) {
	layer.Each(t)
	testenv.EachRuntime(t, func(t *testing.T, framework string) {
		threads := max(50, 8*runtime.NumCPU())
		p := openBusy(t, framework, threads)
		for name, o := range map[string]SnapshotOptions{"stacks": {}, "looks": {Observe: lookAgain}} {
			testenv.UntilSeen(t, func() string {
				s, err := p.Snapshot(context.Background(), o)
				if err != nil {
					t.Fatal(err)
				}
				if s.Registers.From == snapshot.RegistersTogether {
					layer.Lacking(t, s.Registers.Reason)
				}
				if n, wrong := computing(s); n != threads || s.Released > 0 {
					t.Errorf("%s: %d of %d threads, %d released; %s", name, n, threads, s.Released, wrong)
				}
				if len(s.Stops) > 0 || s.Registers.From != snapshot.RegistersKernel {
					return fmt.Sprintf("%s without a stop: %d stops, %+v", name, len(s.Stops), s.Registers)
				}
				return ""
			})
		}
	})
}

// TestOneInstantWithoutStop: more threads compute than the program may use CPUs. All stacks are of one instant at which
// no thread had a CPU, and no thread is stopped.
func TestOneInstantWithoutStop(t *testing.T) {
	const threads = 4
	p := openBusy(t, "", threads)
	if err := p.Live.CanLook(); err != nil {
		layer.Lacking(t, err.Error())
	}
	testenv.OneCPU(t, p.PID())
	if n := p.gather(SnapshotOptions{}).cpus(); n != 1 {
		t.Errorf("the program may use %v CPUs", n)
	}
	testenv.UntilSeen(t, func() string {
		s, err := p.Snapshot(context.Background(), SnapshotOptions{AtOnce: true})
		if err != nil {
			t.Fatal(err)
		}
		if n, wrong := computing(s); n != threads {
			return fmt.Sprintf("%d of %d threads; %s", n, threads, wrong)
		}
		if len(s.Stops) > 0 || s.Registers.From != snapshot.RegistersKernel {
			return fmt.Sprintf("an instant without a stop, but %d stops, %+v", len(s.Stops), s.Registers)
		}
		return ""
	})
}

// TestWithoutRegisters: the same without the kernel's registers. The threads are stopped together.
func TestWithoutRegisters(t *testing.T) {
	const threads = 4
	p := openBusy(t, "", threads)
	p.Live.NoLook = true
	for end := time.Now().Add(testenv.Hang); ; {
		s, err := p.Snapshot(context.Background(), SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := computing(s)
		stopped := s.Registers.From == snapshot.RegistersTogether && s.Registers.Reason != "" && len(s.Stops) >= threads
		if n == threads && stopped {
			return
		}
		if time.Now().After(end) { // a thread without a CPU has no stack
			t.Fatalf("%d threads, %d stops, %+v; %s", n, len(s.Stops), s.Registers, wrong)
		}
	}
}

// BenchmarkBusy takes the stacks of computing threads in three ways, in turns: with the kernel's registers, with stops
// together, and with one stop after the other.
func BenchmarkBusy(b *testing.B) {
	layer.Quiet(b)
	all := func(p *Process) (int, error) {
		s, err := p.Snapshot(context.Background(), SnapshotOptions{})
		if err != nil {
			return 0, err
		}
		return len(s.Stops), nil
	}
	ways := []struct {
		name   string
		noLook bool
		take   func(*Process) (stops int, err error)
	}{
		{"kernel", false, all}, {"together", true, all}, {"in-turn", true, inTurn},
	}
	for _, threads := range []int{20, 50, 200} {
		b.Run(strconv.Itoa(threads), func(b *testing.B) {
			p := openComputing(b, "spin", "", threads)
			took, stops := make([]time.Duration, len(ways)), make([]int, len(ways))
			for b.Loop() {
				for i, w := range ways {
					p.Live.NoLook = w.noLook
					began := time.Now()
					n, err := w.take(p)
					if err != nil {
						b.Fatal(err)
					}
					took[i] += time.Since(began)
					stops[i] += n
				}
			}
			for i, w := range ways {
				b.ReportMetric(float64(took[i].Milliseconds())/float64(b.N), "ms/"+w.name)
				b.ReportMetric(float64(stops[i])/float64(b.N), "stops/"+w.name)
			}
		})
	}
}

// inTurn takes the stacks of all threads one after the other.
func inTurn(p *Process) (stops int, err error) {
	defer priority.Hurry()()
	list, err := p.Threads()
	if err != nil {
		return 0, err
	}
	g := p.gather(SnapshotOptions{})
	g.beginLate()
	for i := range list {
		if st := g.take(&list[i]); st.Pause > 0 {
			stops++
		}
	}
	return stops, nil
}
