package perfmap

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/judge"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

var (
	soakTime = flag.Duration("soak", layer.Size(12*time.Second, time.Hour),
		"how `long` TestSoak takes snapshots in all")
	soakRuntime = flag.String("runtime", testenv.DefaultRuntime,
		"the `runtime` of TestSoak's programs: net10, net9, net8")
)

// A soakKind is a program that TestSoak looks at, for its share of the time.
type soakKind struct {
	name    string
	runtime string // "": the runtime of the flag
	share   int    // of the flag -soak, in per cent; all shares together are 115
	args    []string
	env     []string
	reuse   bool // addresses of unloaded code are used again, and the test must meet some
}

var soakKinds = []soakKind{
	{name: "everything", share: 25, args: []string{"--storm"}},
	{name: "server GC", share: 20, args: []string{"--storm"},
		env: []string{"DOTNET_gcServer=1", "DOTNET_GCHeapCount=2"}},
	// The framework jitted as well, and no background collections.
	{name: "no ReadyToRun", share: 20, args: []string{"--storm", "--no-blocked"},
		env: []string{"DOTNET_ReadyToRun=0", "DOTNET_gcConcurrent=0"}},
	// Fewer threads get more looks each: threads that make and unload code, and
	// threads that leave managed code in unusual ways.
	{name: "code", share: 25, reuse: true, args: []string{"--storm", "--no-blocked", "--workers",
		"dynamic-churn,alc-churn,tier-up,gc-kinds,large-objects,gen-context,gen-emitted,gen-dynamic,gen-expression"}},
	{name: "ways out", share: 10, args: []string{"--storm", "--no-blocked", "--workers",
		"throw-catch,faults,qsort-storm,pinvoke-storm,dispatch,tail-calls,eh-storm,eh-filters,eh-faults,eh-native"}},
	{name: "code on .NET 9", runtime: "net9", share: 15, reuse: true, args: []string{
		"--storm", "--no-blocked", "--workers", "alc-churn,gc-kinds,gen-context,gen-emitted,gen-dynamic"}},
}

// TestSoak takes snapshots as fast as possible of a process that does everything
// at once: collects garbage in every way, throws, makes and unloads code, tiers
// up, starts and ends threads. No frame may be wrong, hardly a walk may end early,
// and the target must not notice.
func TestSoak(t *testing.T) {
	layer.Proof(t)
	for _, k := range soakKinds {
		t.Run(k.name, func(t *testing.T) { k.run(t, *soakTime*time.Duration(k.share)/100) })
	}
}

func (k *soakKind) run(t *testing.T, d time.Duration) {
	seconds := strconv.Itoa(int(d.Seconds()) + 300) // the test ends the program earlier
	runtime := cmp.Or(k.runtime, *soakRuntime)
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: runtime, JitDump: true, Reuse: k.reuse,
		Args: append([]string{"--busy", seconds, "--max-seconds", seconds}, k.args...),
		// While new methods come, the runtime puts off recompilation.
		Env: append([]string{"DOTNET_TC_CallCountingDelayMs=0"}, k.env...),
	})
	s := newSoak(a, livetest.Open(t, a, clrsnap.Options{}))
	if k.reuse && runtime != "net8" { // .NET 8 does not reuse addresses of unloaded code
		s.wanted = 20
	}
	if err := s.run(t, d); err != nil {
		t.Fatal(err)
	}
	livetest.EndsWell(t, a)
	s.report(t)
	if s.wanted > 0 && (s.reused() < s.wanted || s.judge.Replayed == 0) {
		t.Errorf("%d frames of collectible assemblies at reused addresses, %d old frames to feed again: "+
			"nothing stale could have been seen", s.reused(), s.judge.Replayed)
	}
	t.Logf("the target counted: %s", judge.Figures(a.Counts))
}

// reused counts the frames of collectible assemblies in the place of other code.
func (s *soak) reused() int {
	return s.judge.Reused["collectible context"] + s.judge.Reused["collectible emitted assembly"]
}

