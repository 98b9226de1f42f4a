package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"clrsnap/internal/perfevent"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv/role"
)

// takenWay has the kernel take the same samples as clrsnap, and drops the samples: the least work of any recorder
// of stacks.
func takenWay(rate int) *way { return roleWay(taker, rate, "samples at %d Hz that nobody walks") }

// busyWay uses a percentage of a CPU, and observes nothing: the cost of any recorder with the same CPU time.
func busyWay(percent int) *way {
	return roleWay(user, percent, "%d %% of a CPU that is used for nothing")
}

// roleWay is a floor: a role with a process and a number as its arguments.
func roleWay(what *role.Role, n int, name string) *way {
	return &way{
		key: fmt.Sprintf("%s-%d", what, n), floor: true, name: fmt.Sprintf(name, n),
		start: func(b *testing.B, pid int) *observer.Observer {
			return observer.Observe(b, what, pid, n)
		},
	}
}

// taker reads samples of a process at a rate, and drops the samples.
var taker = role.New("taken", func(a role.Args) error {
	pid, rate := a.Int(0), a.Int(1)
	e, err := perfevent.Open(perfevent.Options{
		PID: pid, Period: time.Second / time.Duration(rate), StackBytes: 16 << 10, Kernel: true,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	if scope, why := e.Scope(); scope != perfevent.Filtered {
		return fmt.Errorf("samples of %v: %w", scope, why)
	}
	observer.Began()
	q := new(observer.Quality)
	count := func(r *perfevent.Record) {
		switch r.Kind {
		case perfevent.Sampled:
			q.Samples++
		case perfevent.Lost:
			q.Lost += r.Lost
		}
	}
	for ctx := observer.UntilStdinEnds(); ctx.Err() == nil; {
		if _, err := e.Wait(200 * time.Millisecond); err != nil {
			return err
		}
		if err := e.Read(count); err != nil {
			return err
		}
	}
	if err := e.Stop(count); err != nil {
		return err
	}
	q.Memory = live.PeakMemory()
	return json.NewEncoder(os.Stdout).Encode(q)
})

// user uses some percent of a CPU, five times a second, and never samples a process. Its event never fires, but can
// be disabled.
var user = role.New("busy", func(a role.Args) error {
	pid, percent := a.Int(0), a.Int(1)
	e, err := perfevent.Open(perfevent.Options{PID: pid, Period: time.Hour, StackBytes: 16 << 10})
	if err != nil {
		return err
	}
	defer e.Close()
	const turn = 200 * time.Millisecond
	runtime.LockOSThread()
	observer.Began()
	for ctx := observer.UntilStdinEnds(); ctx.Err() == nil; time.Sleep(turn) {
		for end := live.ThreadCPU() + turn*time.Duration(percent)/100; live.ThreadCPU() < end; {
		}
	}
	return json.NewEncoder(os.Stdout).Encode(&observer.Quality{Memory: live.PeakMemory()})
})
