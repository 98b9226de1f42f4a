package clrsnap_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestPackStacks: packed stacks are the same as unpacked stacks, in every way of being on a stack.
func TestPackStacks(t *testing.T) {
	a := testenv.Start(t, "scenarios", testenv.Options{})
	stands := map[int]bool{} // blocked until the end
	for _, s := range a.Stacks {
		stands[s.TID] = true
	}
	comparePacked(t, a, func(th *snapshot.Thread) bool { return stands[th.OSThreadID] })
	livetest.EndsWell(t, a)

	a = testenv.Start(t, "inlined", testenv.Options{})
	inlined := comparePacked(t, a, func(th *snapshot.Thread) bool {
		return slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
			return strings.HasPrefix(f.Method, "Inlined.Cases.")
		})
	})
	if livetest.EndsWell(t, a); inlined == 0 {
		t.Error("nothing was inlined")
	}
}

// comparePacked compares the stacks of threads that stand still, and returns how many inlined methods they have.
func comparePacked(t *testing.T, a *testenv.App, stands func(*snapshot.Thread) bool) (inlined int) {
	t.Helper()
	o := clrsnap.Options{Lines: true, Inlined: true, Async: true, ExactGenerics: true}
	plain := livetest.Open(t, a, o)
	o.PackStacks = true
	packs := livetest.Open(t, a, o)
	want, err := plain.SnapshotAll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, take := range map[string]func(context.Context, clrsnap.Filter) (*snapshot.Snapshot, error){
		"one by one": packs.SnapshotAll, "at once": packs.SnapshotAtOnce,
	} {
		got, err := take(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		compared, packed := 0, 0
		for i := range want.Threads {
			of := &want.Threads[i]
			if !stands(of) {
				continue
			}
			th := threadOf(got, of.OSThreadID)
			if th == nil {
				t.Fatalf("%s, %s: there is no thread %d", a, name, of.OSThreadID)
			}
			if compared++; th.Packed != nil {
				packed++
			}
			var buf []snapshot.Frame
			if frames := th.Stack(&buf); !reflect.DeepEqual(frames, of.Frames) || th.Error != of.Error {
				t.Errorf("%s, %s: thread %d has\n%+v\nwant\n%+v", a, name, of.OSThreadID, frames, of.Frames)
			}
			for k := range th.Depth() {
				if th.Frame(k).Inlined {
					inlined++
				}
			}
		}
		t.Logf("%s, %s: %d threads, %d packed, %d inlined methods by now", a, name, compared, packed, inlined)
		if compared == 0 || packed < compared/2 {
			t.Errorf("%s, %s: %d of %d stacks are packed", a, name, packed, compared)
		}
	}
	return inlined
}

func threadOf(s *snapshot.Snapshot, tid int) *snapshot.Thread {
	for i := range s.Threads {
		if s.Threads[i].OSThreadID == tid {
			return &s.Threads[i]
		}
	}
	return nil
}
