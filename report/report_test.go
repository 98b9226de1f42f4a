package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/snapshot"
)

// near is a native frame without a symbol, behind an exported function.
func near(module, nearest string, offset uint64) snapshot.Frame {
	f := native(module, "", offset)
	f.Nearest = nearest
	return f
}

func native(module, name string, offset uint64) snapshot.Frame {
	short, _, _ := strings.Cut(name, "(")
	return snapshot.Frame{
		Kind: snapshot.Native, IP: 0x7f0000000000 + offset, SP: 0x7ffc00001000, Method: name, Display: name,
		Short:  short,
		Module: module, Offset: offset,
	}
}

func managed(module, exact, display, short, signature string) snapshot.Frame {
	return snapshot.Frame{
		Kind: snapshot.Managed, FunctionID: 0x7e00_0000_1000, IP: 0x7e0000400010, SP: 0x7ffc00002000, Method: exact,
		Display: display,
		Short:   short, Signature: signature, Module: module, Offset: 0x10, Tier: "tier-1",
	}
}

const coreLib = profiletest.CoreLib

// base has the frames near the base of every thread of the synthetic process.
func base() []snapshot.Frame {
	return []snapshot.Frame{
		managed(coreLib, "System.Threading.Thread.StartCallback", "System.Threading.Thread.StartCallback",
			"Thread.StartCallback", "()"),
		native("libcoreclr.so", "", 0x5eb1d1), native("libcoreclr.so", "", 0x5eb1d9), native("libc.so.6", "", 0x891f5),
	}
}

func waiting() []snapshot.Frame {
	return append([]snapshot.Frame{
		native("libc.so.6", "__poll", 0x4f),
		native("libcoreclr.so", "Thread::DoWait(int, void**, bool)", 0x210),
		managed(coreLib, "System.Threading.Monitor.Wait", "System.Threading.Monitor.Wait", "Monitor.Wait",
			"(object, int)"),
	}, base()...)
}

// idle has the frames of a runtime thread that waits in a callee of its start method.
func idle(method, callee string) []snapshot.Frame {
	frames := []snapshot.Frame{native("libcoreclr.so", "", 0x10)}
	for _, m := range []string{callee, method} {
		display := strings.ReplaceAll(m, "+", ".")
		words := strings.Split(display, ".")
		frames = append(frames, managed(coreLib, m, display, strings.Join(words[len(words)-2:], "."), "()"))
	}
	return frames
}

func running() []snapshot.Frame {
	recurse := managed("Shop", "Shop.Tree.Visit", "Shop.Tree.Visit", "Tree.Visit", "(Shop.Node)")
	frames := []snapshot.Frame{
		managed("Shop", "Shop.Index+<>c__DisplayClass4_0`1.<Scan>b__0", "Shop.Index.Scan{lambda 4_0}",
			"Index.Scan{lambda 4_0}", "(System.Collections.Generic.KeyValuePair<string, System.__Canon>, int)"),
	}
	for range 12 {
		frames = append(frames, recurse)
	}
	for range 5 {
		frames = append(frames, managed("Shop", "Shop.A.Ping", "Shop.A.Ping", "A.Ping", "(int)"),
			managed("Shop", "Shop.B.Pong", "Shop.B.Pong", "B.Pong", "(int)"))
	}
	return append(frames, base()...)
}

