package agent_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/session"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

const everything = agent.Allocations | agent.Exceptions | agent.Contention | agent.Threads | agent.GC | agent.Waits

// ways are the ways of an agent into a program.
var ways = []struct {
	name     string
	attached bool
}{{"started", false}, {"attached", true}}

var runtimes = testenv.Versions()

// eachWay runs f for each runtime and each way.
func eachWay(t *testing.T, f func(t *testing.T, runtime string, attached bool)) {
	t.Helper()
	testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
		for _, w := range ways {
			t.Run(w.name, func(t *testing.T) { f(t, runtime, w.attached) })
		}
	})
}

// subscriber is a program that follows commands, and the agent inside.
type subscriber struct {
	*testenv.App
	c     *agent.Conn
	begun agent.BeginResult
	ids   map[string]uint64 // of methods and types: FunctionIDs and ClassIDs
	names map[uint64]string
	tid   uint32     // of the thread that follows commands
	taken [16]uint64 // records so far, by type
}

func subscribe(t *testing.T, lib, runtime string, attached bool, s agent.Subscription) *subscriber {
	t.Helper()
	l := listen(t)
	o := testenv.Options{Runtime: runtime}
	sub := &subscriber{ids: map[string]uint64{}, names: map[uint64]string{}}
	if attached {
		sub.App = testenv.Start(t, "notify", o)
		sub.begin(t, l, func() (*agent.Conn, error) { return l.Attach(sub.PID, lib) }, s)
	} else {
		o.Env = l.Environment(lib)
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			sub.begin(t, l, func() (*agent.Conn, error) { return l.Accept(time.Minute) }, s)
		}()
		sub.App = testenv.Start(t, "notify", o)
		<-begun
	}
	if t.Failed() {
		t.FailNow()
	}
	sub.learn(t)
	return sub
}

func (sub *subscriber) begin(
	t *testing.T, l *agent.Listener, connect func() (*agent.Conn, error), s agent.Subscription,
) {
	c, err := connect()
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { c.Close() })
	if sub.begun, err = c.Begin(s); err != nil {
		t.Error(err)
	}
	sub.c = c
}

// learn asks the program for the ids of its methods and types.
func (sub *subscriber) learn(t *testing.T) {
	t.Helper()
	for _, line := range sub.Ask("ids") {
		name, text, _ := strings.Cut(line, " ")
		id, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		sub.ids[name], sub.names[id] = id, name
	}
	sub.tid = uint32(sub.number(t, "tid"))
}

func (sub *subscriber) number(t *testing.T, command string) int {
	t.Helper()
	answer := sub.Ask(command)
	if len(answer) != 1 {
		t.Fatalf("%s: %q", command, answer)
	}
	n, err := strconv.Atoi(answer[0])
	if err != nil {
		t.Fatalf("%s: %q", command, answer)
	}
	return n
}

