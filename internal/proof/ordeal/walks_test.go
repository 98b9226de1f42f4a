package ordeal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/agent"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/oracle"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestOrdealWalks holds two walks of a held thread against each other: the CLR's
// walk inside a notification, and the walk from outside. The test compares the
// walks for each event with a stack.
func TestOrdealWalks(t *testing.T) {
	layer.Quiet(t)
	for _, way := range ordealWays {
		t.Run(way.name, func(t *testing.T) {
			o := way.begin(t, ordealRun{
				app:  "events",
				args: []string{"--max-seconds", "600"},
				opts: clrsnap.Options{Mode: clrsnap.AsCoreCLR, MaxPause: time.Second},
				events: events.Options{
					Monitor: events.MonitorAll, AllocationBytes: 2 << 20, RegisterContext: true, Hold: 10 * time.Second,
					RingBytes: 8 << 20,
				},
			})
			c := newWalkComparison(o)
			per := layer.Size(20, 300)
			c.compareHeld(t, func() bool { return !c.each(per) })
			c.report(t)
			o.close(t)
			o.endsWell(t)
		})
	}
}

// stackEvents are the events with a stack.
var stackEvents = []events.Event{
	events.ObjectAllocated, events.ExceptionThrown, events.LockContended, events.ThreadStarting,
	events.GarbageCollectionTriggered,
}

// walkComparison compares the walks of held threads, and counts.
type walkComparison struct {
	*oracle.Comparison
	o           *ordeal
	held        map[events.Event]int // compared, with frames
	none        int                  // compared, without frames
	others      int                  // not held, because another thread was held
	cooperative int                  // walks without a seed in cooperative mode
	documented  int                  // frames of the documented walk
	snapshots   int                  // frames of snapshots
	collections uint64               // begun when the last thread was released
	explained   map[string]int
	wrong       []string
}

func newWalkComparison(o *ordeal) *walkComparison {
	return &walkComparison{
		Comparison: oracle.New(o.sub.Process()), o: o,
		held: map[events.Event]int{}, explained: map[string]int{},
	}
}

// each reports whether every event has been compared so often.
func (c *walkComparison) each(times int) bool {
	return !slices.ContainsFunc(stackEvents, func(e events.Event) bool { return c.held[e] < times })
}

// compareHeld compares threads held in notifications, as long as more returns true.
func (c *walkComparison) compareHeld(t *testing.T, more func() bool) {
	t.Helper()
	c.o.take(t, func(n *events.Notification) bool {
		if !n.Held {
			c.others++
			return true
		}
		if err := c.compareOne(n); err != nil {
			c.wrong = append(c.wrong, fmt.Sprintf("%v on thread %d: %v", n.Event, n.NSThreadID, err))
		}
		c.collections = c.o.sub.Stats(events.GarbageCollectionStarted).Seen
		c.o.sub.Release(n)
		return more() && len(c.wrong)+len(c.Unknown) < oracle.MaxUnknown
	})
}

// compareOne compares the CLR's frames of a held thread with the walks from
// outside: with and without a seed, in both modes, and Snapshot's.
func (c *walkComparison) compareOne(n *events.Notification) error {
	clr, err := notified(n)
	if err != nil {
		return err
	}
	if len(clr.Frames) > 0 {
		c.held[n.Event]++
	} else {
		c.none++
	}
	s, err := c.Suspend(n.Thread)
	if err != nil {
		return err
	}
	defer s.Release()
	seed, err := s.Seed()
	if err != nil {
		return fmt.Errorf("no seed: %w", err)
	}
	livetest.SetMode(c.Process, clrsnap.AsCoreCLR)
	unseeded := c.pairOf(n, s, clr, nil)
	c.judge(s, unseeded)
	if seed != nil {
		d := c.pairOf(n, s, clr, seed)
		c.begun(d, seed, unseeded)
		c.judge(s, d)
	}
	livetest.SetMode(c.Process, clrsnap.AsDocumented)
	documented, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, seed)
	if err != nil && (seed != nil || hresult(err) != clrsnap.S_FALSE) {
		return fmt.Errorf("as documented: %w", err)
	}
	whole := livetest.Walk(s)
	err = errors.Join(c.compareDocumented(clr, documented, whole.Frames), c.compareSnapshot(clr, &whole))
	if err != nil {
		return fmt.Errorf("%w\n%s\nthe whole stack:\n%s", err,
			c.SideBySide(&oracle.Difference{CLR: clr, Ours: documented}), livetest.Text(whole.Frames))
	}
	return nil
}

// pairOf is the CLR's walk beside our walk as CoreCLR, with or without a seed.
func (c *walkComparison) pairOf(n *events.Notification, s *clrsnap.Suspension, clr *agent.Thread,
	seed *clrsnap.Context) *oracle.Difference {
	d := &oracle.Difference{Name: n.Event.String(), CLR: clr}
	d.Kinds, d.State = livetest.Chain(s)
	d.Ours, d.Err = livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, seed)
	if seed == nil && hresult(d.Err) == clrsnap.S_FALSE && !livetest.Preemptive(s) {
		d.Err = nil // S_FALSE is the answer for a thread in cooperative mode
		c.cooperative++
	}
	return d
}

