package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"clrsnap/internal/perfevent"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/target/live"
)

// takenWay has the kernel take the same samples as clrsnap does, and drops them: what no recorder of stacks can do
// without.
func takenWay(rate int) *way { return roleWay("taken", rate, "samples at %d Hz that nobody walks") }

// busyWay uses as many per cent of a CPU, and observes nothing: what any recorder takes that uses as much.
func busyWay(percent int) *way {
	return roleWay("busy", percent, "%d %% of a CPU that is used for nothing")
}

// roleWay is a floor: a role that is told a number.
func roleWay(role string, n int, name string) *way {
	return &way{
		key: fmt.Sprintf("%s-%d", role, n), floor: true, name: fmt.Sprintf(name, n),
		start: func(b *testing.B, pid int) *observer.Observer {
			return observer.Observe(b, role, pid, numberVariable+"="+strconv.Itoa(n))
		},
	}
}

// numberVariable has the number that a role is told.
const numberVariable = "CLRSNAP_TEST_NUMBER"

// take is a role that reads samples of a process and drops them.
func take(pid int) error {
	rate, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return err
	}
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
}

// use is a role that uses a CPU five times a second, and is sampled never: an event that does not come is one that
// can be disabled.
func use(pid int) error {
	percent, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return err
	}
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
}
