package events_test

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

func subscribeTo(t *testing.T, p *clrsnap.Process, o events.Options) *events.Subscription {
	t.Helper()
	s, err := events.Subscribe(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// next returns the next notification of an event.
func next(t *testing.T, s *events.Subscription, e events.Event) *events.Notification {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
	defer cancel()
	for {
		n, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for %v: %v", e, err)
		}
		if n.Event == e {
			return n
		}
	}
}

// methodsOf are the methods of a notification's stack, leaf first.
func methodsOf(t *testing.T, s *events.Subscription, n *events.Notification) []string {
	t.Helper()
	var out []string
	add := func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
		if id != 0 {
			name, err := s.Process().FunctionName(id)
			if err != nil {
				return err
			}
			out = append(out, name.Exact)
		}
		return nil
	}
	if err := n.DoStackSnapshot(add, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil); err != nil {
		t.Errorf("%v: %v", n.Event, err)
	}
	return out
}

// TestSubscribe: every kind of notification comes, with its values and its stack.
func TestSubscribe(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--max-seconds", "300"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := subscribeTo(t, p, events.Options{Monitor: events.MonitorAll})

	has := func(n *events.Notification, method string) {
		t.Helper()
		got := methodsOf(t, s, n)
		if !slices.ContainsFunc(got, func(m string) bool { return strings.HasPrefix(m, method) }) {
			t.Errorf("%v: %s is not on the stack %v", n.Event, method, got)
		}
		if n.Thread == 0 || n.NSThreadID == 0 || n.At <= 0 {
			t.Errorf("%v on thread %v (%d) at %v", n.Event, n.Thread, n.NSThreadID, n.At)
		}
	}
	class := func(n *events.Notification) string {
		t.Helper()
		name, err := p.ClassName(n.Class)
		if err != nil {
			t.Error(err)
		}
		return name.Display
	}
	n := next(t, s, events.ObjectAllocated)
	for !strings.HasPrefix(class(n), "Events.") {
		n = next(t, s, events.ObjectAllocated)
	}
	has(n, "Events.Allocate.")
	if n.Size < 24 || n.Bytes < 512<<10 || n.Objects != n.Bytes/float64(n.Size) {
		t.Errorf("%s of %d bytes stands for %.0f bytes and %.0f objects", class(n), n.Size, n.Bytes, n.Objects)
	}
	n = next(t, s, events.ExceptionThrown)
	has(n, "Events.Throw.")
	if n.Count != 1 || !strings.HasPrefix(n.ClassName, "System.") && n.ClassName != "Marked" {
		t.Errorf("%q, %d", n.ClassName, n.Count)
	}
	if n.Object == 0 || n.Message == "" || n.MessageCut || n.Rethrown {
		t.Errorf("object %#x with the message %q, rethrown %v", n.Object, n.Message, n.Rethrown)
	}
	if own := n.ClassName[strings.LastIndexByte(n.ClassName, '.')+1:]; !strings.HasSuffix(class(n), own) {
		t.Errorf("class %s of %s", class(n), n.ClassName)
	}
	if n = next(t, s, events.ExceptionCatcherEnter); n.Function != 0 {
		if name, err := p.FunctionName(n.Function); err != nil || !strings.HasPrefix(name.Exact, "Events.Throw") {
			t.Errorf("caught by %q: %v", name.Exact, err)
		}
	}
	holders := map[int]bool{}
	for _, name := range []string{"holds-monitor", "holds-lock"} {
		holders[livetest.ThreadNamed(t, p, name).OSThreadID] = true
	}
	n = next(t, s, events.LockContended)
	for n.Waited < 5*time.Millisecond || !holders[n.Owner] {
		n = next(t, s, events.LockContended) // the runtime has locks of its own
	}
	has(n, "Events.Contend.")
	n = next(t, s, events.ThreadStarting)
	has(n, "Events.Starts.")
	born := n.Other
	for n = next(t, s, events.ThreadCreated); n.Other != born; n = next(t, s, events.ThreadCreated) {
	}
	for n = next(t, s, events.ThreadDestroyed); n.Other != born; n = next(t, s, events.ThreadDestroyed) {
	}
	// A background collection has stops of its own, and others come and go during it.
	n = next(t, s, events.RuntimeSuspendStarted)
	for n.Suspension != events.SuspendForGC {
		n = next(t, s, events.RuntimeSuspendStarted)
	}
	began := n.At
	has(next(t, s, events.GarbageCollectionTriggered), "Events.")
	n = next(t, s, events.GarbageCollectionStarted)
	number := n.Collection.Number
	if n.Collection.Generation < 0 || n.Collection.Generation > 2 || number == 0 || n.Collection.Reason.String() == "" {
		t.Errorf("collection %+v", n.Collection)
	}
	n = next(t, s, events.GarbageCollectionFinished)
	for n.Collection.Number != number {
		n = next(t, s, events.GarbageCollectionFinished)
	}
	if n = next(t, s, events.RuntimeResumeFinished); n.At <= began {
		t.Errorf("resumed at %v, suspended at %v", n.At, began)
	}
	for e := events.ObjectAllocated; e <= events.ExceptionRethrown; e++ {
		if st := s.Stats(e); st.Published == 0 || st.Seen < st.Published {
			t.Errorf("%v: %+v", e, st)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Next(context.Background()); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	livetest.EndsWell(t, a)
}

// TestRethrown: a repeated throw of an exception is told from a new exception, and has the same
// object.
func TestRethrown(t *testing.T) {
	const thrown, again, caught = events.ExceptionThrown, events.ExceptionRethrown, events.ExceptionCatcherEnter
	a := testenv.Start(t, "rethrow", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := subscribeTo(t, p, events.Options{Monitor: events.MonitorExceptions})
	for _, x := range []struct {
		way  string
		want []events.Event
		by   string // the method of the last catch
		last bool   // Rethrown of the last catch
	}{
		{"once", []events.Event{thrown, caught}, "Once", false},
		{"dispatch", []events.Event{thrown, caught, again, caught}, "Dispatch", false},
		{"throw-ex", []events.Event{thrown, caught, again, caught}, "ThrowEx", false},
		{"again", []events.Event{thrown, caught, caught, caught}, "Again", true},
		{"async", []events.Event{thrown, caught, again, caught, again, caught, again, caught}, "", false},
	} {
		a.Ask(x.way)
		ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
		defer cancel()
		var got []events.Event
		object := uint64(0)
		for range x.want {
			n, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n.Event)
			if object == 0 {
				object = n.Object
			}
			if n.Object != object || object == 0 {
				t.Errorf("%s: %v of object %#x, not %#x", x.way, n.Event, n.Object, object)
			}
			if n.Event != caught && (n.Class == 0 || n.Message == "") ||
				n.Event == again && len(methodsOf(t, s, n)) == 0 {
				t.Errorf("%s: %v of class %#x with the message %q", x.way, n.Event, n.Class, n.Message)
			}
			if len(got) < len(x.want) {
				continue
			}
			name, err := p.FunctionName(n.Function)
			if !strings.Contains(name.Exact, x.by) || err != nil || n.Rethrown != x.last {
				t.Errorf("%s: caught by %q, rethrown %v: %v", x.way, name.Exact, n.Rethrown, err)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, not %v", x.way, got, x.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = subscribeTo(t, p, events.Options{Monitor: events.MonitorExceptions, NoMessages: true})
	a.Ask("dispatch")
	for _, e := range []events.Event{thrown, again} {
		if n := next(t, s, e); n.Message != "" || n.MessageCut {
			t.Errorf("%v with the message %q, which was not asked for", e, n.Message)
		}
	}
	livetest.EndsWell(t, a)
}

// TestNotificationStack: the synchronous walk has the results of the asynchronous walk.
func TestNotificationStack(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--kinds", "exception,gc", "--max-seconds", "300"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	ignore := func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }

	s := subscribeTo(t, p, events.Options{Monitor: events.MonitorExceptions | events.MonitorGC, MaxFrames: 3})
	n := next(t, s, events.ExceptionThrown)
	for err, want := range map[error]clrsnap.HRESULT{
		n.DoStackSnapshot(nil, 0, nil):                                            clrsnap.E_INVALIDARG,
		n.DoStackSnapshot(ignore, clrsnap.COR_PRF_SNAPSHOT_X86_OPTIMIZED, nil):    clrsnap.E_INVALIDARG,
		n.DoStackSnapshot(ignore, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil): clrsnap.E_INVALIDARG,
		// The stack was cut.
		n.DoStackSnapshot(ignore, 0, nil): clrsnap.CORPROF_E_STACKSNAPSHOT_ABORTED,

		next(t, s, events.RuntimeResumeFinished).DoStackSnapshot(ignore, 0, nil):     clrsnap.E_FAIL,
		next(t, s, events.GarbageCollectionFinished).DoStackSnapshot(ignore, 0, nil): clrsnap.E_FAIL,
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	stop := errors.New("stop")
	calls := 0
	once := func(id clrsnap.FunctionID, ip uint64, f *clrsnap.FrameInfo, ctx *clrsnap.Context, data any) error {
		calls++
		tier, tierErr := f.Tier()
		start, startErr := f.CodeStart()
		if id == 0 || ip <= start || start == 0 || tier == "" || tierErr != nil || startErr != nil || ctx != nil ||
			data != "data" {
			t.Errorf("callback with %v %#x %q (%v) from %#x (%v) %v %v",
				id, ip, tier, tierErr, start, startErr, ctx, data)
		}
		return stop
	}
	err := n.DoStackSnapshot(once, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, "data")
	if !errors.Is(err, stop) || !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_ABORTED) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = subscribeTo(t, p, events.Options{Monitor: events.MonitorExceptions, RegisterContext: true})
	n = next(t, s, events.ExceptionThrown)
	var before uint64
	ascends := func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, ctx *clrsnap.Context, _ any) error {
		const rsp = 4
		sp, known := ctx.Reg(rsp)
		if id != 0 && (uint64(ctx.IP) != ip || !known || sp <= before) {
			t.Errorf("frame %v at %#x: context with %#x and stack pointer %#x after %#x",
				id, ip, uint64(ctx.IP), sp, before)
		}
		before = sp
		return nil
	}
	if err := n.DoStackSnapshot(ascends, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil); err != nil {
		t.Error(err)
	}
	if before == 0 {
		t.Error("no frame")
	}
	livetest.EndsWell(t, a)
	if _, err := drain(s); err != io.EOF {
		t.Errorf("at the end of the program: %v", err)
	}
}

// drain takes all notifications until the end.
func drain(s *events.Subscription) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
	defer cancel()
	for {
		if _, err := s.Next(ctx); err != nil {
			return n, err
		}
		n++
	}
}

// TestSubscribeCommand: nothing is missed from the start to the end.
func TestSubscribeCommand(t *testing.T) {
	kit := testenv.Kit(t)
	cmd := exec.Command(kit.Host(testenv.DefaultRuntime), testenv.Build(t, "events"), "--short", "--kinds",
		"exception,thread,contention")
	var out strings.Builder
	cmd.Stdout = &out
	s, err := events.SubscribeCommand(context.Background(), cmd, clrsnap.Options{}, events.Options{
		Monitor: events.MonitorExceptions | events.MonitorThreads, RingBytes: 4 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	thrown := int64(0)
	for {
		n, err := s.Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n.Event == events.ExceptionThrown {
			thrown += n.Count
		}
	}
	if err := errors.Join(s.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	want := int64(0)
	for _, x := range testenv.Truths(t, out.String()) {
		if x.Kind == "exception" {
			want += x.Count
		}
	}
	if thrown != want || want == 0 {
		t.Errorf("%d exceptions, and %d is true", thrown, want)
	}
}

// TestSubscribeRefused: impossible requests get one clear sentence.
func TestSubscribeRefused(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	for want, o := range map[string]events.Options{
		"events.Options.Monitor 0x80: choose":      {Monitor: 0x80},
		"one allocation in -1 bytes":               {Monitor: events.MonitorAll, AllocationBytes: -1},
		"one exception in -1":                      {Monitor: events.MonitorAll, ExceptionEvery: -1},
		"waits of at least -1s":                    {Monitor: events.MonitorAll, ContentionMin: -time.Second},
		"stacks of 513 frames":                     {Monitor: events.MonitorAll, MaxFrames: 513},
		"a ring of 100000 bytes":                   {Monitor: events.MonitorAll, RingBytes: 100000},
		"threads that are held for 1m0s":           {Monitor: events.MonitorAll, Hold: time.Minute},
		"only to a profiler that is loaded at its": {Monitor: events.MonitorAll, EveryObject: true},
	} {
		if _, err := events.Subscribe(context.Background(), p, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	s := subscribeTo(t, p, events.Options{Monitor: events.MonitorGC})
	_, err := events.Subscribe(context.Background(), p, events.Options{Monitor: events.MonitorGC})
	if err == nil || !strings.Contains(err.Error(), "another profiler is loaded") {
		t.Errorf("a second subscription: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	_, err = events.SubscribeCommand(context.Background(), exec.Command("sleep", "0.1"), clrsnap.Options{},
		events.Options{Monitor: events.MonitorGC})
	if err == nil || !strings.Contains(err.Error(), "no .NET runtime") {
		t.Errorf("a program without .NET: %v", err)
	}
	if _, err := p.ClassName(1); err == nil {
		t.Error("1 is a class")
	}
}