// synthetic is a process with one thread of every kind that matters.
func synthetic() *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Process: snapshot.Process{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{
			Version: "10.0.9", Path: "/usr/share/dotnet/shared/Microsoft.NETCore.App/10.0.9/libcoreclr.so",
			Shape: "shared",
		}},
		CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.FixedZone("", 3600)),
		Stops:      []time.Duration{14200, 9450, 12000},
		Released:   1,
		Threads: []snapshot.Thread{
			{OSThreadID: 4243, Name: ".NET SynchManag", Role: "Synchronisation manager",
				State: "waiting for I/O (poll)", Pause: 9450, Complete: true,
				Frames: []snapshot.Frame{native("libc.so.6", "__poll", 0x4f), native("libcoreclr.so", "", 0x10),
					near("libc.so.6", "pthread_create+0x2d0", 0x891f5)}},
			{OSThreadID: 4242, ManagedThreadID: 1, ThreadID: 0x55d0_1000, Name: "Shop", Role: "Main", State: "running",
				Mode:  "cooperative",
				Pause: 14200, Complete: true, Frames: running()},
			{OSThreadID: 4250, ManagedThreadID: 5, ThreadID: 0x55d0_5000, Name: "evil\x1b[31m\u202e",
				State: "waiting (futex)", Mode: "preemptive",
				Complete: false, Error: "no way up from 0x7f12: it is in no module", Frames: waiting()[:3]},
			{OSThreadID: 4251, Name: "gone", Error: "thread 4251: thread does not stop"},
		},
	}
	for i := range 30 {
		f := waiting()
		f[0].Offset += uint64(i) // elsewhere in the same function
		s.Threads = append(s.Threads, snapshot.Thread{
			OSThreadID: 4300 + i, ManagedThreadID: 10 + i, ThreadID: 0x55e0_0000 + uint64(i)<<12,
			Name: ".NET TP Worker", Role: "ThreadPool worker",
			State: []string{"waiting (futex)", "running"}[min(i%10, 1)^1], Mode: "preemptive", Complete: true,
			Frames: f,
		})
	}
	for i := range 5 {
		s.Threads = append(s.Threads, snapshot.Thread{
			OSThreadID: 4350 + i, ManagedThreadID: 40 + i, ThreadID: 0x55ea_0000 + uint64(i)<<12,
			Name: ".NET TP Worker", Role: "ThreadPool worker",
			State: []string{"running", "waiting (futex)"}[min(i, 1)], Mode: "preemptive", Complete: true,
			Frames: append(idle("System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart",
				"System.Threading.LowLevelLifoSemaphore.Wait"), base()...),
		})
	}
	s.Threads = append(s.Threads, snapshot.Thread{
		OSThreadID: 4360, ManagedThreadID: 45, ThreadID: 0x55eb_0000, State: "waiting (futex)", Mode: "preemptive",
		Complete: true,
		Frames: append(idle("System.Threading.TimerQueue.TimerThread", "System.Threading.WaitHandle.WaitOne"),
			base()...),
	})
	for i := range 2 {
		s.Threads = append(s.Threads, snapshot.Thread{
			OSThreadID: 4400 + i, ManagedThreadID: 50 + i, ThreadID: 0x55f0_0000 + uint64(i)<<12,
			Name:  fmt.Sprintf("twin-%d", i),
			State: "sleeping (nanosleep)", Mode: "preemptive", Complete: true, Frames: base(),
		})
	}
	return s
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name string
		o    TextOptions
	}{
		{"default", TextOptions{}},
		{"color", TextOptions{Terminal: Terminal{Color: true, Width: 100}}},
		{"narrow", TextOptions{Terminal: Terminal{Width: 60}, Tier: true}},
		{"managed-group", TextOptions{Managed: true, Group: GroupAlways}},
		{"native-never", TextOptions{Native: true, Group: GroupNever, Short: true}},
		{"full", TextOptions{Terminal: Terminal{Width: 40}, Full: true, Group: GroupAlways}},
		{"ip", TextOptions{IP: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Text(&b, synthetic(), c.o); err != nil {
				t.Fatal(err)
			}
			profiletest.Golden(t, c.name+".txt", b.Bytes())
			if i := strings.IndexAny(b.String(), "\x1b\u202e"); i >= 0 && !c.o.Color {
				t.Errorf("a control character gets through: %q", b.String()[i:][:20])
			}
		})
	}
}

func TestJSON(t *testing.T) {
	s := synthetic()
	s.Threads = s.Threads[:5]
	s.Threads[1].Frames = s.Threads[1].Frames[:1]
	var b, indented bytes.Buffer
	if err := JSON(&b, s); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "snapshot.json", indented.Bytes())
}

// dumped is the synthetic process after its end.
func dumped() *snapshot.Snapshot {
	s := synthetic()
	s.Stops, s.Released, s.Threads = nil, 0, s.Threads[:2]
	s.Process.Core = &snapshot.Core{
		Path: "core.4242", Writer: "createdump",
		Signal:  &snapshot.Signal{Number: 6, Name: "SIGABRT", Reason: "sent by tgkill"},
		Missing: []string{"/app/libx\x1b.so is not the file that the process had: its build id is another", "12 pages"},
	}
	s.Threads[0].Pause, s.Threads[1].Pause = 0, 0
	s.Threads[1].Crashed, s.Threads[1].State = true, "aborted (SIGABRT)"
	s.Threads[1].Exception = &snapshot.ExceptionInfo{
		Type: "System.AggregateException", Message: "One or more errors occurred.\n(evil \u202e)", HResult: -2146233088,
		Inner: &snapshot.ExceptionInfo{
			Type: "Shop.OutOfStock", Inner: &snapshot.ExceptionInfo{Type: "Shop.Closed", NoMessage: true},
		},
	}
	s.Threads[1].Frames = s.Threads[1].Frames[:1]
	return s
}

