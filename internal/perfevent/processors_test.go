package perfevent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// TestCPUs: a CPU that is switched off and on again is sampled again. No other test may need the
// CPU.
func TestCPUs(t *testing.T) {
	layer.Quiet(t)
	needRoot(t)
	online, err := onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := online[len(online)-1]
	power := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", last)
	if _, err := os.Stat(power); len(online) < 2 || errors.Is(err, os.ErrNotExist) {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: CPU %d of %d cannot be switched off", last, len(online))
	}
	for _, scope := range []Scope{Filtered, Unfiltered} {
		t.Run(scope.String(), func(t *testing.T) { testCPUs(t, scope, last, power) })
	}
}

func testCPUs(t *testing.T, scope Scope, last int, power string) {
	turn := func(to string) {
		t.Helper()
		if err := os.WriteFile(power, []byte(to), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "2222")
	pinned, _ := p.burner()
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, Scope: scope})
	seen := map[int]int{}
	visit := func(r *Record) {
		if r.Kind == Sampled {
			seen[r.CPU]++
			if scope == Filtered && r.Name != "target" {
				t.Fatalf("a sample without a name: %+v", r)
			}
		}
	}
	enough := func() bool {
		if err := e.UpdateCPUs(); err != nil {
			t.Fatal(err)
		}
		return seen[last] >= 100
	}
	readUntil(t, e, visit, enough)

	turn("0")
	defer func() { _ = os.WriteFile(power, []byte("1"), 0o644) }() // perhaps on already
	if err := e.UpdateCPUs(); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(e.gen.events, func(ev event) bool { return ev.cpu == last }) {
		t.Error("events of the CPU are still open")
	}
	clear(seen)
	readUntil(t, e, visit, func() bool { return seen[0] >= 100 })

	turn("1")
	var set unix.CPUSet
	set.Set(last)
	if err := unix.SchedSetaffinity(pinned, &set); err != nil {
		t.Fatal(err)
	}
	clear(seen)
	readUntil(t, e, visit, enough)

	// A CPU that was off when sampling began.
	turn("0")
	e = open(t, Options{PID: p.pid, Period: time.Millisecond, Scope: scope})
	turn("1")
	if err := unix.SchedSetaffinity(pinned, &set); err != nil {
		t.Fatal(err)
	}
	clear(seen)
	readUntil(t, e, visit, enough)
	if err := e.SetStackBytes(4096); err != nil {
		t.Fatal(err)
	}
	clear(seen)
	readUntil(t, e, visit, func() bool { return enough() && seen[0] >= 1 })
}
