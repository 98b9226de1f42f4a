package live

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// floor is the least time for stopping a thread: the system calls and nothing else.
func floor(tid int, regs *unix.PtraceRegs) {
	var ws unix.WaitStatus
	_ = unix.PtraceSeize(tid)
	_ = unix.PtraceInterrupt(tid)
	for {
		n, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil)
		if n == tid || err != nil {
			break
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // on a busy machine nothing else comes near
	}
	_ = unix.PtraceGetRegs(tid, regs)
	_ = unix.PtraceDetach(tid)
}

// BenchmarkStop takes floor and capture in turns, so both meet the same machine, and reports
// medians of both.
func BenchmarkStop(b *testing.B) {
	for _, mode := range [][]string{{"sleepers", "1"}, {"spin"}, {"deep"}} {
		b.Run(mode[0], func(b *testing.B) {
			pr := start(b, nil, mode...)
			p := open(b, pr)
			req := &target.Request{TID: pr.arg, StackLimit: 8 << 10, Head: pr.ptr, HeadLen: 512}
			if pr.ptr == 0 {
				req.HeadLen = 0
			}
			if err := p.Trace(func(t *Tracer) error { return benchStop(b, t, req) }); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func benchStop(b *testing.B, t *Tracer, req *target.Request) error {
	runtime.LockOSThread() // floor traces by itself
	defer runtime.UnlockOSThread()
	var regs unix.PtraceRegs
	var c target.Capture
	var floors, whole, pauses []time.Duration
	for i := 0; b.Loop(); i++ {
		// The second of the two finds a thread that has just run: take turns.
		for _, first := range []bool{i%2 == 0, i%2 != 0} {
			time.Sleep(50 * time.Microsecond)
			start := time.Now()
			if first {
				floor(req.TID, &regs)
				floors = append(floors, time.Since(start))
				continue
			}
			if err := t.Capture(req, &c); err != nil {
				return err
			}
			whole, pauses = append(whole, time.Since(start)), append(pauses, c.Pause)
		}
	}
	for _, d := range []struct {
		name string
		d    []time.Duration
	}{{"floor", floors}, {"capture", whole}, {"pause", pauses}} {
		slices.Sort(d.d)
		b.ReportMetric(float64(d.d[len(d.d)/10]), "ns-"+d.name+"-p10")
		b.ReportMetric(float64(d.d[len(d.d)/2]), "ns-"+d.name+"-p50")
		b.ReportMetric(float64(d.d[len(d.d)*99/100]), "ns-"+d.name+"-p99")
	}
	b.ReportMetric(float64(whole[len(whole)/2])/float64(floors[len(floors)/2]), "capture/floor-p50")
	b.ReportMetric(float64(whole[len(whole)/10])/float64(floors[len(floors)/10]), "capture/floor-p10")
	b.ReportMetric(float64(len(c.Stack.Data)), "stack-bytes")
	return nil
}

func BenchmarkStopAll100(b *testing.B) {
	pr := start(b, nil, "sleepers", "100")
	p := open(b, pr)
	tids, _ := p.Threads()
	reqs, out, errs := make([]target.Request, len(tids)), make([]target.Capture, len(tids)), make([]error, len(tids))
	for i, tid := range tids {
		reqs[i] = target.Request{TID: tid, StackLimit: 8 << 10}
	}
	var pause time.Duration
	for b.Loop() {
		if err := captureAll(p, reqs, out, errs); err != nil {
			b.Fatal(err)
		}
		pause += out[0].Pause
	}
	b.ReportMetric(float64(pause)/float64(b.N), "ns-pause")
}

func BenchmarkTryBlocked(b *testing.B) {
	pr := start(b, nil, "sleepers", "1")
	p := open(b, pr)
	var c target.Capture
	req := &target.Request{TID: pr.arg, StackLimit: 8 << 10}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.TryBlocked(req, &c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMappingsSelf(b *testing.B) {
	p, err := Open(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for b.Loop() {
		if _, err := p.Mappings(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkThreads500(b *testing.B) {
	pr := start(b, nil, "sleepers", "500")
	p := open(b, pr)
	for b.Loop() {
		tids, err := p.Threads()
		if err != nil || len(tids) != 501 {
			b.Fatal(len(tids), err)
		}
		for _, tid := range tids {
			if _, err := p.Thread(tid); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkReadMemory4K(b *testing.B) {
	pr := start(b, nil, "spin")
	p := open(b, pr)
	buf := make([]byte, 4096)
	for b.Loop() {
		if err := p.ReadMemory(buf, pr.cnt&^arch.Addr(4095)); err != nil {
			b.Fatal(err)
		}
	}
}
