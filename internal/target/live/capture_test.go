package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

func TestCaptureCopiesRegistersStackAndHead(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	var c target.Capture
	for range 200 {
		if err := capture(p, &target.Request{TID: pr.arg, Head: pr.ptr, HeadLen: 512}, &c); err != nil {
			t.Fatal(err)
		}
		sp, ok := c.Context.Reg(arch.RSP)
		if !ok || !c.Stopped || c.Pause <= 0 || c.SyscallNr != -1 || c.SPUnmapped || c.Truncated {
			t.Fatalf("%+v", c.Context)
		}
		ms, _ := p.Mappings()
		if m := ms.Find(c.Context.IP); m == nil || m.Perm&target.PermExec == 0 {
			t.Fatalf("ip %v is not in code", c.Context.IP)
		}
		if !c.Stack.Contains(arch.Addr(sp)) || !c.Stack.Contains(arch.Addr(sp)-redZone) {
			t.Fatalf("stack copy [%v +%d] lacks sp %#x", c.Stack.Base, len(c.Stack.Data), sp)
		}
		if len(c.Head) != 512 || c.Head[5] != 5 || c.Head[300] != byte(300&0xff) {
			t.Fatalf("head: % x", c.Head[:8])
		}
	}
	advances(t, p, pr)
	untraced(t, p, pr.arg)
}

