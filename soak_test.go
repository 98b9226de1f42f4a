package clrsnap_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

var soakFlag = flag.Duration("soak", 0, "how long TestSoak takes snapshots; 0: $CLRSNAP_SOAK, or 10s")

func soakTime(t *testing.T) time.Duration {
	if *soakFlag > 0 {
		return *soakFlag
	}
	v := os.Getenv("CLRSNAP_SOAK")
	if v == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSoak takes snapshots as fast as they go of a process that does everything
// at once: collects garbage, throws, makes and unloads code, tiers up, starts and
// ends threads. No frame may be wrong, hardly a walk may end early, and the
// target must not notice.
func TestSoak(t *testing.T) {
	d := soakTime(t)
	for _, tt := range []struct {
		name string
		time time.Duration
		args []string
	}{
		{"everything", d, nil},
		// Fewer threads get more looks each: what makes and unloads code, and
		// what leaves managed code in unusual ways.
		{"code", d / 3, []string{"--no-blocked", "--workers", "dynamic-churn,alc-churn,tier-up,gc-collect"}},
		{"ways out", d / 3, []string{"--no-blocked", "--workers", "throw-catch,faults,qsort-storm,pinvoke-storm,dispatch,tail-calls"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"--busy", strconv.Itoa(int(tt.time.Seconds()) + 2)}, tt.args...)
			a := testenv.Start(t, "scenarios", testenv.Options{PerfMap: true, Args: args})
			s := newSoak(a, open(t, a, clrsnap.Options{}))
			for end := time.Now().Add(tt.time); time.Now().Before(end); s.rounds++ {
				if err := s.round(); err != nil {
					t.Fatal(err)
				}
			}
			if result, code := a.Wait(); result != "OK" || code != 0 {
				t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
			}
			s.report(t, newJudge(a.PerfMap()))
		})
	}
}

type soak struct {
	p       *clrsnap.Process
	blocked map[int]bool // TIDs of blocked scenarios
	rounds  int

	snapshots, single tally
	frames            map[profile.Frame]int // without SP
	bases             map[string]int
	mismatches        map[string]int
	compared          int
	coreCLRShorter    int
}

// tally counts walks and why some of them are not complete.
type tally struct {
	walks, complete, ended int
	reasons                map[string]int
	examples               map[string]profile.Thread
}

func newSoak(a *testenv.App, p *clrsnap.Process) *soak {
	s := &soak{p: p, blocked: map[int]bool{}, frames: map[profile.Frame]int{}, bases: map[string]int{}, mismatches: map[string]int{}}
	for _, t := range []*tally{&s.snapshots, &s.single} {
		t.reasons, t.examples = map[string]int{}, map[string]profile.Thread{}
	}
	for _, st := range a.Stacks {
		s.blocked[st.TID] = true
	}
	return s
}