// begun allows for different starts of the walks. The CLR's walk begins at the
// newest Frame; if this Frame is a P/Invoke's, its ip is not the seed's return
// address, and registers that the Frame does not save have no meaning
// (docs/correctness.md, Oracle 1): only the registers known to the walk without a
// seed can be compared.
func (c *walkComparison) begun(d *oracle.Difference, seed *clrsnap.Context, unseeded *oracle.Difference) {
	if len(d.Kinds) == 0 || d.Kinds[0] != "InlinedCallFrame" || len(d.Ours) != len(unseeded.Ours) {
		return
	}
	for i := range d.Ours {
		d.Ours[i].Context.Valid &= unseeded.Ours[i].Context.Valid
	}
	sp, _ := seed.Reg(oracle.RSP)
	frames := d.CLR.Frames
	if len(frames) > 0 && frames[0].SP == sp && frames[0].IP != uint64(seed.IP) && d.Ours[0].IP == uint64(seed.IP) {
		c.explained["ip of a method in a P/Invoke, that of the seed"]++
		clr := *d.CLR
		clr.Frames = slices.Clone(frames)
		clr.Frames[0].IP, clr.Frames[0].ContextIP = uint64(seed.IP), uint64(seed.IP)
		d.CLR = &clr
	}
}

// allowMoved allows for objects moved since the notification: a thread held in
// preemptive mode does not keep a collection from moving objects. Where a frame has
// saved a reference, our walk has the new reference. A register with a moved reference
// is not compared.
func (c *walkComparison) allowMoved(s *clrsnap.Suspension, d *oracle.Difference) {
	if !livetest.Preemptive(s) || c.o.sub.Stats(events.GarbageCollectionStarted).Seen == c.collections {
		return
	}
	for i := range min(len(d.Ours), len(d.CLR.Frames)) {
		for _, r := range oracle.NonVolatile[1:] { // without the frame pointer
			v, ok := d.Ours[i].Context.Reg(r.Reg)
			if was := r.Of(&d.CLR.Frames[i]); ok && v != was && c.canBeObject(v) && c.canBeObject(was) {
				d.Ours[i].Context.Valid &^= 1 << r.Reg
				c.explained["register with an object that a collection has moved since"]++
			}
		}
	}
}

// canBeObject reports whether an address lies in the target's anonymous memory, which
// includes its heap.
func (c *walkComparison) canBeObject(addr uint64) bool {
	mapped, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.Process.Info().PID))
	if err != nil || addr%8 != 0 {
		return false
	}
	for line := range strings.Lines(string(mapped)) {
		var start, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err == nil && start <= addr && addr < end {
			return len(strings.Fields(line)) == 5 // there is no file
		}
	}
	return false
}

// judge compares the two walks, and keeps different walks.
func (c *walkComparison) judge(s *clrsnap.Suspension, d *oracle.Difference) {
	c.Deepest = max(c.Deepest, len(d.Ours))
	c.allowMoved(s, d)
	if c.Compare(d); d.What != "" {
		whole := livetest.Walk(s)
		d.Stack = livetest.Text(whole.Frames)
		c.Unknown = append(c.Unknown, d)
	}
}

func hresult(err error) clrsnap.HRESULT {
	var e *clrsnap.Error
	if err == nil || !errors.As(err, &e) {
		return clrsnap.S_OK
	}
	return e.HRESULT
}

// notified has the frames of the CLR's own walk.
func notified(n *events.Notification) (*agent.Thread, error) {
	clr := &agent.Thread{ID: uint64(n.Thread), OSID: uint32(n.NSThreadID)}
	add := func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, ctx *clrsnap.Context, _ any) error {
		clr.Frames = append(clr.Frames, agent.Frame{
			Function: uint64(id), IP: ip, ContextIP: uint64(ctx.IP), SP: ctx.Regs[oracle.RSP],
			RBP: ctx.Regs[5], RBX: ctx.Regs[3], R12: ctx.Regs[12], R13: ctx.Regs[13],
			R14: ctx.Regs[14], R15: ctx.Regs[15],
		})
		return nil
	}
	err := n.DoStackSnapshot(add, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil)
	clr.Result = uint32(hresult(err))
	var e *clrsnap.Error
	if err != nil && !errors.As(err, &e) {
		return nil, err
	}
	return clr, nil
}