func TestCore(t *testing.T) {
	for name, o := range map[string]TextOptions{"core": {},
		"core-color": {Terminal: Terminal{Color: true}, Managed: true, Group: GroupAlways}} {
		var b bytes.Buffer
		if err := Text(&b, dumped(), o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, name+".txt", b.Bytes())
	}
	var b, indented bytes.Buffer
	if err := JSON(&b, dumped()); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "core.json", indented.Bytes())
}

// A program that has ended itself says so first, and shows no exception that was not thrown.
func TestFailFast(t *testing.T) {
	for _, tt := range []struct {
		how  snapshot.FailFast
		text string
		json string
	}{
		{snapshot.FailFast{Message: "no more\ndisks \x1b[2J"},
			"  Environment.FailFast: no more\n    │ disks \\x1b[2J", `"failFast":{"message":"no more\n`},
		{snapshot.FailFast{}, "  Environment.FailFast", `"failFast":{}`},
		{snapshot.FailFast{Unknown: true},
			"  Environment.FailFast (its message was not found)", `"failFast":{"noMessage":true}`},
	} {
		s := dumped()
		s.Threads[1].FailFast = &tt.how
		var text, b bytes.Buffer
		if err := errors.Join(Text(&text, s, TextOptions{}), JSON(&b, s)); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text.String(), tt.text)
		if !strings.Contains(rest, "\n  last exception: System.AggregateException: ") ||
			strings.Contains(rest, "\x1b") {
			t.Errorf("%+v:\n%s", tt.how, text.String())
		}
		if !strings.Contains(b.String(), tt.json) {
			t.Errorf("%+v: %s", tt.how, b.String())
		}
	}
}

// thrown is a synthetic exception with every part that an exception can have.
func thrown() *snapshot.ExceptionInfo {
	frame := func(method, args string, line int) snapshot.TraceFrame {
		f := snapshot.TraceFrame{Frame: snapshot.Frame{
			Kind: snapshot.Managed, FunctionID: 0x7000, IP: 0x7100, SP: 0x7fff0000, Method: method, Display: method,
			Short: strings.TrimPrefix(method, "Shop."), Signature: args, Module: "Shop", Offset: 0x10, Tier: "tier-0",
		}}
		if line > 0 {
			f.Line = &snapshot.SourceLine{File: "/src/Shop/Orders.cs", Line: line, Column: 9, Approximate: line == 7}
		}
		return f
	}
	checked, gone := frame("Shop.Orders.Check", "(int)", 42), frame("[method 0x5]", "", 0)
	async := frame("Shop.Orders.Run", "()", 7)
	checked.EndsTrace, async.EndsTrace = true, true
	async.Method = "Shop.Orders+<Run>d__1.MoveNext"
	gone.IP, gone.SP, gone.Method, gone.Module, gone.Tier = 0, 0, "", "", ""
	hidden := frame("System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw", "()", 0)
	hidden.Hidden = true
	deep := frame("Shop.Orders.Deep", "(int)", 43)
	return &snapshot.ExceptionInfo{
		Type: "System.AggregateException", Message: "several", HResult: -2146233088, LeftOut: true,
		Frames: []snapshot.TraceFrame{checked, hidden, async},
		Inner: &snapshot.ExceptionInfo{
			Type: "Shop.OutOfStock", Message: "nails\n   at Not.A.Frame()\x1b[2J", CutMessage: true,
			Frames: []snapshot.TraceFrame{deep, deep, deep, deep, deep, deep, checked}, More: 12,
			Inner: &snapshot.ExceptionInfo{Type: "Shop.Closed", NoMessage: true, NoFrames: "it is not in the dump"},
		},
		Others: []*snapshot.ExceptionInfo{
			{Type: "Shop.Late", Message: strings.Repeat("a\n", 30), Remote: "   at Else.Where()\r\n   at \x1b[2J",
				Frames: []snapshot.TraceFrame{gone}},
			{Type: "Shop.Long", Message: strings.Repeat("x", 3000)},
		},
	}
}

