package session_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// heldWays are the ways in which the program failing keeps a thread in a handler.
var heldWays = []string{
	"catch", "filter", "finally", "again", "throw-ex", "inner", "during", "dispatch", "async", "aggregate",
	"aggregates", "generic", "references", "values", "iterator", "lambda", "dynamic", "collectible", "null",
	"null-field", "divide", "index", "constructor", "argument", "reflection", "remote", "deep", "long", "lines",
	"no-message", "cycle", "unobserved",
}

// TestHeldExceptions compares the exceptions in flight of a running program, frame by frame, with .NET's own text:
// methods, source lines, inner exceptions, messages.
func TestHeldExceptions(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) { testHeldExceptions(t, runtime, nil) })
}

// TestHeldExceptionsRuntimeAsync is TestHeldExceptions for a program with async methods that the runtime itself
// suspends. An exception that reaches an awaiting method has the awaiting method in its trace, although the method is
// not on the stack.
func TestHeldExceptionsRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		testHeldExceptions(t, runtime, livetest.RuntimeAsync)
	})
}

func testHeldExceptions(t *testing.T, runtime string, compile []string) {
	a := testenv.Start(t, "failing", testenv.Options{
		Runtime: runtime, Args: []string{"--hold", strings.Join(heldWays, ",")}, Compile: compile,
	})
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := heldTexts(t, a)
	c := comparison{t: t}
	for _, way := range heldWays {
		e := heldException(t, snap, way)
		if e == nil {
			t.Errorf("%s: no exception", way)
			continue
		}
		if way == "cycle" {
			checkCycle(t, e)
			e.Inner = nil // the program has printed the exception before it made the cycle
		}
		c.same(way, e, parsePrinted(t, texts[way]))
		if e.Uncertain != "" && way != "unobserved" {
			t.Errorf("%s is said to be uncertain: %s", way, e.Uncertain)
		}
	}
	checkDuring(t, snap)
	t.Logf("%d frames are the same, %d of them with a line", c.compared, c.lines)
	if c.compared < 1200 || c.lines < 1150 {
		t.Errorf("%d frames compared, %d with a line", c.compared, c.lines)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	livetest.EndsWell(t, a)
}

// TestMovingExceptions reads exceptions of a program whose objects move all the time, and exceptions that the program
// throws and catches meanwhile (the storm). Certain exceptions must be right. The message of a storm's exception says
// how many calls the exception has left at most.
func TestMovingExceptions(t *testing.T) { testenv.EachVersion(t, testMovingExceptions) }

func testMovingExceptions(t *testing.T, runtime string) {
	a := testenv.Start(t, "failing", testenv.Options{
		Runtime: runtime, Args: []string{"--hold", strings.Join(heldWays, ","), "--collect", "--storm"},
	})
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	texts := heldTexts(t, a)
	rounds, certain, uncertain, storms := 0, 0, 0, 0
	never := map[string]bool{}
	for _, way := range heldWays {
		never[way] = true
	}
	delete(never, "cycle")
	delete(never, "unobserved") // never certain
	few := func() bool { return rounds < 10 || len(never) > 0 }
	for on := livetest.GoOn(0, few); on(); rounds++ {
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := comparison{t: t, old: testenv.Framework(runtime) == "net8"}
		for _, way := range heldWays {
			if way == "cycle" || way == "unobserved" {
				continue
			}
			e := heldException(t, snap, way)
			if e == nil || e.Uncertain != "" {
				uncertain++
				continue
			}
			certain++
			delete(never, way)
			c.same(way, e, parsePrinted(t, texts[way]))
		}
		storms += checkStorm(t, heldException(t, snap, "storm"))
	}
	t.Logf("%d rounds: %d exceptions were certain, %d uncertain; %d in flight for a moment", rounds, certain, uncertain,
		storms)
	for way := range never {
		t.Errorf("%s was never certain", way)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	livetest.EndsWell(t, a)
}

// checkStorm checks an exception of the thread that throws exceptions all the time. checkStorm returns 1 for a certain
// exception, else 0.
func checkStorm(t *testing.T, e *snapshot.ExceptionInfo) int {
	t.Helper()
	if e == nil || e.Uncertain != "" {
		return 0
	}
	n, ok := strings.CutPrefix(e.Message, "storm ")
	depth, err := strconv.Atoi(n)
	if !ok || err != nil || e.Type != "Failing.OrderRefused" || len(e.Frames) > depth+2 {
		t.Errorf("storm: %+v", e)
	}
	for i, f := range e.Frames {
		if want := i <= depth; (f.Method == "Failing.Shop.Validate") != want ||
			!want && f.Method != "Failing.Storm.Throw" {
			t.Errorf("%s, frame %d: %s", e.Message, i, f.Method)
		}
	}
	return 1
}

// heldTexts are the printed exceptions of the program failing, by way.
func heldTexts(t *testing.T, a *testenv.App) map[string]string {
	t.Helper()
	texts := map[string]string{}
	livetest.Await(t, "all exceptions are printed", func() bool {
		for _, m := range heldText.FindAllStringSubmatch(a.Stderr(), -1) {
			texts[m[1]] = m[2]
		}
		return len(texts) == len(heldWays)
	})
	return texts
}

var heldText = regexp.MustCompile(`(?ms)^<<< ([\w-]+)\n(.*?)\n>>>$`)

// heldException returns the exception of the thread that is named after a way. For a task whose exception nobody has
// observed, the exception of the finalizer thread counts.
func heldException(t *testing.T, snap *snapshot.Snapshot, way string) *snapshot.ExceptionInfo {
	t.Helper()
	i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool {
		return th.Name == way && way != "unobserved" || way == "unobserved" && th.Role == "Finalizer"
	})
	if i < 0 {
		t.Fatalf("no thread %q", way)
	}
	return snap.Threads[i].Exception
}

// checkCycle requires that exceptions which led to each other are there once.
func checkCycle(t *testing.T, e *snapshot.ExceptionInfo) {
	t.Helper()
	if e.Inner == nil || e.Inner.Message != "the other" || e.Inner.Inner != nil || !e.Inner.LeftOut {
		t.Errorf("cycle: %+v, inner %+v", e, e.Inner)
	}
}

// checkDuring requires the exception whose handler ran when another exception was thrown.
func checkDuring(t *testing.T, snap *snapshot.Snapshot) {
	t.Helper()
	for _, th := range snap.Threads {
		if want := th.Name == "during"; (len(th.Handling) > 0) != want {
			t.Errorf("%s: it handles %d exceptions", th.Name, len(th.Handling))
		} else if want && (len(th.Handling) != 1 || th.Handling[0].Message != "the first") {
			t.Errorf("%s: it handles %+v", th.Name, th.Handling[0])
		}
	}
}

// deaths are ways in which the program failing dies.
var deaths = []struct {
	way    string
	kernel bool // the kernel makes the dump; the runtime makes none
}{
	{"main", false}, {"thread", false}, {"inner", false}, {"aggregate", false}, {"async-void", false},
	{"native-callback", false}, {"handler", false}, {"lines", false}, {"fail-fast", false}, {"fail-fast-with", false},
	{"overflow", true},
}

// TestDeadExceptions compares the exceptions in the dump of a dead program with .NET's printed text.
func TestDeadExceptions(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range layer.Size(testenv.Versions(), testenv.AllRuntimes()) {
		for _, d := range deaths {
			t.Run(testenv.Name(runtime)+"/"+d.way, func(t *testing.T) {
				testenv.Kit(t).Need(t, runtime)
				th, stderr := die(t, runtime, d.way, d.kernel)
				c := comparison{t: t, old: testenv.Framework(runtime) == "net8"}
				c.death(d.way, th, stderr)
			})
		}
	}
}

// die makes the program failing die, and returns the crashed thread, and .NET's printed text.
func die(t *testing.T, runtime, way string, kernel bool) (th *snapshot.Thread, stderr string) {
	t.Helper()
	kind := testenv.DumpCrash
	if kernel {
		kind = testenv.DumpKernel
	}
	o := testenv.Options{Runtime: runtime, Args: []string{"--die", way}}
	a := testenv.Start(t, "failing", testenv.DumpOptions(t, kind, o))
	var path string
	if kernel {
		path = a.KernelDump(func() { a.Stop() })
	} else {
		a.Stop()
		path = a.CrashDump()
	}
	snap := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true}})
	i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.Crashed })
	if i < 0 {
		t.Fatal("no thread has crashed")
	}
	return &snap.Threads[i], createdumpLine.ReplaceAllString(a.Stderr(), "")
}