// round takes a snapshot of every busy thread twice: as Snapshot does, and by
// hand from one suspension, which is walked three ways. Threads that are blocked
// for good are only looked at now and then.
func (s *soak) round() error {
	all := s.rounds%50 == 0
	wanted := func(t *clrsnap.Thread) bool { return all || !s.blocked[t.OSThreadID] }
	snap, err := s.p.SnapshotAll(wanted)
	if err != nil {
		return err
	}
	for i := range snap.Threads {
		th := &snap.Threads[i]
		s.keep(th)
		s.snapshots.add(th)
		s.base(th)
	}
	threads, err := s.p.Threads()
	if err != nil {
		return err
	}
	for i := range threads {
		if threads[i].ID != 0 && wanted(&threads[i]) {
			if err := s.suspend(&threads[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// suspend walks one suspension as Snapshot does and as DoStackSnapshot does in
// both of its modes.
func (s *soak) suspend(t *clrsnap.Thread) error {
	held, err := s.p.Suspend(t.ID)
	if errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD) {
		s.single.ended++
		return nil
	}
	if err != nil {
		return fmt.Errorf("suspending %q: %w", t.Name, err)
	}
	defer held.Resume()
	th := held.Walk()
	th.Name = t.Name
	s.keep(&th)
	s.single.add(&th)
	if !th.Complete {
		return nil
	}
	seed, err := held.Seed()
	if err != nil {
		s.mismatches["no seed in a complete walk: "+general(err.Error())]++
		return nil
	}
	want := reported(th.Frames)
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		s.p.SetMode(mode)
		var got []clrsnap.FunctionID
		err := held.DoStackSnapshot(func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
			if id != 0 {
				got = append(got, id)
			}
			return nil
		}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, seed)
		s.compare(mode, &th, got, want, err)
	}
	s.p.SetMode(clrsnap.AsDocumented)
	return nil
}

// compare requires of DoStackSnapshot as documented exactly the managed frames
// that it does not pass over. As CoreCLR does it, it goes from Frame to Frame
// and never sees what lies between two of them: a subsequence.
func (s *soak) compare(mode clrsnap.Mode, th *profile.Thread, got, want []clrsnap.FunctionID, err error) {
	s.compared++
	if errors.Is(err, clrsnap.S_FALSE) && len(want) == 0 && th.Mode == "cooperative" {
		return // no managed frames, so there is no seed, without which it cannot know
	}
	switch {
	case err != nil:
		s.mismatches[fmt.Sprintf("mode %d of a complete walk of %q: %s", mode, th.Name, general(err.Error()))]++
	case slices.Equal(got, want):
	case mode == clrsnap.AsCoreCLR && subsequence(got, want):
		s.coreCLRShorter++
	default:
		s.mismatches[fmt.Sprintf("mode %d of %q: got %d frames, want %d:\n%s", mode, th.Name, len(got), len(want), text(th.Frames))]++
	}
}

// reported lists the managed frames that DoStackSnapshot does not pass over.
func reported(frames []profile.Frame) []clrsnap.FunctionID {
	var out []clrsnap.FunctionID
	for _, f := range frames {
		if f.Kind == profile.Managed && f.Tier != "dynamic" && f.Tier != "IL stub" && !strings.HasPrefix(f.Method, "System.Runtime.EH.") {
			out = append(out, clrsnap.FunctionID(f.FunctionID))
		}
	}
	return out
}

func subsequence(short, long []clrsnap.FunctionID) bool {
	for _, id := range long {
		if len(short) > 0 && short[0] == id {
			short = short[1:]
		}
	}
	return len(short) == 0
}

// keep notes frames for the comparison with the perf map.
func (s *soak) keep(th *profile.Thread) {
	for _, f := range th.Frames {
		if f.Kind == profile.Managed {
			f.SP = 0
			s.frames[f]++
		}
	}
}

// base checks the managed end of complete walks: every thread of the program's
// own began in Thread.StartCallback.
func (s *soak) base(th *profile.Thread) {
	managed := ofKind(th.Frames, profile.Managed)
	if !th.Complete || len(managed) == 0 || th.Role == "Main" || th.Role == "Finalizer" || th.Role == "Tiered compilation" {
		return
	}
	if last := managed[len(managed)-1]; last.Method != "System.Threading.Thread.StartCallback" {
		s.bases[fmt.Sprintf("%q ends with %s\n%s", th.Name, last.Method, text(th.Frames))]++
	}
}

func (t *tally) add(th *profile.Thread) {
	if th.Error == "the thread has ended" {
		t.ended++
		return
	}
	t.walks++
	if th.Complete {
		t.complete++
		return
	}
	why := general(th.Error)
	t.reasons[why]++
	t.examples[why] = *th
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|\b[0-9]{2,}\b`)

// general makes messages about different addresses equal.
func general(s string) string { return numbers.ReplaceAllString(s, "…") }

func (t *tally) String() string {
	return fmt.Sprintf("%d walks, %d complete (%.3f %%), %d threads ended before", t.walks, t.complete, 100*float64(t.complete)/float64(max(1, t.walks)), t.ended)
}

func (t *tally) why() string {
	var b strings.Builder
	for why, n := range t.reasons {
		th := t.examples[why]
		fmt.Fprintf(&b, "%d times: %s\n  for example %q (%s, %s): %s\n%s", n, why, th.Name, th.Mode, th.State, th.Error, text(th.Frames))
	}
	return b.String()
}

func (s *soak) report(t *testing.T, j *judge) {
	t.Logf("%d rounds; Snapshot: %v", s.rounds, &s.snapshots)
	t.Logf("single suspensions: %v", &s.single)
	t.Logf("%d DoStackSnapshots compared; as CoreCLR shorter %d times", s.compared, s.coreCLRShorter)
	if s.snapshots.complete*1000 < s.snapshots.walks*999 {
		t.Errorf("fewer than 99.9 %% of the snapshots are complete: %v\n%s", &s.snapshots, s.snapshots.why())
	} else if len(s.snapshots.reasons) > 0 {
		t.Logf("not complete:\n%s", s.snapshots.why())
	}
	if len(s.single.reasons) > 0 {
		t.Logf("single suspensions that are not complete:\n%s", s.single.why())
	}
	for f, n := range s.frames {
		if f.Tier != "ReadyToRun" {
			before := j.compared
			j.frame(&f)
			j.compared = before + n
		}
	}
	t.Logf("%d frames of %d jitted methods compared with the perf map, %d at places that have been reused", j.compared, len(j.methods), j.reused)
	j.report(t)
	for what, n := range s.bases {
		t.Errorf("wrong base, %d times: %s", n, what)
	}
	for what, n := range s.mismatches {
		t.Errorf("DoStackSnapshot differs from Snapshot, %d times: %s", n, what)
	}
}
