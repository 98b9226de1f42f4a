package live

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// openLook is open on a kernel that gives registers.
func openLook(t testing.TB, pr *program) *Process {
	t.Helper()
	p := open(t, pr)
	if err := p.CanLook(); errors.Is(err, ErrUnavailable) {
		layer.Lacking(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

// lookAt looks at all threads.
func lookAt(t testing.TB, p *Process, stack int) ([]target.Capture, []error) {
	t.Helper()
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	reqs := make([]target.Request, len(tids))
	for i, tid := range tids {
		reqs[i] = target.Request{TID: tid, StackLimit: stack}
	}
	out, errs := make([]target.Capture, len(reqs)), make([]error, len(reqs))
	if err := p.Look(reqs, out, errs); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i].TID = tids[i]
	}
	return out, errs
}

// TestLookAtRest: the copied stack of a busy thread is its stack at one instant.
func TestLookAtRest(t *testing.T) {
	layer.Check(t)
	const words, least = 4096, 200
	threads := 4 * runtime.NumCPU()
	pr := start(t, nil, "waves", strconv.Itoa(threads))
	p := openLook(t, pr)
	b := make([]byte, 16*threads)
	if err := p.ReadMemory(b, pr.ptr); err != nil {
		t.Fatal(err)
	}
	arrays := map[int]arch.Addr{}
	for i := range threads {
		tid := binary.LittleEndian.Uint64(b[16*i:])
		arrays[int(tid)] = arch.Addr(binary.LittleEndian.Uint64(b[16*i+8:]))
	}
	got, crest := 0, 0
	for end := time.Now().Add(waitLimit); got < least || crest == 0; {
		if time.Now().After(end) {
			t.Fatalf("%d copies, %d of them within a round", got, crest)
		}
		captures, errs := lookAt(t, p, 2*8*words)
		for i := range captures {
			c := &captures[i]
			at, ok := arrays[c.TID]
			if !ok || errs[i] != nil {
				continue
			}
			if c.Stopped || !c.Ready || c.Proof == "" || c.SyscallNr != -1 || c.Context.Valid != 1<<16-1 {
				t.Fatalf("%+v", c)
			}
			first, ok := c.Stack.Uint64(at)
			if !ok {
				t.Fatalf("the copy [%v +%d] has no %v", c.Stack.Base, len(c.Stack.Data), at)
			}
			now := first
			for k := range words {
				v, _ := c.Stack.Uint64(at + arch.Addr(8*k))
				if v != now && (v != first-1 || now != first) {
					t.Fatalf("word %d is %d after %d, the first is %d", k, v, now, first)
				}
				now = v
			}
			if got++; now != first {
				crest++
			}
		}
	}
	t.Logf("%d copies, %d of them within a round", got, crest)
	advances(t, p, pr)
}

// TestLookProof: the proof is the line of schedstat, so the other ways of capturing understand
// it.
func TestLookProof(t *testing.T) {
	pr := start(t, nil, "sleepers", "3")
	p := openLook(t, pr)
	for try := 0; ; try++ {
		captures, errs := lookAt(t, p, 4096)
		var blocked target.Capture
		req := target.Request{TID: pr.arg, StackLimit: 4096}
		if err := p.TryBlocked(&req, &blocked); err != nil {
			t.Fatal(err)
		}
		for i := range captures {
			c := &captures[i]
			if errs[i] != nil || c.TID != pr.arg {
				continue
			}
			sp, _ := c.Context.Reg(arch.RSP)
			want, _ := blocked.Context.Reg(arch.RSP)
			if c.Proof == blocked.Proof && p.Holds(c.TID, c.Proof) && !c.Ready && c.SyscallNr == unix.SYS_POLL &&
				c.SyscallArgs == blocked.SyscallArgs && c.Context.IP == blocked.Context.IP && sp == want {
				return
			}
			if try == 100 { // runs on its way to its wait
				t.Fatalf("%+v\nwithout registers: %+v", c, blocked)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLookOfKernel: a kernel thread has no stack, and the error comes at once.
func TestLookOfKernel(t *testing.T) {
	pr := start(t, nil, "kernels")
	if pr.arg != 0 {
		layer.Lacking(t, "no io_uring: "+syscall.Errno(-pr.arg).Error())
	}
	p := openLook(t, pr)
	captures, errs := lookAt(t, p, 4096)
	of := 0
	for i, err := range errs {
		switch {
		case captures[i].TID == pr.pid && err == nil:
		case captures[i].TID != pr.pid && errors.Is(err, ErrKernelThread):
			of++
		default:
			t.Errorf("thread %d: %v", captures[i].TID, err)
		}
	}
	if of != 1 {
		t.Errorf("%d threads of the kernel's, %v", of, errs)
	}
}

// TestLookChurn: threads that start, end and execute meanwhile give either a copy or an error.
// The error says that a thread has ended, or is on a CPU.
func TestLookChurn(t *testing.T) {
	for _, mode := range []string{"dying", "exec", "headless", "storm"} {
		t.Run(mode, func(t *testing.T) {
			pr := start(t, nil, mode)
			p := openLook(t, pr)
			got := 0
			for range 300 {
				captures, errs := lookAt(t, p, 4096)
				for i, err := range errs {
					var unread *target.ReadError // of a thread with a new address space
					switch {
					case err == nil && (len(captures[i].Stack.Data) == 0 || captures[i].Context.IP == 0):
						t.Fatalf("nothing: %+v", captures[i])
					case err == nil:
						got++
					case errors.Is(err, target.ErrThreadExited), errors.Is(err, ErrOnCPU), errors.As(err, &unread):
					default:
						t.Fatal(err)
					}
				}
			}
			if got == 0 {
				t.Error("no thread was captured")
			}
		})
	}
}

// TestLookEqualsStops: the registers equal the registers at a stop. All threads of a .NET program
// are asked to stop, and looked at before they get a CPU for the stop. From then on they execute
// nothing before they stand still: the request is found on the way back to user mode
// (exit_to_user_mode_loop in kernel/entry/common.c).
func TestLookEqualsStops(t *testing.T) {
	layer.Each(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		for app, args := range map[string][]string{
			"busy": {"--threads", "20"}, "churn": {"--journal", filepath.Join(t.TempDir(), "journal")},
		} {
			t.Run(app, func(t *testing.T) {
				a := testenv.Start(t, app, testenv.Options{Runtime: runtime, Args: args})
				equalsStops(t, openLook(t, &program{pid: a.PID}))
			})
		}
	})
}

// equalsStops compares until enough threads were at rest.
func equalsStops(t *testing.T, p *Process) {
	runtime.LockOSThread() // only the tracing OS thread may use its tracees
	defer runtime.UnlockOSThread()
	ready, blocked := 0, 0
	for end := time.Now().Add(waitLimit); ready < 200 || blocked < 20; {
		if time.Now().After(end) {
			t.Fatalf("%d threads that were ready, and %d that were blocked", ready, blocked)
		}
		tids, err := p.Threads()
		if err != nil {
			t.Fatal(err)
		}
		asked := map[int]bool{}
		for _, tid := range tids {
			if unix.PtraceSeize(tid) == nil && unix.PtraceInterrupt(tid) == nil {
				asked[tid] = true
			}
		}
		captures, errs := lookAt(t, p, 4096)
		for i := range captures {
			c := &captures[i]
			if !asked[c.TID] {
				continue
			}
			regs, ok := stopped(t, c.TID)
			if errs[i] != nil || !ok {
				continue
			}
			var want arch.Context
			regs.context(&want)
			got := c.Context
			if c.SyscallNr >= 0 { // the call's result
				got.Set(arch.RAX, 0)
				want.Set(arch.RAX, 0)
			}
			if got != want || c.SyscallNr != regs.syscallNr() {
				t.Errorf("thread %d, in system call %d:\n%+v, stopped:\n%+v", c.TID, c.SyscallNr, got, want)
			}
			if c.Ready {
				ready++
			} else {
				blocked++
			}
		}
	}
	t.Logf("equal: %d threads that were ready, %d that were blocked", ready, blocked)
}

// stopped waits for a thread's requested stop, and lets the thread go on; false: a signal came
// first.
func stopped(t *testing.T, tid int) (r regs, ok bool) {
	t.Helper()
	for ok = true; ; ok = false {
		var status unix.WaitStatus
		if _, err := unix.Wait4(tid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
			return r, false
		}
		if uint32(status)>>16 == unix.PTRACE_EVENT_STOP {
			break
		}
		_ = unix.PtraceCont(tid, int(status.StopSignal()))
	}
	if err := unix.PtraceGetRegs(tid, &r.PtraceRegs); err != nil {
		return r, false
	}
	_ = unix.PtraceDetach(tid)
	return r, ok
}

// TestLookAtOnce: the threads of a ring are captured as of one instant, and none is stopped. Some threads were captured
// before, and have not run since then.
func TestLookAtOnce(t *testing.T) {
	layer.Live(t)
	const n, instants = 8, 200
	pr := start(t, nil, "relay", strconv.Itoa(n))
	p := openLook(t, pr)
	testenv.OneCPU(t, pr.pid)
	in, counts, count := relayed(t, p, pr, n)
	before := make([]target.Capture, n)
	fresh, still, refused := 0, 0, 0
	for end := time.Now().Add(testenv.Hang); fresh+still < n*instants; {
		for i := range in.reqs {
			in.reqs[i].Proof = ""
			if i%2 == 0 && p.TryBlocked(&in.reqs[i], &before[i]) == nil {
				in.reqs[i].Proof = before[i].Proof
			}
		}
		threads, ok, err := p.LookAtOnce(in.reqs, in.out, in.errs)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if refused++; time.Now().After(end) {
				t.Fatalf("%d instants, %d refused", (fresh+still)/n, refused)
			}
			continue
		}
		for i := range in.out {
			c := &in.out[i]
			switch {
			case in.errs[i] != nil || c.Stopped || c.Proof == "":
				t.Fatalf("%v, stopped: %v, %q", in.errs[i], c.Stopped, c.Proof)
			case c.Proof == in.reqs[i].Proof:
				still++
				count(i, &before[i])
			default:
				fresh++
				count(i, c)
			}
		}
		if !possible(counts) || threads != n+1 {
			t.Fatalf("no instant has %d; %d threads", counts, threads)
		}
	}
	t.Logf("%d threads copied, %d not run since an earlier copy; %d times a thread had a CPU", fresh, still, refused)
	if fresh == 0 || still == 0 {
		t.Errorf("nothing was tested: %d copied, %d proved", fresh, still)
	}
	advances(t, p, pr)
}
