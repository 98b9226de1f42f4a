package oracle

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

var frames = flag.Int("frames", layer.Size(30_000, 1_000_000),
	"how many frames TestOracle compares with the CLR's own walk")

// TestOracle compares the walk from outside, callback by callback, with the CLR's
// own DoStackSnapshot of the same threads at the same suspended moment. The test
// asks the CLR through the in-process agent, which suspends the runtime, walks,
// and keeps the runtime suspended until the walk from outside is done as well.
func TestOracle(t *testing.T) {
	layer.Proof(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		n := *frames
		if runtime != testenv.DefaultRuntime {
			n /= 5
		}
		testOracle(t, runtime, n)
	})
}

func testOracle(t *testing.T, runtime string, frames int) {
	lib := buildAgent(t)
	everything := []string{"--finalizer"}
	storm := []string{"--no-blocked", "--storm"}
	older := []string{"DOTNET_LegacyExceptionHandling=1"}
	exceptions := append(storm, "--workers", "throw-catch,faults,eh-storm,eh-filters,eh-faults,eh-native,eh-async")
	for _, tt := range []struct {
		name    string
		begin   func(*testing.T, string, testenv.Options) (*testenv.App, *agent.Conn)
		args    []string
		percent int // of the frames
		env     []string
	}{
		{"started", startWithAgent, everything, 30, nil},
		{"attached", attachAgent, everything, 30, nil},
		{"storm", attachAgent, storm, 20, nil},
		{"exceptions", attachAgent, exceptions, 20, nil},
		{"exceptions, the older way", attachAgent, append(everything, exceptions[1:]...), 20, older},
	} {
		if tt.env != nil && testenv.Framework(runtime) != "net9" {
			continue // .NET 8 has no other way, .NET 10 has dropped the older way
		}
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"--busy", "7200", "--max-seconds", "7200"}, tt.args...)
			a, conn := tt.begin(t, lib, testenv.Options{Runtime: runtime, Args: args, Env: tt.env})
			o := newOracle(a, conn, livetest.Open(t, a, clrsnap.Options{Mode: clrsnap.AsCoreCLR}))
			for o.Frames < frames/100*tt.percent && len(o.Unknown) < MaxUnknown {
				if err := o.round(); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.Detach(); err != nil {
				t.Error(err)
			}
			livetest.EndsWell(t, a)
			o.report(t)
		})
	}
}

// TestOracleResolving compares threads that the suspension finds in the lookup of an
// interface call's method: in preemptive mode, with a StubDispatchFrame as their newest
// Frame. TestOracle meets few of them. .NET 8 stays in cooperative mode during the
// lookup, so there the test falls back to the scenario iface-castable.
func TestOracleResolving(t *testing.T) {
	layer.Proof(t)
	const (
		wanted    = 20
		maxRounds = 50_000
	)
	lib := buildAgent(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		if testenv.Framework(runtime) == "net8" {
			return
		}
		args := []string{"--busy", "7200", "--max-seconds", "7200", "--no-blocked", "--workers", "first-calls"}
		a, conn := attachAgent(t, lib, testenv.Options{Runtime: runtime, Args: args})
		o := newOracle(a, conn, livetest.Open(t, a, clrsnap.Options{Mode: clrsnap.AsCoreCLR}))
		for o.Newest["StubDispatchFrame"] < wanted && len(o.Unknown) < MaxUnknown {
			if o.rounds == maxRounds {
				t.Fatalf("a StubDispatchFrame was the newest one %d times in %d suspensions, want %d",
					o.Newest["StubDispatchFrame"], o.rounds, wanted)
			}
			if err := o.round(); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Detach(); err != nil {
			t.Error(err)
		}
		livetest.EndsWell(t, a)
		o.report(t)
	})
}

// buildAgent compiles the in-process agent.
func buildAgent(tb testing.TB) string {
	tb.Helper()
	cc := testenv.CC(tb)
	lib := filepath.Join(tb.TempDir(), "libclrsnap-agent.so")
	if err := agent.Build(cc, "../../../agent", lib); err != nil {
		tb.Fatal(err)
	}
	return lib
}

