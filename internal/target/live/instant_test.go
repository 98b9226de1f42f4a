package live

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv/layer"
)

// instant is a test's capture of many threads at once.
type instant struct {
	reqs    []target.Request
	out     []target.Capture
	errs    []error
	threads int
}

func newInstant(tids []int) *instant {
	in := &instant{
		reqs: make([]target.Request, len(tids)),
		out:  make([]target.Capture, len(tids)),
		errs: make([]error, len(tids)),
	}
	for i, tid := range tids {
		in.reqs[i] = target.Request{TID: tid, StackLimit: 8 << 10}
	}
	return in
}

// prove finds the blocked threads, and returns their number.
func (in *instant) prove(p *Process) (blocked int) {
	for i := range in.reqs {
		var c target.Capture
		in.reqs[i].Proof = ""
		if p.TryBlocked(&in.reqs[i], &c) == nil {
			in.reqs[i].Proof = c.Proof
			blocked++
		}
	}
	return blocked
}

func (in *instant) capture(t testing.TB, p *Process) {
	t.Helper()
	err := p.Trace(func(tr *Tracer) (err error) {
		in.threads, err = tr.CaptureAll(in.reqs, in.out, in.errs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (in *instant) stopped() (n int) {
	for i := range in.out {
		if in.out[i].Stopped {
			n++
		}
	}
	return n
}

// TestCaptureAllBlocked: threads that are proved to be blocked are not stopped, with files kept
// open or not.
func TestCaptureAllBlocked(t *testing.T) {
	for _, files := range []int{maxBlockedFiles, 10} {
		t.Run(strconv.Itoa(files), func(t *testing.T) { testCaptureAllBlocked(t, files) })
	}
}

func testCaptureAllBlocked(t *testing.T, files int) {
	pr := start(t, nil, "sleepers", "100")
	p := open(t, pr)
	p.AllLimit = 10 * time.Second // a busy machine
	p.blocked.files, p.blocked.limit = map[int]blockedFiles{}, files
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	in := newInstant(tids)
	if n := in.prove(p); n < 100 {
		t.Fatalf("%d of 100 sleeping threads are blocked", n)
	}
	in.capture(t, p)
	for i, err := range in.errs {
		if err != nil {
			t.Errorf("thread %d: %v", in.reqs[i].TID, err)
		}
		if c := &in.out[i]; !c.Stopped && (c.Proof != in.reqs[i].Proof || c.Pause != 0) {
			t.Errorf("thread %d was not stopped: proof %q, pause %v", in.reqs[i].TID, c.Proof, c.Pause)
		}
	}
	if in.stopped() > 1 { // the main thread wakes every second
		t.Errorf("%d threads were stopped", in.stopped())
	}
	if n := len(p.blocked.files); n > files {
		t.Errorf("the files of %d threads are open", n)
	}
	if !p.Holds(tids[1], in.reqs[1].Proof) || p.Holds(tids[1], "") || p.Holds(tids[1], in.reqs[2].Proof) {
		t.Error("a proof does not hold, or a wrong one does")
	}
	if in.threads != len(tids) {
		t.Errorf("%d threads, want %d", in.threads, len(tids))
	}
	p.FreeAll()
	in.reqs[1].Proof += "1"
	in.capture(t, p)
	if c := &in.out[1]; !c.Stopped || in.errs[1] != nil || len(c.Stack.Data) < 1000 {
		t.Errorf("a thread that has run since: stopped %v, %v, %d bytes", c.Stopped, in.errs[1], len(c.Stack.Data))
	}
}

// TestCaptureAllRanMeanwhile: a thread runs after its proof, and before the check of the proof
// while the others stand still.
func TestCaptureAllRanMeanwhile(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	in := newInstant([]int{pr.pid})
	if !within(waitLimit, func() bool { return in.prove(p) == 1 }) {
		t.Fatal("the thread is never blocked")
	}
	err := p.Trace(func(tr *Tracer) error {
		sh, err := tr.ready()
		if err != nil {
			return err
		}
		atomic.StoreInt64(&sh.linger, int64(50*time.Millisecond)) // the thread wakes every ms
		atomic.StoreUint32(&sh.breaks, 1<<stepProofs)
		in.threads, err = tr.CaptureAll(in.reqs, in.out, in.errs)
		atomic.StoreUint32(&sh.breaks, 0)
		return err
	})
	if c := &in.out[0]; err != nil || in.errs[0] != nil || !c.Stopped || len(c.Stack.Data) == 0 || c.Proof != "" {
		t.Errorf("%v, %v, stopped %v, %d bytes, proof %q", err, in.errs[0], c.Stopped, len(c.Stack.Data), c.Proof)
	}
	advances(t, p, pr)
	untraced(t, p, pr.pid)
}

// TestCaptureAllRanMeanwhileLate: a thread that has run since its proof is stopped long after the others. The watchdog
// acts only if the tracer is late with this thread, and then tells for how long the others may have stood still.
func TestCaptureAllRanMeanwhileLate(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	p.Watchdog, p.AllLimit = 100*time.Millisecond, waitLimit
	// capture delays the tracer before the check of the proof, and then at another step.
	capture := func(step uint32, delay time.Duration) (late time.Duration, err error) {
		in := newInstant([]int{pr.pid})
		if !within(waitLimit, func() bool { return in.prove(p) == 1 }) {
			t.Fatal("the thread is never blocked")
		}
		if err := p.Trace(func(tr *Tracer) error {
			sh, err := tr.ready()
			if err != nil {
				return err
			}
			atomic.StoreInt64(&sh.linger, int64(waitLimit))
			atomic.StoreUint32(&sh.breaks, 1<<stepProofs)
			at := func(step uint32) func() bool {
				return func() bool { return atomic.LoadUint32(&sh.arrived) == step }
			}
			resume := func(next uint32) {
				atomic.StoreUint32(&sh.breaks, next)
				atomic.AddUint32(&sh.resume, 1)
				futexWake(&sh.resume)
			}
			done := make(chan bool)
			go func() {
				defer close(done)
				within(waitLimit, at(stepProofs))
				time.Sleep(p.Watchdog)
				resume(1 << step)
				within(waitLimit, at(step))
				time.Sleep(delay)
				resume(0)
			}()
			_, err = tr.CaptureAll(in.reqs, in.out, in.errs)
			<-done
			late = time.Duration(atomic.LoadInt64(&sh.late))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return late, in.errs[0]
	}
	late, err := capture(stepSeized, 10*p.Watchdog)
	if !errors.Is(err, ErrWatchdog) || late < 2*p.Watchdog {
		t.Errorf("a tracer that is late with the further thread: %v, after %v", err, late)
	}
	for try := 1; ; try++ { // on a busy machine the tracer may be late by itself
		if _, err = capture(stepInterrupt, 2*p.Watchdog); err == nil {
			break
		} else if try == 5 {
			t.Fatalf("a further thread that takes long to stop: %v", err)
		}
	}
	advances(t, p, pr)
	untraced(t, p, pr.pid)
}

// TestCaptureAllIsOneInstant: threads count on their own stacks, each after its predecessor; the
// captured counts must be possible at one instant.
func TestCaptureAllIsOneInstant(t *testing.T) {
	layer.Live(t)
	const n = 8
	pr := start(t, nil, "relay", "8")
	p := open(t, pr)
	p.AllLimit = 10 * time.Second // a busy machine
	in, counts, count := relayed(t, p, pr, n)
	before := make([]target.Capture, n)
	stopped, blocked, torn := 0, 0, 0
	for range 1000 {
		for i := range in.reqs {
			in.reqs[i].Proof = ""
			if p.TryBlocked(&in.reqs[i], &before[i]) == nil {
				in.reqs[i].Proof = before[i].Proof
			}
		}
		in.capture(t, p)
		for i := range in.out {
			if in.errs[i] != nil {
				t.Fatal(in.errs[i])
			}
			if c := &in.out[i]; c.Stopped {
				stopped++
				count(i, c)
			} else {
				blocked++
				count(i, &before[i])
			}
		}
		if !possible(counts) {
			t.Fatalf("no instant has %d", counts)
		}
		// The same captures one after the other, which need not be consistent.
		for i := range in.reqs {
			if err := p.Capture(&in.reqs[i], &before[i]); err != nil && !errors.Is(err, ErrWatchdog) {
				t.Fatal(err)
			}
			count(i, &before[i])
		}
		if !possible(counts) {
			torn++
		}
	}
	t.Logf("%d threads stopped, %d proved to be blocked; one after the other %d of 1000 were impossible", stopped,
		blocked, torn)
	if stopped == 0 || blocked == 0 || torn == 0 {
		t.Errorf("nothing was tested: %d stopped, %d blocked, %d impossible otherwise", stopped, blocked, torn)
	}
	advances(t, p, pr)
}

// relayed asks for the threads of the program relay, with their counts. count keeps the count of a captured thread.
func relayed(
	t *testing.T, p *Process, pr *program, n int,
) (in *instant, counts []uint64, count func(int, *target.Capture)) {
	t.Helper()
	table := make([]byte, 16*n)
	if err := p.ReadMemory(table, pr.ptr); err != nil {
		t.Fatal(err)
	}
	var tids []int
	var at []arch.Addr
	for i := range n {
		tids = append(tids, int(binary.LittleEndian.Uint64(table[16*i:])))
		at = append(at, arch.Addr(binary.LittleEndian.Uint64(table[16*i+8:])))
	}
	in = newInstant(tids)
	for i := range in.reqs {
		in.reqs[i].Extra = []target.Range{{Addr: at[i], Len: 8}}
	}
	counts = make([]uint64, n)
	return in, counts, func(i int, c *target.Capture) {
		v, ok := c.Stack.Uint64(at[i])
		if !ok {
			t.Fatalf("thread %d: its count was not copied", tids[i])
		}
		counts[i] = v
	}
}

// possible reports whether the counts may be of one instant: the first thread has counted most,
// no thread more than its predecessor, and the last at most one less than the first.
func possible(counts []uint64) bool {
	sorted := slices.IsSortedFunc(counts, func(a, b uint64) int { return int(int64(b - a)) })
	return sorted && counts[0]-counts[len(counts)-1] <= 1
}

// TestCaptureAllNewThreads: threads without a request are counted.
func TestCaptureAllNewThreads(t *testing.T) {
	pr := start(t, nil, "sleepers", "10")
	p := open(t, pr)
	p.AllLimit = 10 * time.Second // a busy machine
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	in := newInstant(tids[:4])
	in.capture(t, p)
	if in.threads != 11 || in.stopped() != 4 {
		t.Errorf("%d threads, %d of them stopped", in.threads, in.stopped())
	}
	in = newInstant(tids)
	in.reqs[3].StackLimit = target.MaxStackLimit + 1
	in.reqs[4].Extra = []target.Range{{Addr: 1, Len: -1}}
	in.capture(t, p)
	if in.stopped() != 9 || !errors.Is(in.errs[3], errRequest) || !errors.Is(in.errs[4], errRequest) {
		t.Errorf("%d stopped; %v, %v", in.stopped(), in.errs[3], in.errs[4])
	}
}
