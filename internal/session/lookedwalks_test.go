package session

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// TestLookedWalks: each walk from the kernel's registers equals the walk from the registers at a stop, frame for frame,
// with all names. All threads of a program stand still meanwhile, so both walks are of one moment. The programs throw,
// collect, compile, wait, take signals, and start and end threads. TestLookEqualsStops of package live compares the
// registers of threads that do not stand still.
func TestLookedWalks(t *testing.T) {
	layer.Proof(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		for app, args := range map[string][]string{
			"scenarios": {"--busy", "3600", "--max-seconds", "3600", "--storm"},
			"churn":     {"--journal", filepath.Join(t.TempDir(), "journal")},
		} {
			t.Run(app, func(t *testing.T) {
				a := testenv.Start(t, app, testenv.Options{Runtime: runtime, Args: args})
				p, err := Open(context.Background(), a.PID, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if err := p.Live.CanLook(); err != nil {
					layer.Lacking(t, err.Error())
				}
				var sum lookedWalks
				const step = 200
				for sum.equal < layer.Size(step, 30_000) && !t.Failed() {
					want := sum.equal + step
					testenv.UntilSeen(t, func() string {
						if sum.compare(t, p); sum.equal < want {
							return fmt.Sprintf("more walks: %+v", sum)
						}
						return ""
					})
				}
				if t.Logf("%+v", sum); sum.complete < sum.equal*9/10 {
					t.Errorf("the walks are equal, but not complete")
				}
			})
		}
	})
}

// lookedWalks counts compared walks.
type lookedWalks struct {
	equal, complete, frames int
	ready                   int // of threads in no system call
	noStop                  int // times: the threads got no CPU to stop on
}

// lookedWalk is a walk with its frames.
type lookedWalk struct {
	Frames   []snapshot.Frame
	Complete bool
	Err      string
	ready    bool
}

// compare compares the walks of all threads at one stop.
func (sum *lookedWalks) compare(t *testing.T, p *Process) {
	t.Helper()
	looked, stopped := map[int]lookedWalk{}, map[int]lookedWalk{}
	still := false
	_, err := p.Live.Hold(DefaultPause, func(all live.Standing) {
		list, err := p.Threads() // now: a thread gets its Thread object while it starts
		if err != nil {
			t.Error(err)
			return
		}
		infos := map[int]target.ThreadInfo{}
		held := slices.DeleteFunc(list, func(th Thread) bool {
			info, err := p.from.Thread(th.OSThreadID)
			infos[th.OSThreadID] = info
			return err != nil || !slices.ContainsFunc(all.Threads, func(c target.Capture) bool {
				return c.TID == th.OSThreadID
			})
		})
		for i := range held {
			looked[held[i].OSThreadID] = p.walkBy(&held[i], (*Suspension).LookAndWalk)
		}
		_ = p.stand(all, infos, func() error {
			for i := range held {
				stopped[held[i].OSThreadID] = p.walkBy(&held[i], (*Suspension).StopAndWalk)
			}
			return nil
		})
		still = all.Still()
	})
	if err != nil || !still {
		sum.noStop++
		return
	}
	for tid, want := range stopped {
		got := looked[tid]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("thread %d from the kernel's registers:\n%+v\nat the stop:\n%+v", tid, got, want)
			continue
		}
		sum.equal++
		sum.frames += len(got.Frames)
		if got.Complete {
			sum.complete++
		}
		if got.ready {
			sum.ready++
		}
	}
}

// walkBy walks a thread.
func (p *Process) walkBy(
	th *Thread, by func(*Suspension, func() walk.Result) (walk.Result, error),
) (out lookedWalk) {
	g := p.gather(SnapshotOptions{})
	v := g.visit(th)
	r, err := by(&v.Suspension, v.frames)
	if err != nil {
		return lookedWalk{Err: err.Error()}
	}
	out = lookedWalk{Frames: slices.Clone(g.stack.frames), Complete: r.Complete, ready: v.Capture.SyscallNr < 0}
	if r.Err != nil {
		out.Err = fmt.Sprint(r.Err)
	}
	return out
}