// run takes snapshots for a time, and reports its progress every ten seconds. The
// time is extended until enough reused places have been met.
func (s *soak) run(t *testing.T, d time.Duration) error {
	const often = 10 * time.Second
	start := time.Now()
	goOn := livetest.GoOn(d, func() bool { return s.reused() < s.wanted })
	for next := start.Add(often); goOn(); s.rounds++ {
		if err := s.round(); err != nil {
			return err
		}
		if err := s.judge.Settle(); err != nil {
			return err
		}
		if time.Now().After(next) {
			next = next.Add(often)
			t.Logf("%v of %v: %d rounds; Snapshot: %v; single: %v; %d frames, %d kinds of fault",
				time.Since(start).Round(time.Second), d, s.rounds, &s.snapshots, &s.single, s.judge.Frames(),
				s.judge.Faults())
		}
	}
	return s.judge.Finish()
}

type soak struct {
	p       *clrsnap.Process
	older   bool         // the runtime is older than .NET 10
	blocked map[int]bool // TIDs of blocked scenarios
	rounds  int
	wanted  int // frames in reused places

	snapshots, single tally
	judge             *judge.Judge
	bases             map[string]int
	mismatches        map[string]int
	compared          int
	coreCLRShorter    int
	coreCLRUnsafe     int
	unwinding         int
	stale             int // as CoreCLR, with frames of an exception before
}

// tally counts walks, and why some walks are not complete.
type tally struct {
	walks, complete, ended int
	starved                int // captures given up for want of a processor: no walk took place
	reasons                map[string]int
	examples               map[string]snapshot.Thread
}

func newSoak(a *testenv.App, p *clrsnap.Process) *soak {
	major, _, _ := strings.Cut(p.Info().Runtime.Version, ".")
	s := &soak{
		p: p, older: major == "8" || major == "9", blocked: map[int]bool{},
		judge: judge.New(a.JitDump()), bases: map[string]int{}, mismatches: map[string]int{},
	}
	for _, t := range []*tally{&s.snapshots, &s.single} {
		t.reasons, t.examples = map[string]int{}, map[string]snapshot.Thread{}
	}
	for _, st := range a.Stacks {
		s.blocked[st.TID] = true
	}
	return s
}

// round takes two snapshots of every busy thread: as Snapshot does, and by hand
// from one suspension, with three walks. Permanently blocked threads are looked
// at only now and then.
func (s *soak) round() error {
	all := s.rounds%50 == 0
	wanted := func(t *clrsnap.Thread) bool { return all || !s.blocked[t.OSThreadID] }
	// SnapshotAll asks the filter about each thread before the capture. The captures of running threads come last.
	begin := map[int]uint64{} // by TID
	snap, err := s.p.SnapshotAll(context.Background(), func(t *clrsnap.Thread) bool {
		begin[t.OSThreadID] = judge.Now()
		return wanted(t)
	})
	if err != nil {
		return err
	}
	end := judge.Now()
	for i := range snap.Threads {
		th := &snap.Threads[i]
		s.judge.Saw(th, begin[th.OSThreadID], end)
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
	held, begin, err := s.stop(t.ID)
	if errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD) {
		s.single.ended++
		return nil
	}
	if err != nil {
		return fmt.Errorf("suspending %q: %w", t.Name, err)
	}
	end := judge.Now() // the thread is captured
	defer held.Release()
	th := livetest.Walk(held)
	th.Name = t.Name
	s.judge.Saw(&th, begin, end)
	s.single.add(&th)
	if !th.Complete {
		return nil
	}
	seed, err := held.Seed()
	if err != nil {
		judge.Note(s.mismatches, "no seed in a complete walk: "+general(err.Error()))
		return nil
	}
	want := livetest.Reported(th.Frames)
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		livetest.SetMode(s.p, mode)
		var got []clrsnap.FunctionID
		calls, err := livetest.Calls(held, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, seed)
		for _, c := range calls {
			if c.ID != 0 {
				got = append(got, c.ID)
			}
		}
		_, chain := livetest.Chain(held)
		s.compare(mode, &th, got, want, chain, err)
	}
	livetest.SetMode(s.p, clrsnap.AsDocumented)
	return nil
}