func TestCaptureNoAllocation(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	req := &target.Request{TID: pr.arg, Head: pr.ptr, HeadLen: 64, Extra: []target.Range{{Addr: pr.ptr, Len: 32}}}
	err := p.Trace(func(tr *Tracer) error {
		var c target.Capture
		least := math.Inf(1)
		for i := 0; i < 5 && least > 0; i++ {
			least = min(least, testing.AllocsPerRun(50, func() {
				if err := tr.Capture(req, &c); err != nil {
					t.Error(err)
				}
			}))
		}
		// An error's explanation for a long capture allocates; captures take long on a busy
		// machine.
		if least > 0 {
			t.Errorf("%v allocations per capture", least)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoSignalIsLost(t *testing.T) {
	layer.Live(t)
	const n = 6000
	pr := start(t, nil, "storm")
	p := open(t, pr)
	met, late := 0, 0
	err := p.Trace(func(tr *Tracer) error {
		var c target.Capture
		for range n {
			err := capturing(tr, &target.Request{TID: pr.arg, StackLimit: 4096}, &c)
			if errors.Is(err, ErrWatchdog) {
				late++ // a busy machine; the signals must survive here too
				continue
			}
			if err != nil {
				return err
			}
			met += tr.one.signals
		}
		return nil
	})
	if late > n/100 {
		t.Errorf("%d of %d stops were ended by the watchdog", late, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	advances(t, p, pr) // the target waits for each of its signals
	t.Logf("%d captures, %d signals handled, %d of them met on the way to a stop", n,
		counter(t, p, pr, 1)+counter(t, p, pr, 3), met)
	if err := unix.Kill(pr.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if !within(waitLimit, func() bool { return taskState(pr.pid, pr.pid) == 'T' && taskState(pr.pid, pr.arg) == 'T' }) {
		t.Fatal("the target does not stop")
	}
	sent, got, rtSent, rt := counter(t, p, pr, 0), counter(t, p, pr, 1), counter(t, p, pr, 2), counter(t, p, pr, 3)
	// The program counts each sent signal after sending. So at the stop it may have handled a signal
	// without a count, or counted a signal without handling.
	if int64(sent-got) > 1 || int64(got-sent) > 1 || int64(rtSent-rt) > 1 || int64(rt-rtSent) > 1 {
		t.Errorf("sent %d handled %d; queued %d handled %d", sent, got, rtSent, rt)
	}
}

func TestThreadsThatDie(t *testing.T) {
	layer.Live(t)
	pr := start(t, nil, "dying")
	p := open(t, pr)
	good, dead, late := 0, 0, 0
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		tids, err := p.Threads()
		if err != nil {
			t.Fatal(err)
		}
		err = p.Trace(func(tr *Tracer) error {
			var c target.Capture
			for _, tid := range tids {
				switch err := capturing(tr, &target.Request{TID: tid}, &c); {
				case err == nil:
					good++
				case errors.Is(err, target.ErrThreadExited):
					dead++
				case errors.Is(err, ErrWatchdog):
					late++ // a busy machine
				default:
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d captured, %d had died", good, dead)
	if late > good/100+1 {
		t.Errorf("%d stops were ended by the watchdog, %d were not", late, good)
	}
	advances(t, p, pr)
	pr.kill()
	var c target.Capture
	err := capture(p, &target.Request{TID: pr.pid}, &c)
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), strconv.Itoa(pr.pid)) {
		t.Errorf("after the end: %v", err)
	}
	if err := p.ReadMemory(make([]byte, 8), pr.cnt); !errors.Is(err, ErrExited) {
		t.Errorf("read after the end: %v", err)
	}
}

func TestGroupStopStays(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	state := func() byte { i, _ := p.Thread(pr.pid); return i.State }
	for range 20 {
		_ = unix.Kill(pr.pid, unix.SIGSTOP)
		if !within(waitLimit, func() bool { return state() == 'T' }) {
			t.Fatalf("state %c", state())
		}
		n := counter(t, p, pr, 0)
		var c target.Capture
		for range 10 {
			if err := capture(p, &target.Request{TID: pr.pid}, &c); err != nil {
				t.Fatal(err)
			}
		}
		// On a busy machine the way back into the stop takes time; the program itself does not
		// run meanwhile.
		if !within(waitLimit, func() bool { return state() == 'T' }) || counter(t, p, pr, 0) != n {
			t.Fatalf("state %c, counter moved by %d", state(), counter(t, p, pr, 0)-n)
		}
		_ = unix.Kill(pr.pid, unix.SIGCONT)
		advances(t, p, pr)
	}
}

func TestThreadThatDoesNotStop(t *testing.T) {
	layer.Live(t)
	pr := start(t, nil, "vfork", "3600000")
	p := open(t, pr)
	p.StopLimit, p.AllLimit = 500*time.Millisecond, 3*time.Second
	child := func() int { return int(counter(t, p, pr, 1)) }
	if !within(waitLimit, func() bool { return child() != 0 && taskState(pr.pid, pr.arg) == 'D' }) {
		t.Fatal("no D state")
	}
	var c target.Capture
	err := p.Trace(func(tr *Tracer) error {
		if err := capturing(tr, &target.Request{TID: pr.arg}, &c); !errors.Is(err, ErrNotStopping) {
			t.Errorf("D state: %v", err)
		} else {
			t.Log(err)
		}
		untraced(t, p, pr.arg)
		p.StopLimit = p.AllLimit // a thread that stops may have to wait for a CPU
		return capturing(tr, &target.Request{TID: pr.pid}, &c)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := capture(p, &target.Request{TID: pr.pid}, &c); err != nil {
		t.Fatalf("the next request: %v", err)
	}
	// Nobody has waited for the child, which lives for an hour: the thread still waits for the
	// child.
	if err := p.TryBlocked(&target.Request{TID: pr.arg}, &c); err != nil || c.SyscallNr != unix.SYS_VFORK {
		t.Errorf("without a stop: %v, system call %d", err, c.SyscallNr)
	}
	errs := make([]error, 2)
	err = captureAll(p, []target.Request{{TID: pr.pid}, {TID: pr.arg}}, make([]target.Capture, 2), errs)
	if err != nil || errs[0] != nil || !errors.Is(errs[1], ErrNotStopping) {
		t.Errorf("CaptureAll: %v %v", err, errs)
	}
	untraced(t, p, pr.arg)
	if err := unix.Kill(child(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	advances(t, p, pr)
	if err := capture(p, &target.Request{TID: pr.arg}, &c); err != nil {
		t.Error(err)
	}
}

func TestSignalStackAndExtra(t *testing.T) {
	pr := start(t, nil, "altstack")
	p := open(t, pr)
	var c target.Capture
	req := &target.Request{TID: pr.arg, Extra: []target.Range{
		{Addr: pr.ptr, Len: 512}, {Addr: 1, Len: 16}, {Addr: pr.ptr + 8, Len: 8},
	}}
	if err := capture(p, req, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Stack.Extra) != 2 || c.Stack.Contains(pr.ptr+512+8) {
		t.Fatalf("%d extra pieces, want 2", len(c.Stack.Extra))
	}
	for i := range 64 {
		if v, ok := c.Stack.Uint64(pr.ptr + arch.Addr(8*i)); !ok || v != 0x1122334455660000+uint64(i) {
			t.Fatalf("word %d of the ordinary stack: %#x %v", i, v, ok)
		}
	}
	if v := binary.LittleEndian.Uint64(c.Stack.Extra[1].Data); v != 0x1122334455660001 {
		t.Errorf("piece after an unreadable one: %#x", v)
	}
	var re *target.ReadError
	err := capture(p, &target.Request{TID: pr.arg, Head: 16, HeadLen: 8}, &c)
	if !errors.As(err, &re) || len(c.Stack.Data) == 0 {
		t.Errorf("unreadable head: %v, %d bytes of stack", err, len(c.Stack.Data))
	}
}

func TestStackBeyondLimit(t *testing.T) {
	pr := start(t, nil, "deep")
	p := open(t, pr)
	var c target.Capture
	for _, limit := range []int{1, 128, 4096, 100000, 1 << 20} {
		if err := p.Capture(&target.Request{TID: pr.arg, StackLimit: limit}, &c); err != nil {
			t.Fatal(err)
		}
		if want := limit < 300000; c.Truncated != want || want && len(c.Stack.Data) != limit {
			t.Errorf("limit %d: %d bytes, cut %v", limit, len(c.Stack.Data), c.Truncated)
		}
	}
	sp := c.Stack.Base + redZone
	err := p.Capture(&target.Request{TID: pr.arg, StackEnd: sp + 8000}, &c)
	if err != nil || len(c.Stack.Data) != 8000+redZone {
		t.Errorf("StackEnd: %v, %d bytes", err, len(c.Stack.Data))
	}
	none := []span{}
	p.spans.Store(&none) // as if the thread were younger than our list of mappings
	err = p.Capture(&target.Request{TID: pr.arg, StackLimit: 4 << 20}, &c)
	if err != nil || !c.SPUnmapped || len(c.Stack.Data) < 300000 {
		t.Errorf("unknown mapping: %v, spUnmapped %v, %d bytes", err, c.SPUnmapped, len(c.Stack.Data))
	}
	p.noVM.Store(true)
	var m target.Capture
	err = p.Capture(&target.Request{TID: pr.arg, StackLimit: 4 << 20}, &m)
	if err != nil || !bytes.Equal(m.Stack.Data[redZone:4096], c.Stack.Data[redZone:4096]) {
		t.Errorf("through the mem file: %v, %d bytes", err, len(m.Stack.Data))
	}
}

func TestExecDuringCapture(t *testing.T) {
	layer.Live(t)
	pr := start(t, nil, "exec")
	p := open(t, pr)
	p.AllLimit = waitLimit
	var c target.Capture
	good, exited := 0, 0
	for range 800 {
		tids, err := p.Threads()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Mappings()
		reqs := make([]target.Request, len(tids))
		for i, tid := range tids {
			reqs[i].TID = tid
			if err := capture(p, &target.Request{TID: tid}, &c); err == nil {
				good++
			} else {
				exited++
				if errors.Is(err, ErrNotStopping) {
					t.Error(err)
				}
			}
		}
		begin, errs := time.Now(), make([]error, len(tids))
		if err := captureAll(p, reqs, make([]target.Capture, len(reqs)), errs); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) >= p.AllLimit {
			t.Error("the thread that executes a program waited for its tracer until the limit")
		}
	}
	t.Logf("%d captured, %d exited", good, exited)
	cmdline := func() string { return string(readProc(strconv.Itoa(pr.pid) + "/cmdline")) }
	was := cmdline()
	if !within(waitLimit, func() bool { return cmdline() != was }) {
		t.Error("the target executes no more")
	}
}

// TestExecDuringHold: a thread that is not held executes a program while the others are held. The kernel kills the
// others in their stop. The tracer collects all of them at once, and does not wait for one after the other.
func TestExecDuringHold(t *testing.T) {
	layer.Live(t)
	for _, inside := range []bool{false, true} {
		pr := start(t, nil, "exec")
		p := open(t, pr)
		p.inside, p.AllLimit = inside, waitLimit
		for met := 0; met < 10; {
			tids, err := p.living()
			if err != nil {
				t.Fatal(err)
			}
			// A program has its main thread and four others, or five: the last executes the next program.
			if len(tids) != 6 {
				continue
			}
			reqs := make([]target.Request, 5)
			for i := range reqs {
				reqs[i].TID = tids[i]
			}
			killed := func() bool { return taskState(pr.pid, tids[1]) != 't' }
			begin, before := time.Now(), met
			if err := p.Trace(func(tr *Tracer) error {
				tr.holding = 2 * waitLimit
				tr.meanwhile = func() {
					if !within(waitLimit, killed) {
						t.Error("the target executes no more")
					}
					met++
					atomic.StoreUint32(&tr.sh.letGo, letByClient)
					futexWake(&tr.sh.letGo)
				}
				defer func() { tr.holding, tr.meanwhile = 0, nil }()
				_, err := tr.captureAll(reqs, make([]target.Capture, len(reqs)), make([]error, len(reqs)))
				for _, te := range tr.batch {
					// Not all stand still where the program is executed before. The thread that executes a program
					// gets the id of the main thread.
					if met > before && te.tid != te.pid && !te.over() {
						t.Errorf("inside %v: nobody has waited for the end of thread %d, in phase %d", inside, te.tid,
							te.phase)
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if time.Since(begin) >= waitLimit {
				t.Fatalf("inside %v: the held threads' ends were waited for until the limit", inside)
			}
		}
	}
}

func TestCaptureAll(t *testing.T) {
	pr := start(t, nil, "sleepers", "100")
	p := open(t, pr)
	p.AllLimit = 10 * time.Second // a busy machine
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	reqs, out, errs := make([]target.Request, len(tids)+1), make([]target.Capture, len(tids)+1),
		make([]error, len(tids)+1)
	for i, tid := range tids {
		reqs[i] = target.Request{TID: tid, StackLimit: 8192}
	}
	reqs[len(tids)].TID = unix.Getpid() // not a thread of the target
	asleep := 0
	for round := range 10 {
		if err := captureAll(p, reqs, out, errs); err != nil {
			t.Fatal(err)
		}
		// Later rounds find threads on their way back to their system call.
		for i := range tids {
			if round == 0 && out[i].SyscallNr == unix.SYS_POLL {
				asleep++
			}
		}
	}
	for i := range tids {
		if errs[i] != nil || len(out[i].Stack.Data) < 1000 {
			t.Fatalf("%d: %v %d", i, errs[i], len(out[i].Stack.Data))
		}
		untraced(t, p, tids[i])
	}
	if asleep != 100 {
		t.Errorf("%d of 100 sleeping threads are in their system call", asleep)
	}
	if errs[len(tids)] == nil {
		t.Error("captured a thread of another process")
	}
	t.Logf("%d threads stopped together for %v", len(tids), out[0].Pause)
}

// TestCaptureEachMany: more threads are captured than are asked to stop at any time, each at its
// own moment. An id outside the process is not captured.
func TestCaptureEachMany(t *testing.T) {
	const threads = 2*eachWindow + 50
	pr := start(t, nil, "sleepers", strconv.Itoa(threads))
	p := open(t, pr)
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	reqs := make([]target.Request, len(tids)+1)
	for i, tid := range tids {
		reqs[i] = target.Request{TID: tid, StackLimit: 8192}
	}
	reqs[len(tids)].TID = unix.Getpid()
	out, errs := make([]target.Capture, len(reqs)), make([]error, len(reqs))
	err = p.Trace(func(tr *Tracer) error { return tr.CaptureEach(reqs, out, errs) })
	if err != nil {
		t.Fatal(err)
	}
	asleep := 0
	for i := range tids {
		c := &out[i]
		if errs[i] != nil || !c.Stopped || len(c.Stack.Data) < 1000 || c.TID != tids[i] || c.Pause <= 0 {
			t.Fatalf("thread %d: %v, %d bytes, paused for %v", tids[i], errs[i], len(c.Stack.Data), c.Pause)
		}
		if c.SyscallNr == unix.SYS_POLL {
			asleep++
		}
		untraced(t, p, tids[i])
	}
	if asleep != threads {
		t.Errorf("%d of %d sleeping threads are in their system call", asleep, threads)
	}
	if errs[len(tids)] == nil {
		t.Error("captured a thread of another process")
	}
}
