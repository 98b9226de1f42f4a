package why_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/internal/bridge"
	"clrsnap/internal/gather"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestLookAtStarved: of threads that hardly get a CPU beside other programs, the looks alone tell where the threads
// stand. The other programs would starve the tests beside this test, too.
func TestLookAtStarved(t *testing.T) {
	layer.Full(t)
	const crowd = 12
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, version string) {
		a := testenv.Start(t, "ailing", testenv.Options{
			Runtime: version, Args: []string{"--of", "crowd", "--crowd", strconv.Itoa(crowd)},
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		if err := clrsnap.Inside(bridge.Access{}).Session(p).Live.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		livetest.Await(t, "all threads are in the loop", func() bool { return inMatch(t, p) == crowd })
		yieldAlways(t, a)
		others := func() {
			testenv.Start(t, "busy", testenv.Options{Runtime: version,
				Args: []string{"--threads", strconv.Itoa(4 * runtime.NumCPU())}})
		}
		others()
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: time.Second, NoAgent: true})
			for _, v := range r.Verdicts {
				if v.Cause != profile.CauseCPU || !strings.Contains(v.Text, "Shop.Busy.Match") {
					t.Errorf("%s: %s", v.Cause, v.Text)
				}
			}
			if len(r.Verdicts) > 0 { // enough samples
				others()
				return "a program without CPU time"
			}
			note := r.Activity.CPU.OfNote
			if len(note) < 2 || !strings.Contains(note[0].Text, "Other programs used") {
				return fmt.Sprintf("too little CPU time: %+v", note)
			}
			n := 0
			if _, err := fmt.Sscanf(note[1].Text, "%d threads were ready to run nearly all the time, in "+
				"Shop.Busy.Match (Busy.cs:", &n); !strings.Contains(note[1].Text, "in Shop.Busy.Match (Busy.cs:") {
				t.Errorf("%q: %v", note[1].Text, err)
			}
			if n != crowd { // some had a CPU in all looks
				return "all threads: " + note[1].Text
			}
			if len(note[1].Threads) != crowd || gather.OwnFrame(note[1].Frames) == nil {
				t.Errorf("%+v", note[1])
			}
			return ""
		})
	})
}

// inMatch counts the threads in the loop.
func inMatch(t *testing.T, p *clrsnap.Process) (n int) {
	t.Helper()
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Threads {
		if f := gather.OwnFrame(s.Threads[i].Frames); f != nil && strings.HasPrefix(f.Display, "Shop.Busy.Match") {
			n++
		}
	}
	return n
}

// yieldAlways gives a CPU to a program only if no other program wants the CPU, more or less.
func yieldAlways(t *testing.T, a *testenv.App) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", a.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// TestLookAtThrottled: a quota of CPU time that is used up is told, and other programs are not blamed.
func TestLookAtThrottled(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, version string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: version, Args: []string{"--of", "crowd", "--crowd",
			"4"}})
		if err := testenv.LimitCPU(t, a.PID, 0.05); err != nil {
			t.Skip("SKIPPED, NOTHING WAS TESTED: " + err.Error())
		}
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: time.Second, NoAgent: true})
			if len(r.Verdicts) == 0 { // too little CPU time even for the quota
				return "a verdict"
			}
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				checkVerdict(t, v, v.Cause == profile.CauseThrottled && v.Certainty == profile.Certain,
					[]string{"0.05 CPUs", "cpu.stat of group "})
			}
			if c := r.Activity.CPU; c.May > 0.0501 || len(c.OfNote) > 0 {
				t.Errorf("%+v", c)
			}
			return ""
		})
	})
}