// compareDocumented compares the CLR's walk with the documented walk. The
// documented walk differs in two ways only (docs/correctness.md, Oracle 1): it
// also reports the runs of unmanaged frames next to the exception machinery, and
// for a method in a P/Invoke it has the true return address.
func (c *walkComparison) compareDocumented(clr *agent.Thread, documented []livetest.Call,
	whole []snapshot.Frame) error {
	theirs := clr.Frames
	for i := range documented {
		d := &documented[i]
		sp, _ := d.Context.Reg(oracle.RSP)
		if len(theirs) > 0 && theirs[0].Function == uint64(d.ID) && theirs[0].SP == sp {
			if theirs[0].IP != d.IP {
				if !callsNative(whole, d.IP, sp) {
					return fmt.Errorf("as documented, callback %d: ip %#x instead of %#x", i, d.IP, theirs[0].IP)
				}
				c.explained["ip of a method in a P/Invoke"]++
			}
			theirs = theirs[1:]
			c.documented++
			continue
		}
		if d.ID != 0 || !besideMachinery(whole, d.IP, sp) {
			return fmt.Errorf("as documented, callback %d: the CLR does not report it", i)
		}
		c.explained["run of unmanaged frames beside the exception machinery"]++
	}
	if len(theirs) > 0 {
		return fmt.Errorf("as documented, there are %d callbacks less", len(theirs))
	}
	return nil
}

// placeIn finds a frame of a whole walk.
func placeIn(whole []snapshot.Frame, ip, sp uint64) int {
	return slices.IndexFunc(whole, func(f snapshot.Frame) bool { return f.IP == ip && f.SP == sp })
}

// callsNative reports whether the frame at ip is a managed frame that has
// called native code.
func callsNative(whole []snapshot.Frame, ip, sp uint64) bool {
	i := placeIn(whole, ip, sp)
	return i > 0 && whole[i].Kind == snapshot.Managed && whole[i-1].Kind == snapshot.Native
}

// besideMachinery reports whether the exception machinery called, or was called by,
// the run of unmanaged frames that begins at ip.
func besideMachinery(whole []snapshot.Frame, ip, sp uint64) bool {
	i := placeIn(whole, ip, sp)
	if i < 0 {
		return false
	}
	end := i
	for end < len(whole) && (whole[end].Kind == snapshot.Native || whole[end].Tier == "IL stub") {
		end++
	}
	machinery := func(i int) bool {
		return i >= 0 && i < len(whole) && strings.HasPrefix(whole[i].Method, "System.Runtime.EH.")
	}
	return machinery(i-1) || machinery(end)
}

// compareSnapshot compares the CLR's walk with Snapshot. Snapshot also reports methods
// without metadata and the exception machinery, but has all methods of the CLR's walk,
// in the CLR's order.
func (c *walkComparison) compareSnapshot(clr *agent.Thread, s *snapshot.Thread) error {
	if !s.Complete {
		return fmt.Errorf("the snapshot is not complete: %s", s.Error)
	}
	managed := livetest.OfKind(s.Frames, snapshot.Managed)
	for _, f := range clr.Frames {
		if f.Function == 0 {
			continue
		}
		i := slices.IndexFunc(managed, func(m snapshot.Frame) bool { return m.SP == f.SP })
		if i < 0 || managed[i].FunctionID != f.Function {
			return fmt.Errorf("the snapshot lacks %s at %#x", c.Method(clrsnap.FunctionID(f.Function)), f.IP)
		}
		for _, more := range managed[:i] {
			c.more(more)
		}
		managed = managed[i+1:]
		c.snapshots++
	}
	for _, more := range managed {
		c.more(more)
	}
	return nil
}

// more notes a method that only Snapshot reports.
func (c *walkComparison) more(f snapshot.Frame) {
	c.explained["Snapshot alone has "+f.Method]++
}

func (c *walkComparison) report(t *testing.T) {
	t.Helper()
	t.Logf("held and compared: %v, %d without frames; %d others; %d walks without a seed in cooperative mode; "+
		"%d frames as documented, %d of snapshots",
		c.held, c.none, c.others, c.cooperative, c.documented, c.snapshots)
	for _, what := range slices.Sorted(maps.Keys(c.explained)) {
		t.Logf("%d times: %s", c.explained[what], what)
	}
	t.Logf("%d frames equal in %d walks as CoreCLR, %d of them runs; the deepest stack has %d; "+
		"%d methods at %d addresses; Frames met: %s",
		c.Frames, c.Walks, c.Runs, c.Deepest, len(c.Methods), len(c.Places), oracle.Counts(c.Kinds))
	t.Logf("registers equal, besides ip and sp: %s; not known: %s; results: %s; %d stops were called off",
		oracle.Counts(c.Registers), oracle.Counts(c.UnknownRegisters), oracle.Counts(c.Results), c.Late)
	for _, w := range c.wrong {
		t.Error(w)
	}
	for _, d := range c.Unknown {
		t.Errorf("thread %d in %s: %s\n%s\n%s\nthe whole stack:\n%s", d.CLR.OSID, d.Name, d.What, d.State,
			c.SideBySide(d), d.Stack)
	}
}
