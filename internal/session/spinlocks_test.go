package session_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestSpinLocks: of threads that spin for a SpinLock it is said which SpinLock, and who holds it, if the SpinLock keeps
// its owner. A dump says the same.
func TestSpinLocks(t *testing.T) { testenv.EachVersion(t, testSpinLocks) }

func testSpinLocks(t *testing.T, runtime string) {
	a := testenv.Start(t, "spinlocks", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	missing := map[string]bool{}
	for _, set := range []string{"static", "tracked", "untracked", "ended"} {
		for i := range 2 {
			missing[fmt.Sprintf("spins-%s-%d", set, i)] = true
		}
	}
	all := maps.Clone(missing)
	testenv.UntilSeen(t, func() string {
		snap, err := p.SnapshotWaits(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkSpins(t, snap, missing)
		if len(missing) > 0 && !t.Failed() {
			return fmt.Sprint(slices.Sorted(maps.Keys(missing)))
		}
		return ""
	})
	core := livetest.SnapshotCore(t, testenv.GCoreDump(t, a.PID), clrsnap.CoreOptions{})
	checkSpins(t, core, all)
	if len(all) > 0 {
		t.Errorf("the dump lacks %v", slices.Sorted(maps.Keys(all)))
	}
	livetest.EndsWell(t, a)
}

// checkSpins removes the threads whose SpinLock is told from missing.
func checkSpins(t *testing.T, snap *snapshot.Snapshot, missing map[string]bool) {
	t.Helper()
	for i := range snap.Threads {
		th := &snap.Threads[i]
		name, spins := strings.CutPrefix(th.Name, "spins-")
		w := th.Wait
		if !spins {
			if w != nil && w.Kind == snapshot.SpinLockEnter {
				t.Errorf("%s does not spin: %+v", th.Name, *w)
			}
			continue
		}
		if w == nil || w.Kind != snapshot.SpinLockEnter {
			t.Errorf("%s: %+v\n%s", th.Name, w, livetest.Text(th.Frames))
			continue
		}
		if !w.Certain || w.Object == 0 {
			continue
		}
		set, _, _ := strings.Cut(name, "-")
		owner, field := "holds-"+set, "Spinlocks.Till.gate"
		switch set {
		case "static":
			field = "Spinlocks.Program.counter"
		case "ended", "untracked":
			owner = ""
		}
		is := ""
		if w.Owner != nil {
			is = w.Owner.Name
		}
		ended := w.Owner != nil && w.Owner.OSThreadID == 0
		if is != owner || w.Field != field || ended != (set == "ended") || (w.Waiters > 0) != (set == "untracked") {
			t.Errorf("%s: %+v, owner %+v", th.Name, *w, w.Owner)
		}
		delete(missing, th.Name)
	}
}
