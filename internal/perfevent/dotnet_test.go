package perfevent

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
)

// TestDotNet: the threads of a .NET program are sampled as they use the
// processors, with the stacks that they have there.
func TestDotNet(t *testing.T) {
	const period, frames = time.Millisecond, 60
	need(t)
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "3", "--depth", strconv.Itoa(frames)}})
	spinning := map[int]time.Duration{} // CPU time when sampling begins
	tids, err := threads(app.PID)
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, Options{PID: app.PID, Period: period, BufferBytes: roomy})
	for _, tid := range tids {
		if name, err := os.ReadFile("/proc/" + strconv.Itoa(app.PID) + "/task/" + strconv.Itoa(tid) + "/comm"); err == nil && strings.HasPrefix(string(name), "spin-") {
			spinning[tid] = cpuTime(t, app.PID, tid)
		}
	}
	if len(spinning) != 3 {
		t.Fatalf("spinning threads: %v", spinning)
	}
	samples, others, bare := map[int]int{}, 0, 0
	visit := func(r *Record) {
		if r.Kind != Sampled {
			return
		}
		if _, ok := spinning[r.TID]; !ok {
			others++
			return
		}
		samples[r.TID]++
		// Each frame has at least a return address and a frame pointer. Under pressure
		// the kernel may not get at a stack.
		if sp, ok := r.Context.Reg(arch.RSP); !ok || sp%8 != 0 || r.Context.IP == 0 || len(r.Stack) > 0 && len(r.Stack) < 16*frames {
			t.Fatalf("%d bytes of stack, %+v", len(r.Stack), r.Context)
		}
		if len(r.Stack) == 0 {
			bare++
		}
	}
	readUntil(t, e, visit, func() bool { return e.Stats().Samples >= 3000 })
	used := map[int]time.Duration{}
	for tid, before := range spinning {
		used[tid] = cpuTime(t, app.PID, tid) - before
	}
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	if bare > 30 {
		t.Errorf("%d samples have no stack", bare)
	}
	for tid := range spinning {
		if got, want := float64(samples[tid]), float64(used[tid]/period); math.Abs(got-want) > want/20 {
			t.Errorf("thread %d used %v, but has %v samples", tid, used[tid], got)
		}
	}
	if others > 3000/10 {
		t.Errorf("%d samples of threads that have nothing to do", others)
	}
	if _, code := app.Stop(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
}
