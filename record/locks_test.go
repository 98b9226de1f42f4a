package record_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// lockWaits are the program's waits, by the waiting method: the lock, the method inside the lock, and
// the present method of the holder.
var lockWaits = map[string]struct{ lock, inside, held string }{
	"Shop.Program.Load": {"lock Shop.Order", "Shop.Program.HoldSave", "held by Shop.Program.Ship"},
	"Shop.Program.Read": {"lock object", "Shop.Program.HoldAudit", "held by Shop.Program.HoldAudit"},
	"Shop.Program.Sum":  {"lock System.Threading.Lock", "Shop.Program.HoldPost", "held by Shop.Program.HoldPost"},
	"Shop.Program.HoldCrowd": {
		"lock Shop.Order", "Shop.Program.HoldCrowd", "held by Shop.Program.HoldCrowd",
	},
}

// TestLockHolders: a wait for a lock says which lock it was and what its holder was doing, if there
// was a look; and no look shows a thread that did not hold the lock.
func TestLockHolders(t *testing.T) { testenv.EachVersion(t, testLockHolders) }

func testLockHolders(t *testing.T, runtime string) {
	a := testenv.Start(t, "locks", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	seen := map[string]int{}
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{
			Duration: 3 * time.Second, Events: events.Options{Monitor: events.MonitorContention},
		})
		checkWaits(t, r, runtime, seen)
		checkHolds(t, r)
		t.Logf("%d waits, %d looks, holders seen: %v", len(r.Samples), len(r.Holds), seen)
		for method := range lockWaits {
			if seen[method] == 0 {
				return "the holder of the lock that is waited for in " + method
			}
		}
		return ""
	})
	livetest.EndsWell(t, a)
}

// checkWaits compares the waits for locks with the program's, and counts, by method, waits with a
// shown holder.
func checkWaits(t *testing.T, r *profile.Recording, runtime string, seen map[string]int) {
	t.Helper()
	for _, s := range r.Samples {
		stack := names(r, s.Node)
		if len(stack) < 3 || s.Mode != profile.Contention {
			t.Fatalf("a wait with the stack %q in mode %v", stack, s.Mode)
		}
		i := slices.IndexFunc(stack, func(f string) bool { _, ok := lockWaits[f]; return ok })
		if i < 0 {
			continue // of the test's own code
		}
		want := lockWaits[stack[i]]
		if strings.HasPrefix(stack[1], "lock of an unknown type") {
			continue // the collector has moved the lock since
		}
		if testenv.Framework(runtime) == "net8" {
			want.lock = strings.Replace(want.lock, "System.Threading.Lock", "Common.MonitorLock", 1)
		}
		if held := stack[0]; held == want.held {
			seen[stack[i]]++
		} else if !strings.HasSuffix(held, " (code not seen)") && held != "held by an unknown thread" {
			t.Errorf("%s waits for a lock that is %s", stack[i], held)
		}
		if lock, _, _ := strings.Cut(stack[1], " #"); lock != want.lock {
			t.Errorf("%s waits for %q, want %q", stack[i], stack[1], want.lock)
		}
	}
}

// TestLocksThatDie: a wait for a lock names the class of the lock's object, although the object is
// gone when the wait is reported, or else says that the class is not known. It never names another
// class.
func TestLocksThatDie(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "locks", testenv.Options{Runtime: runtime, Args: []string{"--parcels"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		waits, unknown := 0, 0
		testenv.UntilSeen(t, func() string {
			r := livetest.Recorded(t, p, record.Options{
				Duration: 2 * time.Second, Events: events.Options{Monitor: events.MonitorContention},
			})
			for _, s := range r.Samples {
				stack := names(r, s.Node)
				ofSemaphore := func(f string) bool { return strings.HasPrefix(f, "System.Threading.SemaphoreSlim.") }
				if !slices.Contains(stack, "Shop.Program.Receive") || slices.ContainsFunc(stack, ofSemaphore) {
					continue // SemaphoreSlim has a lock of its own
				}
				waits++
				switch lock, _, _ := strings.Cut(stack[1], " #"); {
				case lock == "lock of an unknown type":
					unknown++
				case lock != "lock Shop.Parcel" && lock != "lock Shop.Parcel (others)":
					t.Errorf("a wait for %q", stack[1])
				}
			}
			if waits < 10 || waits-unknown < 5 {
				return fmt.Sprintf("%d waits, %d for locks of an unknown type", waits, unknown)
			}
			return ""
		})
		t.Logf("%d waits, %d for locks of an unknown type", waits, unknown)
		livetest.EndsWell(t, a)
	})
}

// checkHolds requires that each look is at a thread inside the lock.
func checkHolds(t *testing.T, r *profile.Recording) {
	t.Helper()
	for _, h := range r.Holds {
		lock, stack := r.Functions[h.Lock].Display, names(r, h.Node)
		inside := slices.ContainsFunc(stack, func(f string) bool {
			_, waits := lockWaits[f]
			return waits || strings.HasPrefix(f, "Shop.Program.Hold")
		})
		if !inside || !strings.HasPrefix(lock, "lock ") || h.Waited <= 0 || h.Waiter == h.Thread {
			t.Errorf("%s: thread %d, waited for by %d for %v, is at %q", lock, h.Thread, h.Waiter, h.Waited, stack)
		}
	}
}

// names are the functions of a stack, leaf first.
func names(r *profile.Recording, node int32) (out []string) {
	for l := range r.Stack(node) {
		out = append(out, r.Functions[l.Function].Display)
	}
	return out
}
