package agent_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestHandles: the agent makes as many weak handles as it may, and the handles tell living
// objects from dead objects. Freed handles can be made again. When the reader hangs up, no handle
// is left in the program.
func TestHandles(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "survivors", testenv.Options{Runtime: runtime})
		before := countHandles(t, a)
		const most = 1024
		c := attachWithHandles(t, a, lib,
			agent.Subscription{Events: agent.Allocations, Handles: most, RingBytes: 16 << 20})
		a.Ask("fill 20")
		first, without := drainHandles(t, c)
		if len(first) != most || without < 100 {
			t.Errorf("%d handles, and %d allocations without one", len(first), without)
		}
		if got := countHandles(t, a); got < before+most-50 || got > before+most+50 {
			t.Errorf("%d handles in the program, and %d before", got, before)
		}
		drainHandles(t, c)

		// The program drops all kept objects, and the reader frees all handles but the last few.
		a.Ask("forget")
		if took, err := c.Collect(t.Context()); err != nil || took <= 0 {
			t.Errorf("a collection of %v: %v", took, err)
		}
		alive := 0
		for _, h := range first {
			if word(t, a.PID, h.Address) != 0 {
				alive++
			}
		}
		if alive > 50 { // counting the handles keeps some objects itself
			t.Errorf("%d of %d objects are alive, and all were dropped", alive, len(first))
		}
		drainHandles(t, c)
		var slots []uint32
		for _, h := range first[:most-24] {
			slots = append(slots, h.Slot)
		}
		// Nonsense is left alone. An allocation may take a slot as soon as the slot is freed, so
		// the test frees the last slot twice.
		if err := c.Free(append([]uint32{0xffffffff}, append(slots, slots[len(slots)-1])...)); err != nil {
			t.Error(err)
		}
		a.Ask("fill 20")
		if again, _ := drainHandles(t, c); len(again) < most-50 || len(again) > most-24 {
			t.Errorf("%d handles after %d were given back", len(again), most-24)
		}

		if err := c.Close(); err != nil { // the agent is not told before
			t.Error(err)
		}
		awaitHandles(t, a, before+50)
		endsWell(t, a)
	})
}

// attachWithHandles loads the agent into a program.
func attachWithHandles(t *testing.T, a *testenv.App, lib string, s agent.Subscription) *agent.Conn {
	t.Helper()
	c, err := listen(t).Attach(a.PID, lib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Begin(s); err != nil {
		t.Fatal(err)
	}
	return c
}

// drainHandles takes records of allocations, and returns their handles, and the number of records
// without a handle.
func drainHandles(t *testing.T, c *agent.Conn) (handles []agent.Handle, without int) {
	t.Helper()
	seen := map[uint32]bool{}
	err := c.Drain(func(r *agent.Record) error {
		switch {
		case r.Type != agent.EventAlloc:
		case !r.HasHandle:
			return errors.New("an allocation does not say whether it has a handle")
		case r.Handle.Address == 0:
			without++
		case seen[r.Handle.Slot]:
			return fmt.Errorf("two handles in slot %d", r.Handle.Slot)
		default:
			seen[r.Handle.Slot] = true
			handles = append(handles, r.Handle)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if dropped := c.Stats()[agent.EventAlloc].Dropped; dropped > 0 {
		t.Fatalf("%d allocations were dropped", dropped)
	}
	return handles, without
}

// word reads a word of a process.
func word(t *testing.T, pid int, at uint64) uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

// countHandles is the collector's count of handles of all kinds.
func countHandles(t *testing.T, a *testenv.App) int {
	t.Helper()
	n, err := strconv.Atoi(a.Ask("handles")[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitHandles waits until there are few handles.
func awaitHandles(t *testing.T, a *testenv.App, most int) {
	t.Helper()
	n := 0
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n = countHandles(t, a); n <= most {
			return
		}
	}
	t.Errorf("%d handles are left, expected %d at most", n, most)
}

// TestHandlesRefused: the agent leaves if it cannot make the requested handles.
func TestHandlesRefused(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	a := testenv.Start(t, "notify", testenv.Options{})
	for _, s := range []agent.Subscription{
		{Events: agent.Allocations, Handles: agent.HandlesUnit + 1},
		{Events: agent.Allocations, Handles: agent.MaxHandles + agent.HandlesUnit},
		{Events: agent.Exceptions, Handles: agent.HandlesUnit},
	} {
		c, err := listen(t).Attach(a.PID, lib)
		if err != nil {
			t.Fatal(err)
		}
		var cannot *agent.BeginError
		if _, err := c.Begin(s); !errors.As(err, &cannot) {
			t.Errorf("%+v: %v", s, err)
		}
		c.Close()
	}
	endsWell(t, a)
}