// stop suspends a thread, and tries again if the thread or our tracer got no
// processor in time, as the error says to: twenty threads compete for each
// processor of the machine. begin is the beginning of the last attempt.
func (s *soak) stop(id clrsnap.ThreadID) (held *clrsnap.Suspension, begin uint64, err error) {
	for range 5 {
		begin = judge.Now()
		held, err = s.p.Suspend(id)
		if !errors.Is(err, live.ErrNotStopping) && !errors.Is(err, live.ErrWatchdog) {
			break
		}
		s.single.starved++
	}
	return held, begin, err
}

// compare requires of DoStackSnapshot as documented exactly the managed frames
// that the walk does not pass over. As CoreCLR does it, DoStackSnapshot goes
// from Frame to Frame and never sees the frames between two Frames: a
// subsequence.
func (s *soak) compare(
	mode clrsnap.Mode, th *snapshot.Thread, got, want []clrsnap.FunctionID, chain string, err error,
) {
	s.compared++
	if errors.Is(err, clrsnap.S_FALSE) && len(want) == 0 && th.Mode == "cooperative" {
		return // no managed frames, so there is no seed, and without a seed the answer is unknown
	}
	switch {
	case mode == clrsnap.AsCoreCLR && errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE):
		// An exception thrown in a handler is being dispatched, and the handler's
		// Frames have been taken down: there is no way from Frame to Frame.
		s.coreCLRUnsafe++
	case s.older && errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX):
		// A thread in preemptive mode whose exception is being unwound, before a handler
		// is entered: only ever seen on .NET 8 and 9.
		s.unwinding++
	case err != nil:
		judge.Note(s.mismatches, fmt.Sprintf("mode %d of a complete walk of %q: %v:\n%s",
			mode, th.Name, err, livetest.Text(th.Frames)))
	case slices.Equal(got, want):
	case mode == clrsnap.AsCoreCLR && subsequence(got, want):
		s.coreCLRShorter++
	case mode == clrsnap.AsCoreCLR && s.older && dispatches(th):
		// While .NET 9 dispatches an exception, the helper's Frame sometimes has the place of an exception before.
		s.stale++
	default:
		judge.Note(s.mismatches, fmt.Sprintf("mode %d of %q: got %d frames, want %d:\n%s\tgot:\n%s\tFrames, %s\n",
			mode, th.Name, len(got), len(want), livetest.Text(th.Frames), s.named(got), chain))
	}
}

// dispatches reports whether a thread dispatches an exception in managed code, as from .NET 9 on.
func dispatches(th *snapshot.Thread) bool {
	return slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
		return strings.HasPrefix(f.Method, "System.Runtime.EH.Dispatch")
	})
}

// named lists methods for a failure's message.
func (s *soak) named(ids []clrsnap.FunctionID) string {
	var b strings.Builder
	for _, id := range ids {
		name, err := s.p.FunctionName(id)
		fmt.Fprintf(&b, "\t\t%s %v\n", name.Exact, err)
	}
	return b.String()
}

func subsequence(short, long []clrsnap.FunctionID) bool {
	for _, id := range long {
		if len(short) > 0 && short[0] == id {
			short = short[1:]
		}
	}
	return len(short) == 0
}

// threadBody matches the main methods of the program's threads: lambdas and local
// functions, and the methods of the framework's own threads.
var threadBody = regexp.MustCompile(`\.<\w+>[bg]__[\w|]+$|` +
	`^System\.Threading\.(PortableThreadPool\+(Worker|Gate)Thread\.(Worker|Gate)ThreadStart|TimerQueue\.TimerThread)$`)