func listen(tb testing.TB) *agent.Listener {
	tb.Helper()
	l, err := agent.Listen(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// startWithAgent starts a program that loads the agent as its profiler.
func startWithAgent(t *testing.T, lib string, opts testenv.Options) (*testenv.App, *agent.Conn) {
	t.Helper()
	l := listen(t)
	opts.Env = append(opts.Env, l.Environment(lib)...)
	var conn *agent.Conn
	begun := make(chan error, 1)
	go func() { // the agent does not wait for long
		var err error
		if conn, err = l.Accept(time.Minute); err == nil {
			_, err = conn.Begin(agent.Subscription{})
		}
		begun <- err
	}()
	a := testenv.Start(t, "scenarios", opts)
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	return a, introduced(t, a, conn, false)
}

// attachAgent starts a program and attaches the agent to the running program.
func attachAgent(t *testing.T, lib string, opts testenv.Options) (*testenv.App, *agent.Conn) {
	t.Helper()
	l := listen(t)
	a := testenv.Start(t, "scenarios", opts)
	conn, err := l.Attach(a.PID, lib)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Begin(agent.Subscription{}); err != nil {
		t.Fatal(err)
	}
	return a, introduced(t, a, conn, true)
}

func introduced(t *testing.T, a *testenv.App, conn *agent.Conn, attached bool) *agent.Conn {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	if h := conn.Hello; int(h.PID) != a.PID || (h.Attached == 1) != attached || h.HoldLimitMS == 0 {
		t.Fatalf("the agent in process %d says %+v", a.PID, h)
	}
	return conn
}

// oracle compares the two walks of all threads.
type oracle struct {
	*Comparison
	conn    *agent.Conn
	blocked map[uint32]string // scenarios by thread id

	rounds, cut, postponed, ofBlocked int
	moved, known                      map[string]int
	since                             time.Time // of the suspension
	suspended, walked, longestHold    time.Duration
}

func newOracle(a *testenv.App, conn *agent.Conn, p *clrsnap.Process) *oracle {
	o := &oracle{
		Comparison: New(p), conn: conn, blocked: map[uint32]string{},
		moved: map[string]int{}, known: map[string]int{},
	}
	for name, s := range a.Stacks {
		o.blocked[uint32(s.TID)] = name
	}
	return o
}

const (
	hold                = 10 * time.Second
	suspensionProgress  = clrsnap.HRESULT(0x80131388) // CORPROF_E_SUSPENSION_IN_PROGRESS
	blockedEvery        = 10                          // rounds
	maxPostponedAtATime = 10000
)

// round compares all threads at one moment. Permanently blocked threads are
// compared only now and then: their stacks are always the same.
func (o *oracle) round() error {
	w, err := o.walk()
	if err != nil {
		return err
	}
	defer func() { o.longestHold = max(o.longestHold, time.Since(o.since)) }()
	for i := range w.Threads {
		if o.blocked[w.Threads[i].OSID] == "" || o.rounds%blockedEvery == 0 {
			err := o.thread(&w.Threads[i])
			if errors.Is(err, errLost) {
				o.cut++
				break
			}
			if err != nil {
				return errors.Join(err, o.conn.Resume())
			}
		}
	}
	o.rounds++
	o.suspended += w.Suspending
	o.walked += w.Taken
	if err := o.conn.Resume(); !errors.Is(err, agent.ErrExpired) {
		return err
	}
	return nil // the compared threads were compared in time
}

// errLost: the suspension has run out of time on a very busy machine, so that
// later observations are not of the CLR's moment.
var errLost = errors.New("the suspension has ended before the comparison")

// walk has the CLR walk, once no garbage collection is in the way.
func (o *oracle) walk() (*agent.Walk, error) {
	for range maxPostponedAtATime {
		o.since = time.Now() // not later than the suspension begins
		w, err := o.conn.Walk(hold)
		switch {
		case err != nil:
			return nil, err
		case w.Truncated:
			return nil, errors.New("the agent's buffers are too small")
		case w.Result == 0:
			return w, nil
		case clrsnap.HRESULT(w.Result) != suspensionProgress:
			return nil, fmt.Errorf("the runtime cannot be suspended: %w", clrsnap.HRESULT(w.Result))
		}
		o.postponed++
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("the runtime is always being suspended by somebody else")
}

// thread compares one thread. If its two walks differ, both are done again, until
// they are equal.
//
// A thread in native code goes on while the runtime is suspended, up to its return
// to managed code, where the thread switches to cooperative mode before it checks
// for the suspension (DisablePreemptiveGC in threads.h). So the thread may have
// moved between the two walks, or be in a mode in which CoreCLR does not walk the
// thread. The test accepts such a case only with visible proof: the last pair is
// equal, and since the first pair either the CLR's own answer has changed, or the
// thread's mode or Frames have.
func (o *oracle) thread(t *agent.Thread) error {
	first, err := o.pair(t)
	if err != nil || first.What == "" {
		return err
	}
	last := first
	for n := 0; n < 20 && last.What != ""; n++ {
		time.Sleep(time.Millisecond)
		if last, err = o.pairAgain(t.ID); err != nil {
			return err
		}
	}
	if last.What == "" && (last.State != first.State || !reflect.DeepEqual(last.CLR, first.CLR)) {
		o.moved[first.What]++
	} else {
		o.differs(first, last)
	}
	return nil
}

// pairAgain has the CLR walk the threads of the suspended runtime once more.
func (o *oracle) pairAgain(id uint64) (*Difference, error) {
	w, err := o.conn.Walk(hold)
	if err != nil {
		return nil, err
	}
	if w.Suspending != 0 {
		return nil, errLost // the walk had a new suspension
	}
	i := slices.IndexFunc(w.Threads, func(t agent.Thread) bool { return t.ID == id })
	if w.Result != 0 || i < 0 {
		return nil, fmt.Errorf("thread %#x is not there any more: %v", id, clrsnap.HRESULT(w.Result))
	}
	return o.pair(&w.Threads[i])
}

// pair compares a walk of the CLR with our walk.
func (o *oracle) pair(t *agent.Thread) (*Difference, error) {
	s, err := o.Suspend(clrsnap.ThreadID(t.ID))
	if err != nil {
		return nil, fmt.Errorf("thread %d (%s), which the CLR has walked (HRESULT 0x%08x): %w",
			t.OSID, o.blocked[t.OSID], t.Result, err)
	}
	defer s.Release()
	d := &Difference{Name: s.Thread().Name, CLR: t}
	d.Kinds, d.State = livetest.Chain(s)
	d.Preemptive = livetest.Preemptive(s)
	if scenario := o.blocked[t.OSID]; scenario != "" {
		d.Name = scenario
	}
	d.Ours, d.Err = livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil)
	if time.Since(o.since) >= hold {
		return nil, errLost
	}
	before := o.Frames
	o.Compare(d)
	if o.Deepest = max(o.Deepest, len(d.Ours)); o.blocked[t.OSID] != "" {
		o.ofBlocked += o.Frames - before
	}
	if d.What != "" {
		walk := livetest.Walk(s)
		d.Stack = livetest.Text(walk.Frames)
	}
	return d, nil
}