// In text and JSON, an exception has its own stack trace, and no text of the program looks like text of
// clrsnap.
func TestExceptions(t *testing.T) {
	s := synthetic()
	s.Threads = s.Threads[:2]
	s.Threads[0].Exception = thrown()
	s.Threads[0].Exception.Uncertain = "the thread ran"
	s.Threads[0].Handling = []*snapshot.ExceptionInfo{{Type: "Shop.First", Message: "the first"}}
	s.Threads[1].FailFast = &snapshot.FailFast{Message: "no", Exception: thrown().Inner}
	s.Threads[1].Exception = s.Threads[1].FailFast.Exception
	for name, o := range map[string]TextOptions{"exceptions": {}, "exceptions-full": {Full: true, IP: true, Tier: true},
		"exceptions-short": {Terminal: Terminal{Color: true}, Short: true, Group: GroupAlways}} {
		var b bytes.Buffer
		if err := Text(&b, s, o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, name+".txt", b.Bytes())
	}
	var b, indented bytes.Buffer
	if err := JSON(&b, s); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "exceptions.json", indented.Bytes())
}

// The JSON must be as documented, also without any data.
func TestJSONOfNothing(t *testing.T) {
	s := &snapshot.Snapshot{
		Process: snapshot.Process{PID: 1}, CapturedAt: time.Unix(0, 5),
		Threads: []snapshot.Thread{{OSThreadID: 1, Name: "a\xff<b>"}},
	}
	var b bytes.Buffer
	if err := JSON(&b, s); err != nil {
		t.Fatal(err)
	}
	want := `{"process":{"pid":1},"capturedAt":"1970-01-01T00:00:00.000000005Z","stops":0,"threads":[{"osThreadId":1,` +
		`"name":"a\ufffd<b>","complete":false,"frames":[]}]}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
}

// Threads with nothing known but their existence.
func TestUnlisted(t *testing.T) {
	s := &snapshot.Snapshot{CapturedAt: time.Unix(0, 0), Unlisted: 2, Threads: []snapshot.Thread{{OSThreadID: 1}}}
	var b bytes.Buffer
	if err := JSON(&b, s); err != nil || !strings.Contains(b.String(), `"unlisted":2,"threads":[{`) {
		t.Errorf("%v: %s", err, b.String())
	}
	want := "1 thread, 0 stopped, 1 without a stack, 2 more that had just been started"
	if got := Summary(s); got != want || s.Missing() != 3 {
		t.Errorf("got %q, want %q; %d missing", got, want, s.Missing())
	}
}

func TestGroupThreads(t *testing.T) {
	thread := func(frames ...snapshot.Frame) *snapshot.Thread {
		return &snapshot.Thread{Complete: true, Frames: frames}
	}
	nameless := native("libc.so.6", "", 0x100)
	elsewhere := native("libc.so.6", "", 0x200)
	poll, later := native("libc.so.6", "poll", 0x4f), native("libc.so.6", "poll", 0x51)
	ofInt := managed("A", "A.List`1.Add", "A.List<int>.Add", "List<int>.Add", "(int)")
	ofLong := managed("A", "A.List`1.Add", "A.List<long>.Add", "List<long>.Add", "(long)")
	broken := thread(poll)
	broken.Complete = false
	for _, c := range []struct {
		name    string
		threads []*snapshot.Thread
		groups  int
	}{
		{"the same method at another offset", []*snapshot.Thread{thread(poll), thread(later)}, 1},
		{"no name, another place", []*snapshot.Thread{thread(nameless), thread(elsewhere)}, 2},
		{"no name, the same place", []*snapshot.Thread{thread(nameless), thread(nameless)}, 1},
		{"another instantiation", []*snapshot.Thread{thread(ofInt), thread(ofLong)}, 2},
		{"one frame more", []*snapshot.Thread{thread(poll), thread(poll, poll)}, 2},
		{"incomplete", []*snapshot.Thread{broken, broken}, 2},
		{"empty", []*snapshot.Thread{thread(), thread()}, 2},
	} {
		if got := GroupThreads(c.threads); len(got) != c.groups {
			t.Errorf("%s: %d groups, want %d", c.name, len(got), c.groups)
		}
	}
}

func TestWriteError(t *testing.T) {
	if err := Text(profiletest.Full{}, synthetic(), TextOptions{}); !errors.Is(err, profiletest.ErrFull) {
		t.Errorf("Text: %v", err)
	}
	if err := JSON(profiletest.Full{}, synthetic()); !errors.Is(err, profiletest.ErrFull) {
		t.Errorf("JSON: %v", err)
	}
}

func TestPause(t *testing.T) {
	for d, want := range map[time.Duration]string{9450: "9.4 µs", 14200: "14 µs", 1_500_000: "1500 µs",
		12_000_000: "12 ms"} {
		if got := PauseText(d); got != want {
			t.Errorf("PauseText(%d) = %q, want %q", d, got, want)
		}
	}
}

func BenchmarkText(b *testing.B) {
	benchmark(b, func(w *bytes.Buffer, s *snapshot.Snapshot) error { return Text(w, s, TextOptions{}) })
}

func BenchmarkJSON(b *testing.B) {
	benchmark(b, func(w *bytes.Buffer, s *snapshot.Snapshot) error { return JSON(w, s) })
}

func benchmark(b *testing.B, encode func(*bytes.Buffer, *snapshot.Snapshot) error) {
	s := synthetic()
	var w bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		w.Reset()
		if err := encode(&w, s); err != nil {
			b.Fatal(err)
		}
	}
}

// TestJSONFrames: frames are written one at a time, and make one list.
func TestJSONFrames(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 3079} {
		s := &snapshot.Snapshot{Threads: []snapshot.Thread{{OSThreadID: 1}, {OSThreadID: 2}}}
		for i := range n {
			s.Threads[0].Frames = append(s.Threads[0].Frames, snapshot.Frame{IP: uint64(i)})
		}
		var out bytes.Buffer
		if err := JSON(&out, s); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Threads []struct {
				OSThreadID int `json:"osThreadId"`
				Frames     []struct{ IP string }
			}
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%d frames: %v", n, err)
		}
		if len(got.Threads) != 2 || len(got.Threads[0].Frames) != n || got.Threads[1].Frames == nil {
			t.Fatalf("%d frames: %d threads, %d frames", n, len(got.Threads), len(got.Threads[0].Frames))
		}
		for i, f := range got.Threads[0].Frames {
			if f.IP != hex(uint64(i)) {
				t.Fatalf("frame %d of %d has %s", i, n, f.IP)
			}
		}
	}
}