// base checks the managed end of complete walks: every thread of the program's
// own began in Thread.StartCallback. Before .NET 10 the call of the thread's
// own method is StartCallback's last action, and takes StartCallback's place.
func (s *soak) base(th *snapshot.Thread) {
	managed := livetest.OfKind(th.Frames, snapshot.Managed)
	if !th.Complete || len(managed) == 0 || th.Role == "Main" || th.Role == "Finalizer" ||
		th.Role == "Tiered compilation" {
		return
	}
	last := managed[len(managed)-1].Method
	if last != "System.Threading.Thread.StartCallback" && !(s.older && threadBody.MatchString(last)) {
		judge.Note(s.bases, fmt.Sprintf("%q ends with %s\n%s", th.Name, last, livetest.Text(th.Frames)))
	}
}

func (t *tally) add(th *snapshot.Thread) {
	if th.Error == "the thread has ended" {
		t.ended++
		return
	}
	if livetest.Starved(*th) {
		t.starved++
		return
	}
	t.walks++
	if th.Complete {
		t.complete++
		return
	}
	why := judge.Note(t.reasons, general(th.Error))
	t.examples[why] = *th
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|\b[0-9]{2,}\b`)

// general makes messages about different addresses equal.
func general(s string) string { return numbers.ReplaceAllString(s, "…") }

func (t *tally) String() string {
	return fmt.Sprintf("%d walks, %d complete (%.3f %%), %d threads ended before, %d captures given up",
		t.walks, t.complete, 100*float64(t.complete)/float64(max(1, t.walks)), t.ended, t.starved)
}

func (t *tally) why() string {
	var b strings.Builder
	for why, n := range t.reasons {
		th := t.examples[why]
		fmt.Fprintf(&b, "%d times: %s\n  for example %q (%s, %s): %s\n%s",
			n, why, th.Name, th.Mode, th.State, th.Error, livetest.Text(th.Frames))
	}
	return b.String()
}

// enough requires that 99.99 % of the walks are complete. In a short run one or
// two must not decide.
func (t *tally) enough() bool {
	return t.walks-t.complete <= max(2, t.walks/10_000) && t.starved <= max(10, t.walks/100)
}

func (s *soak) report(t *testing.T) {
	for what, of := range map[string]*tally{"Snapshot": &s.snapshots, "single suspensions": &s.single} {
		t.Logf("%s: %v in %d rounds", what, of, s.rounds)
		if !of.enough() {
			t.Errorf("%s: too few walks are complete, or too many captures given up: %v\n%s", what, of, of.why())
		} else if len(of.reasons) > 0 {
			t.Logf("%s: not complete:\n%s", what, of.why())
		}
	}
	t.Logf("%d DoStackSnapshots compared; as CoreCLR shorter %d times, %d times to be tried again, %d times stale",
		s.compared, s.coreCLRShorter, s.coreCLRUnsafe, s.stale)
	if s.coreCLRUnsafe*1000 > s.compared+2000 {
		t.Errorf("as CoreCLR, %d of %d walks say that the thread's state is inconsistent", s.coreCLRUnsafe,
			s.compared/2)
	}
	if s.older {
		t.Logf("%d times an exception was being unwound", s.unwinding)
	}
	if s.stale*500 > s.compared+1000 {
		t.Errorf("as CoreCLR, %d of %d walks have frames of an exception before", s.stale, s.compared/2)
	}
	if s.unwinding*10 > s.compared {
		t.Errorf("%d of %d DoStackSnapshots refused because an exception is being unwound", s.unwinding, s.compared)
	}
	s.judge.Report(t)
	for what, n := range s.bases {
		t.Errorf("wrong base, %d times: %s", n, what)
	}
	for what, n := range s.mismatches {
		t.Errorf("DoStackSnapshot differs from Snapshot, %d times: %s", n, what)
	}
}