var createdumpLine = regexp.MustCompile(`(?m)^(\[createdump\].*|finally|the handler was told of.*)\n`)

// death compares the cause of a program's death.
func (c *comparison) death(way string, th *snapshot.Thread, stderr string) {
	c.t.Helper()
	switch head, rest, _ := strings.Cut(stderr, "\n"); {
	case strings.HasPrefix(stderr, unhandled):
		c.same(way, th.Exception, parsePrinted(c.t, strings.TrimPrefix(stderr, unhandled)))
		if th.FailFast != nil {
			c.t.Errorf("FailFast: %+v", th.FailFast)
		}
	case way == "native-callback" && strings.HasPrefix(stderr, "terminate called"):
		// .NET 9 prints nothing of an exception that native code would have to pass on. .NET 8 and 10 print passedOn.
		c.same(way, th.Exception, parsePrinted(c.t, passedOn))
	case strings.HasPrefix(head, "Process terminated."):
		c.failFast(th, head, rest)
	case head == "Stack overflow.":
		c.overflow(th, rest)
	default:
		c.t.Fatalf(".NET has printed %q", stderr)
	}
	c.t.Logf("%d frames are the same, %d of them with a line", c.compared, c.lines)
	if c.compared == 0 {
		c.t.Error("no frames compared")
	}
}

