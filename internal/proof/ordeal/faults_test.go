package ordeal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/testenv/layer"
)

// TestOrdealFaults: faults of the processor, by the hundred thousand, on four
// threads; the runtime makes an exception of each fault. The program checks the
// results of its computations between the faults, and not one notification is
// missing.
func TestOrdealFaults(t *testing.T) {
	layer.Quiet(t)
	const (
		threads, inRound = 4, 1000 // testdata/apps/ordeal/Faults.cs
		least            = 150_000
	)
	for _, way := range ordealWays {
		t.Run(way.name, func(t *testing.T) {
			o := way.begin(t, ordealRun{
				app: "ordeal", args: []string{"--mode", "faults"},
				events: events.Options{Monitor: events.MonitorExceptions, RingBytes: 64 << 20},
			})
			f := newFaults(o)
			taken := map[events.Event]int{}
			use := func(n *events.Notification) bool {
				taken[n.Event]++
				f.notified(n)
				return taken[events.ExceptionThrown] < least
			}
			o.take(t, use)
			o.endsNotifying(t, func(n *events.Notification) { use(n) })
			thrown := taken[events.ExceptionThrown]
			t.Logf("%d rounds; taken %v\n%s", o.rounds("faults"), taken, stats(o.sub))
			everyCount(t, o.sub, taken)
			if all := inRound * o.rounds("faults"); thrown > all || !o.attach && thrown != all {
				t.Errorf("%d exceptions, and %d were thrown", thrown, all)
			}
			// Exceptions thrown before the agent came are caught afterwards.
			caught := taken[events.ExceptionCatcherEnter]
			if caught < thrown || caught > thrown+threads || !o.attach && caught != thrown {
				t.Errorf("%d exceptions, and %d were caught", thrown, caught)
			}
			f.report(t, threads, inRound)
			o.close(t)
		})
	}
}

// faults are the exceptions of each thread, in a known order.
type faults struct {
	p       *clrsnap.Process
	zero    map[int][]bool // by thread: of each exception, whether it is a division by zero
	methods map[clrsnap.FunctionID]string
	wrong   map[string]int
}

func newFaults(o *ordeal) *faults {
	return &faults{
		p: o.sub.Process(), zero: map[int][]bool{},
		methods: map[clrsnap.FunctionID]string{}, wrong: map[string]int{},
	}
}

func (f *faults) notified(n *events.Notification) {
	if n.Event != events.ExceptionThrown {
		return
	}
	class, leaf := n.ClassName, f.leaf(n)
	switch class + " in " + leaf {
	case "System.DivideByZeroException in Ordeal.Faults.Divide",
		"System.NullReferenceException in Ordeal.Faults.Dereference":
	default:
		f.wrong[class+" in "+leaf]++
	}
	f.zero[n.NSThreadID] = append(f.zero[n.NSThreadID], class == "System.DivideByZeroException")
}

// leaf is the throwing method.
func (f *faults) leaf(n *events.Notification) string {
	var leaf clrsnap.FunctionID
	stop := errors.New("the leaf is enough")
	first := func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
		leaf = id
		return stop
	}
	err := n.DoStackSnapshot(first, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
	if !errors.Is(err, stop) {
		return fmt.Sprint(err)
	}
	name, ok := f.methods[leaf]
	if !ok {
		if n, err := f.p.FunctionName(leaf); err == nil {
			name = n.Exact
		}
		f.methods[leaf] = name
	}
	return name
}

// report requires the program's order, from the end of a round back to the first
// reported exception: a division by zero, two null references, and so on, so many
// in a round.
func (f *faults) report(t *testing.T, threads, inRound int) {
	t.Helper()
	for what, n := range f.wrong {
		t.Errorf("%d times %s", n, what)
	}
	if len(f.zero) != threads {
		t.Errorf("faults on %d threads instead of %d", len(f.zero), threads)
	}
	for tid, zero := range f.zero {
		for k := range zero {
			at := inRound - 1 - k%inRound
			if i := len(zero) - 1 - k; zero[i] != (at%3 == 0) {
				t.Errorf("thread %d: exception %d of %d is not the one that the program has thrown there: "+
					"some are missing",
					tid, i, len(zero))
				break
			}
		}
	}
}