// TestPlumbing: runs of framework frames share a line, and are equal if their parts are equal. No run
// contains the leaf, or the managed frame nearest to the leaf.
func TestPlumbing(t *testing.T) {
	frame := func(module, method string) snapshot.Frame {
		return snapshot.Frame{Kind: snapshot.Managed, Method: method, Display: method, Short: method, Module: module}
	}
	const coreLib, kestrel = "System.Private.CoreLib", "Microsoft.AspNetCore.Server.Kestrel.Core"
	thread := func(id int, processed int) snapshot.Thread {
		th := snapshot.Thread{OSThreadID: id, Complete: true, Frames: []snapshot.Frame{
			{Kind: snapshot.Native, Display: "futex", Method: "futex", Module: "libc.so.6"},
			frame(coreLib, "System.Threading.Tasks.Task.ExecuteEntry"), // as in a wait
			frame("Shop", "Shop.Work"),
		}}
		for range processed {
			th.Frames = append(th.Frames, frame(kestrel, kestrel+".Http.HttpProtocol.ProcessRequests"))
		}
		th.Frames = append(th.Frames, frame(coreLib, "System.Threading.ThreadPoolWorkQueue.Dispatch"))
		return th
	}
	s := &snapshot.Snapshot{Threads: []snapshot.Thread{thread(1, 2), thread(2, 4), thread(3, 9)}}
	text := func(o TextOptions) string {
		var b strings.Builder
		if err := Text(&b, s, o); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, c := range []struct {
		o       TextOptions
		has     []string
		hasNone string
	}{
		{TextOptions{}, []string{"[pool → Kestrel: 3 frames]", "Kestrel: 5 frames]", "Task.ExecuteEntry"}, "Dispatch"},
		{TextOptions{Group: GroupAlways}, []string{"3 threads with", "[pool → Kestrel: 3–10 frames]"}, "Dispatch"},
		{TextOptions{Managed: true, Group: GroupAlways}, []string{"3 threads with", "ExecuteEntry"}, "Dispatch"},
		{TextOptions{Plumbing: true}, []string{"Dispatch"}, "[pool"},
		{TextOptions{Plumbing: true, Group: GroupAlways}, []string{"Dispatch", "Thread 3"}, "threads with"},
		{TextOptions{Full: true}, []string{"Dispatch"}, "[pool"},
		{TextOptions{IP: true}, []string{"Dispatch"}, "[pool"},
	} {
		got := text(c.o)
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: no %q in\n%s", c.o, want, got)
			}
		}
		if strings.Contains(got, c.hasNone) {
			t.Errorf("%+v: %q in\n%s", c.o, c.hasNone, got)
		}
	}
	var b strings.Builder
	err := JSON(&b, s)
	if all := b.String(); err != nil || strings.Count(all, "ProcessRequests") < 15 || strings.Contains(all, "[pool") {
		t.Errorf("JSON: %v\n%s", err, all)
	}
}