const (
	unhandled = "Unhandled exception. "
	passedOn  = `System.NullReferenceException: Object reference not set to an instance of an object.
   at Failing.Deaths.RankOf(Item item) in /testdata/apps/failing/Deaths.cs:line 84
   at Failing.Deaths.ByRank(IntPtr a, IntPtr b) in /testdata/apps/failing/Deaths.cs:line 88`
)

// failFast compares the end of a program that has called FailFast. .NET prints the message, then the stack of the
// thread, then the exception from the call of FailFast.
func (c *comparison) failFast(th *snapshot.Thread, head, rest string) {
	c.t.Helper()
	message := strings.TrimPrefix(strings.TrimPrefix(head, "Process terminated."), " ")
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	if message == "" { // .NET 9 and later print the message on a line of its own
		message, lines = lines[0], lines[1:]
	}
	n := slices.IndexFunc(lines, func(l string) bool { return !strings.HasPrefix(strings.TrimSpace(l), "at ") })
	if n < 0 {
		n = len(lines)
	}
	f := th.FailFast
	if f == nil || f.Unknown || f.Message != message {
		c.t.Fatalf("FailFast: %+v, .NET prints %q", f, message)
	}
	c.stack(th, lines[:n])
	var want *printed
	if n < len(lines) {
		want = parsePrinted(c.t, strings.Join(lines[n:], "\n"))
	}
	c.same("FailFast", f.Exception, want)
}

// overflow compares the stack of a stack overflow. .NET prints the repeated frames once, with their number.
func (c *comparison) overflow(th *snapshot.Thread, rest string) {
	c.t.Helper()
	if th.Exception == nil || th.Exception.Type != "System.StackOverflowException" {
		c.t.Errorf("exception %+v", th.Exception)
	}
	m := overflowed.FindStringSubmatch(rest)
	if m == nil {
		c.t.Fatalf(".NET has printed %q", rest)
	}
	n, _ := strconv.Atoi(m[2])
	var lines []string
	lines = append(lines, splitFrames(m[1])...)
	for range n {
		lines = append(lines, splitFrames(m[3])...)
	}
	c.stack(th, append(lines, splitFrames(m[4])...))
}

var overflowed = regexp.MustCompile(`(?s)^(.*?)Repeat(?:ed)? (\d+) times:\n-+\n(.*?)-+\n(.*)$`)

func splitFrames(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// functions are methods that are functions of the runtime in .NET 8: their frames are native.
var functions = []string{"System.Environment.FailFast", "System.RuntimeMethodHandle.InvokeMethod"}

// hiddenCaller calls Main in .NET 11. .NET 11 leaves hiddenCaller's frame out of printed stacks (StackTraceHidden).
const hiddenCaller = "System.Environment.CallEntryPoint"

// stack compares the methods on a thread's own stack.
func (c *comparison) stack(th *snapshot.Thread, lines []string) {
	c.t.Helper()
	var got []string
	for _, f := range livetest.OfKind(th.Frames, snapshot.Managed) {
		if f.Tier != "IL stub" && f.Method != hiddenCaller {
			got = append(got, strings.ReplaceAll(f.Method, "+", "."))
		}
	}
	var want []string
	for _, l := range lines {
		name, ok := testenv.MethodName(l)
		if !ok {
			c.t.Errorf("no frame: %q", l)
		}
		if name = strings.ReplaceAll(name, "+", "."); !c.old || !slices.Contains(functions, name) {
			want = append(want, name)
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%d frames %.2000q, .NET prints %d: %.2000q", len(got), got, len(want), want)
	}
	c.compared += len(want)
}