// TestOrdealCollections: collections all the time, of every kind, while four threads
// allocate objects that must survive the collections, and the test subscribes to
// every allocation: more than any reader could take.
func TestOrdealCollections(t *testing.T) {
	layer.Quiet(t)
	lasts := time.Duration(layer.Size(2, 10)) * time.Second
	for _, server := range []string{"0", "1"} {
		for _, way := range ordealWays {
			t.Run("server "+server+" "+way.name, func(t *testing.T) {
				ordealCollections(t, way.begin, server, false, lasts)
			})
		}
		t.Run("server "+server+" every object", func(t *testing.T) {
			ordealCollections(t, startOrdeal, server, true, lasts)
		})
	}
}

func ordealCollections(t *testing.T, begin func(*testing.T, ordealRun) *ordeal, server string, everyObject bool,
	lasts time.Duration) {
	o := begin(t, ordealRun{
		app: "ordeal", args: []string{"--mode", "gcstress"}, env: []string{"DOTNET_gcServer=" + server},
		events: events.Options{
			Monitor: events.MonitorAll, AllocationBytes: 1, EveryObject: everyObject, RingBytes: 8 << 20,
		},
	})
	c := collections{
		p: o.sub.Process(), classes: map[clrsnap.ClassID]string{}, taken: map[events.Event]int{},
		wrong: map[string]int{},
	}
	o.takeFor(t, lasts, c.notified)
	c.ending = true
	o.endsNotifying(t, c.notified)
	t.Logf("%d rounds\n%s", o.rounds("gcstress"), stats(o.sub))
	everyCount(t, o.sub, c.taken)
	c.report(t, o.sub)
	const inRound = 500 // nodes of a list (testdata/apps/ordeal/Garbage.cs)
	dropped, made := int(o.sub.Stats(events.ObjectAllocated).Dropped), inRound*o.rounds("gcstress")
	if everyObject && (c.nodes > made || c.nodes+dropped < made) {
		t.Errorf("%d nodes of lists, and %d were made; %d objects were dropped", c.nodes, made, dropped)
	}
	o.close(t)
}

// collections counts the notifications.
type collections struct {
	p       *clrsnap.Process
	classes map[clrsnap.ClassID]string // of objects
	taken   map[events.Event]int
	nodes   int  // objects of the program's lists
	ending  bool // the program is ending: no further class can be looked up
	wrong   map[string]int
}

func (c *collections) notified(n *events.Notification) {
	c.taken[n.Event]++
	if n.Event != events.ObjectAllocated {
		return
	}
	if _, known := c.classes[n.Class]; !known && !c.ending {
		name, err := c.p.ClassName(n.Class)
		if err != nil {
			name.Display = err.Error()
			c.wrong[err.Error()]++
		}
		c.classes[n.Class] = name.Display
	}
	if c.classes[n.Class] == "Ordeal.Garbage+Node" {
		c.nodes++
	}
	if n.Size < 24 || n.Objects < 1 || n.Bytes < float64(n.Size) {
		c.wrong[fmt.Sprintf("a %s of %d bytes, which stands for %.1f objects of %.1f bytes",
			c.classes[n.Class], n.Size, n.Objects, n.Bytes)]++
	}
}

// report requires that every missing notification is counted, that each begun
// phase ends, and that objects have the program's classes.
func (c *collections) report(t *testing.T, sub *events.Subscription) {
	t.Helper()
	for what, n := range c.wrong {
		t.Errorf("%d times %s", n, what)
	}
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		s := sub.Stats(e)
		if e != events.ExceptionCatcherEnter && s.Published+s.Dropped != s.Seen {
			t.Errorf("%v: %+v", e, s)
		}
	}
	// The subscription, or the program, may begin or end in between: of most pairs in
	// one, but there may be a collection in the background and another collection
	// meanwhile.
	for _, x := range []struct {
		begin, end events.Event
		between    uint64
	}{
		{events.GarbageCollectionStarted, events.GarbageCollectionFinished, 2},
		{events.RuntimeSuspendStarted, events.RuntimeSuspendFinished, 1},
		{events.RuntimeSuspendFinished, events.RuntimeResumeFinished, 1},
	} {
		if a, b := sub.Stats(x.begin).Seen, sub.Stats(x.end).Seen; a == 0 || a > b+x.between || b > a+x.between {
			t.Errorf("%v %d times, %v %d times", x.begin, a, x.end, b)
		}
	}
	if c.nodes == 0 {
		t.Errorf("of the program's lists nothing is reported, but %v", slices.Collect(maps.Values(c.classes)))
	}
}
