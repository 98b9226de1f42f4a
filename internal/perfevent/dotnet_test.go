package perfevent

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestDotNet: the threads of a .NET program are sampled in proportion to their CPU time, with
// their stacks.
func TestDotNet(t *testing.T) {
	layer.Live(t)
	const period, frames = time.Millisecond, 60
	need(t)
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "3", "--depth", strconv.Itoa(frames)}})
	spinning := usage{pid: app.PID}
	tids, err := threads(app.PID)
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range tids {
		name, err := os.ReadFile("/proc/" + strconv.Itoa(app.PID) + "/task/" + strconv.Itoa(tid) + "/comm")
		if err == nil && strings.HasPrefix(string(name), "spin-") {
			spinning.tids = append(spinning.tids, tid)
		}
	}
	if len(spinning.tids) != 3 {
		t.Fatalf("spinning threads: %v", spinning.tids)
	}
	spinning.note(t)
	e := open(t, Options{PID: app.PID, Period: period, BufferBytes: roomy})
	spinning.note(t)
	samples, others, bare := map[int]int{}, 0, 0
	visit := func(r *Record) {
		if r.Kind != Sampled {
			return
		}
		if !slices.Contains(spinning.tids, r.TID) {
			others++
			return
		}
		samples[r.TID]++
		// Each frame has at least a return address and a frame pointer. Under memory pressure the
		// kernel may fail to read a stack.
		if sp, ok := r.Context.Reg(arch.RSP); !ok || sp%8 != 0 || r.Context.IP == 0 ||
			len(r.Stack) > 0 && len(r.Stack) < 16*frames {
			t.Fatalf("%d bytes of stack, %+v", len(r.Stack), r.Context)
		}
		if len(r.Stack) == 0 {
			bare++
		}
	}
	readUntil(t, e, visit, func() bool { return e.Stats().Samples >= 3000 })
	spinning.note(t)
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	spinning.note(t)
	if bare > 30 {
		t.Errorf("%d samples have no stack", bare)
	}
	for i, tid := range spinning.tids {
		spinning.check(t, i, samples[tid], period, 0)
	}
	if others > 3000/10 {
		t.Errorf("%d samples of threads that have nothing to do", others)
	}
	if _, code := app.Stop(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
}