// drain takes the available records.
func (sub *subscriber) drain(t *testing.T) []*agent.Record {
	t.Helper()
	var all []*agent.Record
	if err := sub.c.Drain(func(r *agent.Record) error {
		all = append(all, r)
		sub.taken[r.Type]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// await takes records until a wanted record.
func (sub *subscriber) await(t *testing.T, wanted func(*agent.Record) bool) *agent.Record {
	t.Helper()
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all := sub.drain(t)
		if i := slices.IndexFunc(all, wanted); i >= 0 {
			return all[i]
		}
	}
	t.Fatalf("the record does not come; counts %+v", sub.c.Stats())
	return nil
}

// mine takes the available records of types, from the thread that follows commands.
func (sub *subscriber) mine(t *testing.T, types ...agent.EventType) []*agent.Record {
	t.Helper()
	return slices.DeleteFunc(sub.drain(t),
		func(r *agent.Record) bool { return r.OSID != sub.tid || !slices.Contains(types, r.Type) })
}

// stack is the part of a stack with names known to the program.
func (sub *subscriber) stack(r *agent.Record) string {
	var names []string
	for _, f := range r.Frames {
		if name := sub.names[f.Function]; name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// caller is the method around every request.
const caller = "Program.Answer"

func (sub *subscriber) wantStack(t *testing.T, r *agent.Record, want string) {
	t.Helper()
	if got := sub.stack(r); !strings.HasPrefix(got, want+" ") || !strings.HasSuffix(got, caller) || r.Result != 0 ||
		r.Truncated {
		t.Errorf("%v: result %#x, cut %v, stack %s, expected %s … %s", r.Type, r.Result, r.Truncated, got, want, caller)
	}
	for _, f := range r.Frames {
		if f.IP == 0 {
			t.Errorf("%v: frame %+v", r.Type, f)
		}
		if r.Registers && f.Function != 0 && (f.ContextIP == 0 || f.SP == 0) {
			t.Errorf("%v: a frame without registers: %+v", r.Type, f)
		}
	}
}

func (sub *subscriber) end(t *testing.T) {
	t.Helper()
	if err := sub.c.Detach(); err != nil {
		t.Error(err)
	}
	endsWell(t, sub.App)
	if s := sub.Stderr(); s != "" {
		t.Errorf("the program's stderr: %s", s)
	}
}

// TestEvents: every type of event comes with its details.
func TestEvents(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	eachWay(t, func(t *testing.T, runtime string, attached bool) {
		sub := subscribe(t, lib, runtime, attached, agent.Subscription{Events: everything, Registers: true})
		want := agent.BeginResult{Events: everything, AllocMeans: agent.AllocSampled, RuntimeMajor: 10}
		switch runtime {
		case "net11":
			want.RuntimeMajor = 11
		case "net9":
			want.AllocMeans, want.RuntimeMajor = agent.AllocTick, 9
		case "net8":
			want.AllocMeans, want.RuntimeMajor = agent.AllocTick, 8
			want.Events &^= agent.Waits
		}
		if sub.begun != want {
			t.Errorf("begun %+v, expected %+v", sub.begun, want)
		}
		t.Run("collections", sub.testCollections) // before anything else needs collecting
		t.Run("allocations", sub.testAllocations)
		t.Run("exceptions", sub.testExceptions)
		t.Run("contention", sub.testContention)
		t.Run("waits", sub.testWaits)
		t.Run("threads", sub.testThreads)
		for kind, c := range sub.c.Stats() {
			if c.Seen < c.Published+c.Dropped || c.Dropped != 0 {
				t.Errorf("%v: %+v", agent.EventType(kind), c)
			}
		}
		sub.end(t)
	})
}

const boxSize = 40 // bytes

func (sub *subscriber) testAllocations(t *testing.T) {
	for _, tt := range []struct{ command, maker, class string }{
		{"allocate", "Allocations.MakeBox Allocations.Small", "Box"},
		{"large", "Allocations.MakeArray Allocations.Large", ""},
	} {
		sub.drain(t)
		bytes := sub.number(t, tt.command)
		records := slices.DeleteFunc(sub.mine(t, agent.EventAlloc), func(r *agent.Record) bool {
			return !strings.HasPrefix(sub.stack(r), tt.maker+" ") // allocations by the question itself
		})
		for _, r := range records {
			sub.wantStack(t, r, tt.maker)
			if tt.class != "" && (r.Values[0] != sub.ids[tt.class] || r.Values[1] != boxSize) {
				t.Errorf("%s: values %#x, ClassID %#x", tt.command, r.Values, sub.ids[tt.class])
			}
			if tick := r.Values[2]; (sub.begun.AllocMeans == agent.AllocTick) != (tick >= 100<<10) {
				t.Errorf("%s: a tick of %d bytes", tt.command, tick)
			}
		}
		checkCount(t, tt.command, len(records), float64(min(bytes/(100<<10), bytes/boxSize)), tt.command == "large")
	}
}

// checkCount requires the expected number of samples for the allocated bytes; one sample for each
// large object.
func checkCount(t *testing.T, what string, got int, want float64, large bool) {
	t.Helper()
	slack := 6 * math.Sqrt(want)
	if large {
		want, slack = 100, 5
	}
	if math.Abs(float64(got)-want) > slack {
		t.Errorf("%s: %d records, expected %.0f ± %.0f", what, got, want, slack)
	}
}

func (sub *subscriber) testExceptions(t *testing.T) {
	thrown := []string{
		"Notify.Outer: Exceptions.ThrowOuter Exceptions.Through Exceptions.Throw Program.Answer",
		"Notify.InFilter, nested: Exceptions.ThrowInFilter Exceptions.Filter " +
			"Exceptions.Through Exceptions.ThrowOuter Exceptions.Through Exceptions.Throw Program.Answer",
		"caught by Exceptions.Filter",
		"Notify.Swallowed, nested: Exceptions.Filter " +
			"Exceptions.Through Exceptions.ThrowOuter Exceptions.Through Exceptions.Throw Program.Answer",
		"caught by ", // nobody: the filter swallows the exception
		"Notify.InFinally, nested: Exceptions.ThrowInFinally Exceptions.Finally " +
			"Exceptions.Through Exceptions.Throw Program.Answer",
		"caught by Exceptions.Finally",
		"caught by Exceptions.Throw",
	}
	if sub.begun.RuntimeMajor == 8 { // .NET 8 does not report that a filter has ended by an exception
		thrown = slices.DeleteFunc(thrown, func(s string) bool { return s == "caught by " })
	}
	sub.wantExceptions(t, "throw", thrown...)
	sub.wantExceptions(t, "rethrow",
		"Notify.Outer: Exceptions.ThrowOuter Exceptions.RethrowInFinally Program.Answer",
		"Notify.InFinally, nested: Exceptions.ThrowInFinally "+
			"Exceptions.ThrowAgain Exceptions.Rethrow Exceptions.RethrowInFinally Program.Answer",
		"caught by Exceptions.ThrowAgain",
		"caught again by Exceptions.Rethrow",
		"caught by Exceptions.RethrowInFinally")
}

func (sub *subscriber) wantExceptions(t *testing.T, command string, want ...string) {
	t.Helper()
	sub.drain(t)
	sub.Ask(command)
	var got []string
	for _, r := range sub.mine(t, agent.EventException, agent.EventCaught) {
		if r.Type == agent.EventCaught {
			again := ""
			if r.Values[2] != 0 {
				again = "again "
			}
			got = append(got, "caught "+again+"by "+sub.names[r.Values[0]])
			continue
		}
		what := r.Name
		if r.Values[2]&agent.ExceptionNested != 0 {
			what += ", nested"
		}
		got = append(got, what+": "+sub.stack(r))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nexpected\n%s", command, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// testWaits: a wait for a lock is a wait, too, and names the class of the lock's object.
func (sub *subscriber) testWaits(t *testing.T) {
	for command, waiter := range map[string]string{"contend-monitor": "Contention.WaitForMonitor",
		"contend-lock": "Contention.WaitForLock"} {
		sub.mine(t, agent.EventWaited)
		sub.Ask(command)
		records := slices.DeleteFunc(sub.mine(t, agent.EventWaited), func(r *agent.Record) bool {
			return !strings.HasPrefix(sub.stack(r), waiter+" ")
		})
		if sub.begun.Events&agent.Waits == 0 {
			if len(records) > 0 {
				t.Errorf("%s: .NET %d reports %d waits", command, sub.begun.RuntimeMajor, len(records))
			}
			continue
		}
		if len(records) == 0 {
			t.Errorf("%s: no wait", command)
		}
		for _, r := range records {
			if r.Values[0] == 0 || r.Values[0] > uint64(time.Minute) ||
				agent.WaitSource(r.Values[1]) != agent.WaitLock || r.Values[2] == 0 {
				t.Errorf("%s: %+v", command, r)
			}
		}
	}
}

// tellOwners tells the agent the form of locks' owners, like package link.
func (sub *subscriber) tellOwners(t *testing.T) {
	t.Helper()
	p, err := session.Open(context.Background(), sub.PID, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	owners := agent.Owners{Form: agent.OwnerOSID}
	if by, ok := p.Runtime.Threads.ByID(); p.Runtime.Locks.Managed() {
		if !ok {
			t.Fatal("threads cannot be found by their managed ids")
		}
		owners = agent.Owners{Form: agent.OwnerManagedID, Dispenser: uint64(by.Dispenser), Threads: by.Threads,
			ID: by.ID, OSID: by.OSID}
	}
	sub.c.SetOwners(owners)
}

// testContention: each wait for a lock has its owner, once the agent knows the form of owners.
func (sub *subscriber) testContention(t *testing.T) {
	sub.contend(t, false)
	sub.tellOwners(t)
	sub.contend(t, true)
}

func (sub *subscriber) contend(t *testing.T, told bool) {
	for command, waiter := range map[string]string{"contend-monitor": "Contention.WaitForMonitor",
		"contend-lock": "Contention.WaitForLock"} {
		sub.drain(t)
		owner := sub.number(t, command)
		if !told {
			owner = 0
		}
		records := slices.DeleteFunc(sub.mine(t, agent.EventContention), func(r *agent.Record) bool {
			return !strings.HasPrefix(sub.stack(r), waiter+" ")
		})
		if len(records) != 1 {
			t.Errorf("%s: %d records", command, len(records))
			continue
		}
		r := records[0]
		sub.wantStack(t, r, waiter)
		if r.Values[0] == 0 || r.Values[1] != uint64(owner) || r.Values[2] == 0 || r.Values[2] > uint64(time.Minute) {
			t.Errorf("%s: values %#x, the owner is %#x", command, r.Values, owner)
		}
	}
}

func (sub *subscriber) testThreads(t *testing.T) {
	sub.drain(t)
	other := uint32(sub.number(t, "thread"))
	records := sub.drain(t)
	var starting, created, ended *agent.Record
	for _, r := range records {
		switch {
		case r.Type == agent.EventThreadStarting && r.OSID == sub.tid:
			starting = r
		case r.Type == agent.EventThreadCreated && r.OSID == other:
			created = r
		case r.Type == agent.EventThreadEnded && created != nil && r.Values[0] == created.Values[0]:
			ended = r
		}
	}
	if starting == nil || created == nil {
		t.Fatalf("%d records, starting %+v, created %+v", len(records), starting, created)
	}
	sub.wantStack(t, starting, "Threads.Start Threads.One")
	if created.Values[0] != starting.Values[0] || created.Values[1] != uint64(other) ||
		created.Thread != created.Values[0] {
		t.Errorf("starting %#x, created %#x on %#x", starting.Values, created.Values, created.Thread)
	}
	if ended == nil {
		ended = sub.await(t, func(r *agent.Record) bool {
			return r.Type == agent.EventThreadEnded && r.Values[0] == created.Values[0]
		})
	}
	if len(ended.Frames) != 0 {
		t.Errorf("ended: %+v", ended)
	}
}

func (sub *subscriber) testCollections(t *testing.T) {
	sub.drain(t)
	sub.Ask("collect")
	var got []string
	for _, r := range sub.drain(t) {
		switch r.Type {
		case agent.EventGCTriggered:
			sub.wantStack(t, r, "Collections.Induced")
			got = append(got, r.Type.String())
		case agent.EventGCStart, agent.EventGCEnd:
			got = append(got, fmt.Sprintf("%v of generation %d", r.Type, r.Values[1]))
		case agent.EventSuspendBegin, agent.EventSuspendEnd, agent.EventRestartEnd:
			got = append(got, r.Type.String())
		}
	}
	want := []string{"suspend begin", "suspend end", "GC triggered", "GC start of generation 1",
		"GC end of generation 1", "restart end"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}
