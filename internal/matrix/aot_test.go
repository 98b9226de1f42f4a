package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestNativeAOT takes the stacks of a process that has called native AOT code. The AOT code has called the process
// back.
func TestNativeAOT(t *testing.T) {
	pid := testenv.StartAheadOfTime(t)
	library := filepath.Base(testenv.AheadOfTime(t))
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := snapshot.Runtime{Version: testenv.AheadOfTimeVersion, Path: testenv.AheadOfTime(t), Shape: "native AOT"}
	if got := p.Info().Runtime; got != want || p.HasRuntime() {
		t.Errorf("the runtime is %+v, readable: %v", got, p.HasRuntime())
	}
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range s.Threads {
		th := &s.Threads[i]
		names[th.Name] = true
		wantComplete(t, th)
		if th.OSThreadID == pid {
			checkCalledBack(t, th.Frames, library)
		}
	}
	if !names[".NET Finalizer"] || len(s.Threads) != 3 {
		t.Errorf("the threads are %v", names)
	}
	checkNoCLR(t, p, pid)
}

// TestNativeAOTNewest takes the stacks of a native AOT program of the newest .NET, whose runtime describes itself. The
// program runs beside the file with its symbols, and alone. The program prints the methods on its threads' stacks.
func TestNativeAOTNewest(t *testing.T) {
	file := testenv.AheadOfTimeNewest(t, "hello")
	alone := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("cp", file, alone).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("symbols", func(t *testing.T) { checkAheadNewest(t, file) })
	t.Run("alone", func(t *testing.T) { checkAheadNewest(t, alone) })
}

func checkAheadNewest(t *testing.T, file string) {
	pid, said := testenv.StartAheadOfTimeNewest(t, file)
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.Info().Runtime; got.Shape != "native AOT" || !strings.HasPrefix(got.Version, "11.") || p.HasRuntime() {
		t.Errorf("the runtime is %+v, readable: %v", got, p.HasRuntime())
	}
	var s *snapshot.Snapshot
	testenv.UntilSeen(t, func() string {
		if s, err = p.SnapshotAll(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if spinsAhead(s) {
			return "a wait after spinning"
		}
		return ""
	})
	checkWaitsAhead(t, s)
	if g := s.WaitGraph(); len(g.Deadlocks) > 0 || !p.HasLocks() {
		t.Errorf("deadlocks %v, and the locks are known: %v", g.Deadlocks, p.HasLocks())
	}
	checked := 0
	for _, line := range said { // "thread NAME ID wait METHOD < METHOD"
		words := strings.Fields(line)
		if len(words) < 5 || words[0] != "thread" {
			continue
		}
		i := slices.IndexFunc(s.Threads,
			func(th snapshot.Thread) bool { return strconv.Itoa(th.OSThreadID) == words[2] })
		if i < 0 {
			t.Errorf("%s is not among %d threads", line, len(s.Threads))
			continue
		}
		checked++
		wantComplete(t, &s.Threads[i])
		checkMethodsAhead(t, s.Threads[i].Frames, words[4:])
	}
	checkThreadsAhead(t, s, pid)
	isMain := func(f snapshot.Frame) bool {
		return f.Method == "Hello.Program.Main" && f.Signature == "(string[])" && f.Kind == snapshot.Managed
	}
	for i := range s.Threads {
		if th := &s.Threads[i]; th.OSThreadID == pid && !slices.ContainsFunc(th.Frames, isMain) {
			t.Errorf("Main is not among\n%s", livetest.Text(th.Frames))
		}
	}
	if checked < 5 {
		t.Errorf("the program says where %d threads are: %q", checked, said)
	}
	checkHeapAhead(t, p)
	checkTasksAhead(t, p)
	checkNoCLR(t, p, pid)
}

// TestNativeAOTCore reads the core dump of a native AOT program of the newest .NET.
func TestNativeAOTCore(t *testing.T) {
	pid, _ := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeNewest(t, "hello"))
	checkCoreAhead(t, testenv.GCoreDump(t, pid))
}

// TestNativeAOTCreatedump reads a dump that createdump has made of a native AOT program. Of such programs createdump
// makes full dumps only. TestNativeAOTCrash has the kernel's dump.
func TestNativeAOTCreatedump(t *testing.T) {
	layer.Matrix(t)
	pid, _ := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeNewest(t, "hello"))
	checkCoreAhead(t, testenv.DumpAheadOfTimeNewest(t, testenv.DumpFull, pid))
}

// checkCoreAhead requires in a core dump what the program has said of itself.
func checkCoreAhead(t *testing.T, dump string) {
	t.Helper()
	p := openCore(t, dump, clrsnap.CoreOptions{})
	defer p.Close()
	s, err := p.SnapshotAll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !spinsAhead(s) {
		checkWaitsAhead(t, s)
	}
	checkHeapAhead(t, p)
	checkTasksAhead(t, p)
}

// TestNativeAOTCrash reads the core dump of a native AOT program that has died of an exception, and compares the
// exception with the program's last words.
func TestNativeAOTCrash(t *testing.T) {
	dump, said := testenv.CrashAheadOfTimeNewest(t, testenv.AheadOfTimeNewest(t, "hello"), "0", "crash")
	p := openCore(t, dump, clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true}})
	defer p.Close()
	s, err := p.SnapshotAll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Crashed })
	if i < 0 || s.Threads[i].Exception == nil {
		t.Fatalf("no thread of %d has crashed with an exception: %s", len(s.Threads), said)
	}
	e := s.Threads[i].Exception
	if e.Type != "System.InvalidOperationException" || e.Message != "kept on purpose" || e.NoFrames != "" ||
		e.LeftOut || e.Uncertain != "" || e.HResult != -2146233079 {
		t.Errorf("the exception is %+v", e)
	}
	var methods []string
	_, said, _ = strings.Cut(said, "Unhandled exception. ")
	for _, line := range strings.Split(said, "\n") { // "   at Hello.Program.Deep(Int32)"
		if method, ok := strings.CutPrefix(strings.TrimSpace(line), "at "); ok {
			method, _, _ = strings.Cut(method, "(")
			methods = append(methods, method)
		}
	}
	entry := slices.IndexFunc(s.Threads[i].Frames, func(f snapshot.Frame) bool { return f.Method == "__managed__Main" })
	if entry < 0 || s.Threads[i].Frames[entry].Line != nil { // the compiler's own method, without lines
		t.Errorf("the entry point is frame %d of\n%s", entry, livetest.Text(s.Threads[i].Frames))
	}
	shown := slices.DeleteFunc(slices.Clone(e.Frames), func(f snapshot.TraceFrame) bool { return f.Hidden })
	if !strings.HasPrefix(said, e.Type+": "+e.Message) || len(methods) != 4 || len(shown) != len(methods) {
		t.Fatalf("%d frames, and the program says:\n%s", len(shown), said)
	}
	for i, f := range shown {
		line := 38 // of Deep; Main is behind it
		if f.Method != methods[i] || f.Line == nil || filepath.Base(f.Line.File) != "hello.cs" ||
			i < 3 && f.Line.Line != line || i == 3 && f.Line.Line <= line || f.EndsTrace || f.Module != "hello" {
			t.Errorf("frame %d is %s at %+v, not %s", i, f.Method, f.Line, methods[i])
		}
	}
	if !spinsAhead(s) {
		checkWaitsAhead(t, s)
	}
	checkHeapAhead(t, p)
	checkTasksAhead(t, p)
}

// spinsAhead reports whether the thread "semaphore" does not wait yet: a SemaphoreSlim spins before its wait.
func spinsAhead(s *snapshot.Snapshot) bool {
	i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Name == "semaphore" })
	return i < 0 || s.Threads[i].Wait == nil
}

// TestNativeAOTLines finds the lines of a program that has its source lines, but no symbols: of threads, and of the
// exception of which the program dies. .NET says the line behind a call; the line here is that of the call.
func TestNativeAOTLines(t *testing.T) {
	file := testenv.AheadOfTimeLines(t)
	options := clrsnap.Options{Lines: true}
	check := func(frames []snapshot.Frame, want map[string]int) {
		t.Helper()
		for method, line := range want {
			i := slices.IndexFunc(frames, func(f snapshot.Frame) bool { return f.Method == method })
			if i < 0 || frames[i].Line == nil || frames[i].Line.Line != line ||
				!strings.HasSuffix(frames[i].Line.File, "/hello/hello.cs") {
				t.Errorf("%s is not at line %d in\n%s", method, line, livetest.Text(frames))
			}
		}
	}
	pid, _ := testenv.StartAheadOfTimeNewest(t, file)
	p, err := clrsnap.Open(t.Context(), pid, options)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]map[string]int{
		"holder":    {"Hello.Program.HoldTheLock": 31, "Hello.Program.Holder": 32},
		"wanter":    {"Hello.Program.WantTheLock": 33, "Hello.Program.Wanter": 34},
		"waiter":    {"Hello.Program.WaitForPulse": 35, "Hello.Program+Generic`1.Enter": 42},
		"sleeper":   {"Hello.Program.SleepForLong": 36},
		"semaphore": {"Hello.Program.TakeSemaphore": 37},
	}
	for i := range s.Threads {
		check(s.Threads[i].Frames, lines[s.Threads[i].Name])
		delete(lines, s.Threads[i].Name)
	}
	if len(lines) > 0 {
		t.Errorf("there are no threads %v", lines)
	}
	dump, said := testenv.CrashAheadOfTimeNewest(t, file, "0", "crash")
	dead := openCore(t, dump, clrsnap.CoreOptions{Options: options})
	defer dead.Close()
	if s, err = dead.SnapshotAll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Crashed && th.Exception != nil })
	if i < 0 {
		t.Fatalf("no thread has crashed: %s", said)
	}
	var frames []snapshot.Frame
	for _, f := range s.Threads[i].Exception.Frames {
		frames = append(frames, f.Frame)
	}
	check(frames, map[string]int{"Hello.Program.Deep": 38, "Hello.Program.Main": 59})
	if !strings.Contains(said, "/hello.cs:line 38\n") {
		t.Errorf("the program says %s", said)
	}
}

// checkTasksAhead requires the pending methods: Outer awaits Inner, and Inner awaits a semaphore.
func checkTasksAhead(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	tasks, err := p.Tasks(t.Context(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks.Chains) != 1 || tasks.Methods != 2 || tasks.Partial || tasks.Unproven+tasks.Unread > 0 {
		t.Fatalf("%+v", tasks)
	}
	c := &tasks.Chains[0]
	var methods []string
	for _, f := range c.Frames {
		methods = append(methods, f.Display)
	}
	if !slices.Equal(methods, []string{"Hello.Program.Inner{async}", "Hello.Program.Outer{async}"}) || c.Count != 1 ||
		c.Frames[0].Module != "hello" || c.State != snapshot.TaskWaiting {
		t.Errorf("%d chains of %q are %s", c.Count, methods, c.State)
	}
	if w := c.WaitsFor; w == nil || w.Kind != snapshot.AwaitsSemaphore || w.Object == 0 ||
		w.Type != "System.Threading.SemaphoreSlim" {
		t.Errorf("Inner waits for %+v", w)
	}
}

// TestNativeAOTTasks finds the methods that a web service has suspended: methods with state machines of the program,
// methods of the framework that the runtime itself suspends, sockets and timers.
func TestNativeAOTTasks(t *testing.T) {
	pid, said := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeNewest(t, "slim"))
	words := strings.Fields(said[0]) // "pid N runtime V listening URL"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, words[len(words)-1]+"/async/600000", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if answer, err := http.DefaultClient.Do(request); err == nil {
			answer.Body.Close()
		}
	}()
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for end := time.Now().Add(testenv.Hang); ; { // until the request has arrived
		tasks, err := p.Tasks(t.Context(), clrsnap.TasksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if isServed(tasks) && isListening(tasks) && isWatching(tasks) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("served: %v, listening: %v, watching: %v: %+v", isServed(tasks), isListening(tasks),
				isWatching(tasks), tasks.Chains)
		}
	}
}

// TestNativeAOTRequests finds the requests that a web service serves, each with its connection, and with what the
// request waits for: in methods that await a timer, and on threads that sleep. Other requests have ended.
func TestNativeAOTRequests(t *testing.T) {
	c := newAheadClient(t)
	for range 20 {
		answer, err := c.http.Get(c.url + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	for n := range 4 {
		c.ask(t, "/async/600000?n="+strconv.Itoa(n), "/async/{ms:int}")
		c.ask(t, "/wait/600000", "/wait/{ms:int}")
	}
	c.arrive(t, 8)
	dead := openCore(t, testenv.GCoreDump(t, c.pid), clrsnap.CoreOptions{})
	defer dead.Close()
	r, err := dead.Requests(t.Context(), clrsnap.RequestsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if fault := faultOfRequests(r, c.routes); fault != "" {
		t.Errorf("core dump: %s: %+v", fault, r)
	}
}

// TestNativeAOTRequestsResumed finds the requests of threads that run a method after an await: the first requests of a
// program together await the routes. Which requests do, the program says by its stacks.
func TestNativeAOTRequestsResumed(t *testing.T) {
	const programs, all = 20, 8
	for range programs {
		c := newAheadClient(t)
		for range all {
			c.ask(t, "/wait/600000", "/wait/{ms:int}")
		}
		c.arrive(t, all)
		s, err := c.process.SnapshotAll(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		has := func(th snapshot.Thread, method string) bool {
			is := func(f snapshot.Frame) bool { return strings.HasSuffix(f.Method, method) }
			return slices.ContainsFunc(th.Frames, is)
		}
		if slices.ContainsFunc(s.Threads, func(th snapshot.Thread) bool {
			return has(th, ".BlockFor") && has(th, ".DispatchContinuations") && !has(th, ".ProcessRequests")
		}) {
			return
		}
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: no request of %d programs has awaited the routes", programs)
}

// aheadClient is a client of the web service "slim", and clrsnap's view of the service.
type aheadClient struct {
	pid     int
	url     string
	http    http.Client
	process *clrsnap.Process

	mu     sync.Mutex
	routes map[string]string // of the requests in flight, by the client's end of the connection
}

func newAheadClient(t *testing.T) *aheadClient {
	return newAheadClientOf(t, testenv.AheadOfTimeNewest(t, "slim"))
}

// newAheadClientOf is newAheadClient for another program in a file.
func newAheadClientOf(t *testing.T, file string) *aheadClient {
	pid, said := testenv.StartAheadOfTimeNewest(t, file, "0", "600")
	words := strings.Fields(said[0]) // "pid N runtime V listening URL"
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &aheadClient{pid: pid, url: words[len(words)-1], process: p, routes: map[string]string{}}
}

// ask sends a request that is not answered during the test.
func (c *aheadClient) ask(t *testing.T, path, route string) {
	trace := httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		c.mu.Lock()
		c.routes[i.Conn.LocalAddr().String()] = route
		c.mu.Unlock()
	}}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &trace), http.MethodGet,
		c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if answer, err := c.http.Do(request); err == nil {
			answer.Body.Close()
		}
	}()
}

// arrive waits until all requests have arrived, and wait for what they ask for.
func (c *aheadClient) arrive(t *testing.T, all int) {
	t.Helper()
	for end := time.Now().Add(testenv.Hang); ; {
		r, err := c.process.Requests(t.Context(), clrsnap.RequestsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		fault := faultOfRequests(r, c.routes)
		if len(c.routes) < all {
			fault = "the client has not asked yet"
		}
		c.mu.Unlock()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", fault, r)
		}
	}
}

// faultOfRequests says how requests differ from those that a client has sent; "": they are the same. routes are the
// routes by the client's end of the connection.
func faultOfRequests(r *snapshot.Requests, routes map[string]string) string {
	got := map[string]string{}
	for i := range r.Requests {
		g := &r.Requests[i]
		own := slices.ContainsFunc(g.Doing.Frames, func(f snapshot.Frame) bool {
			return f.Display == "Slim.Program.Later{async}" || f.Method == "Slim.Program.BlockFor"
		})
		if slices.ContainsFunc(g.Doing.Frames, func(f snapshot.Frame) bool {
			return f.Method == "System.Threading.Thread.StartThread"
		}) {
			return fmt.Sprintf("%s shows what the pool does: %+v", g.Path, g.Doing.Frames)
		}
		timer := g.Doing.WaitsFor != nil && g.Doing.WaitsFor.Kind == snapshot.AwaitsTimer
		sleeps := g.Doing.Wait != nil && g.Doing.Wait.Kind == snapshot.ThreadSleep
		if !own || g.Doing.State != snapshot.TaskWaiting || timer == sleeps || g.Method != http.MethodGet {
			return fmt.Sprintf("%s %s does %+v", g.Method, g.Path, g.Doing)
		}
		for _, q := range g.Requests {
			got[q.Remote] = g.Path
			if (q.Thread != nil) != sleeps || sleeps != (g.Path == "/wait/{ms:int}") || q.Protocol != "HTTP/1.1" ||
				strings.HasPrefix(q.Query, "?n=") != timer || q.Answering || q.Aborted || q.ID == "" {
				return fmt.Sprintf("%s is %+v", g.Path, q)
			}
		}
	}
	if !maps.Equal(got, routes) || r.Unproven > 0 || r.Partial || r.CallsUnread || len(r.Calls) > 0 {
		return fmt.Sprintf("%v, not %v", got, routes)
	}
	return ""
}

// isServed reports whether a method of the program waits for a timer, and the web server awaits the method.
func isServed(tasks *snapshot.Tasks) bool {
	return slices.ContainsFunc(tasks.Chains, func(c snapshot.TaskChain) bool {
		return c.Frames[0].Display == "Slim.Program.Later{async}" && c.WaitsFor != nil &&
			c.WaitsFor.Kind == snapshot.AwaitsTimer && c.WaitsFor.HasDue &&
			slices.ContainsFunc(c.Frames, func(f snapshot.Frame) bool {
				return f.Method == "Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol.ProcessRequests"
			})
	})
}

// isListening reports whether a method of the web server waits for the next connection.
func isListening(tasks *snapshot.Tasks) bool {
	return slices.ContainsFunc(tasks.Chains, func(c snapshot.TaskChain) bool {
		return c.WaitsFor != nil && c.WaitsFor.Kind == snapshot.AwaitsSocket &&
			strings.HasPrefix(c.WaitsFor.Target, "accept tcp 127.0.0.1:") &&
			strings.HasSuffix(c.Frames[0].Method, ".SocketConnectionListener.AcceptAsync")
	})
}

// isWatching reports whether a method that the runtime suspends waits for an async iterator.
func isWatching(tasks *snapshot.Tasks) bool {
	return slices.ContainsFunc(tasks.Chains, func(c snapshot.TaskChain) bool {
		return c.WaitsFor != nil && c.WaitsFor.Kind == snapshot.AwaitsChannel && len(c.Frames) == 2 &&
			strings.HasSuffix(c.Frames[0].Display, ".ReadAllAsync{async}") &&
			strings.HasSuffix(c.Frames[1].Display, ".DequeueEvents")
	})
}

// checkHeapAhead requires the objects that the program says that it has made. The program makes no others by now.
func checkHeapAhead(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Type: regexp.MustCompile(`^Hello\.Node$`), MaxStrings: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if h.ConsistentShare != 1 || h.Partial {
		t.Errorf("%v of the heap is consistent", h.ConsistentShare)
	}
	const nodes = 1000
	counts := map[string]snapshot.HeapAmount{}
	for _, typ := range h.Types {
		counts[typ.Name] = typ.HeapAmount
	}
	for name, want := range map[string]snapshot.HeapAmount{
		"Hello.Node":              {Count: nodes, Bytes: 40 * nodes},
		"System.Threading.Thread": {Count: 6, Bytes: 6 * (96 + 8)},
		"System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>+" +
			"AsyncStateMachineBox<Hello.Program+<Inner>d__21>": {
			Count: 1, Bytes: 96 + 8,
		},
	} {
		if counts[name] != want {
			t.Errorf("%s: %+v, not %+v", name, counts[name], want)
		}
	}
	if h.Matching.Count != nodes || len(h.Instances) != nodes {
		t.Errorf("%d instances of %d", len(h.Instances), h.Matching.Count)
	}
	texts := map[string]uint64{}
	for _, s := range h.Strings {
		texts[s.Text] = s.Count
	}
	for i := range nodes {
		if text := "node " + strconv.Itoa(i); texts[text] != 1 {
			t.Errorf("the text %q is there %d times", text, texts[text])
		}
	}
	checkRootsAhead(t, p)
}

// checkRootsAhead requires what keeps the objects of the program: static fields have the list of nodes, a dictionary
// that has grown five times, and an exception. Each thread has its Thread. A constant text is part of the program.
func checkRootsAhead(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	const (
		nodes   = 1000
		table   = "System.Collections.Generic.Dictionary<string, Hello.Pair<int, string>>"
		entries = table + "+Entry[]"
		thread  = "System.Threading.Thread"
		thrown  = "System.InvalidOperationException"

		wanted = `^(Hello\.Node|System\.(InvalidOperationException|Threading\.Thread|.*Entry\[\])|string)$`
	)
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{
		Roots: regexp.MustCompile(wanted), Retained: true, Graph: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.RootsLack) > 0 || h.Partial || h.Graph == nil || h.Graph.Count < nodes {
		t.Errorf("roots lack %v, partial %v, %+v", h.RootsLack, h.Partial, h.Graph)
	}
	type key struct {
		root  snapshot.HeapRoot
		first string
		last  string
	}
	got := map[key]uint64{}
	for _, path := range h.Paths {
		got[key{path.Root, path.Steps[0].Type, path.Steps[len(path.Steps)-1].Type}] += path.Objects.Count
		if first := path.Steps[0].Type; path.Root == snapshot.RootStatic && (!path.Kept() ||
			slices.Contains([]string{"Hello.Node", table, thrown}, first) && path.Static != "Hello.Program.?" ||
			path.Static == "Hello.Program.?" && path.Beginning() != "a static field of Hello.Program") {
			t.Errorf("%s (%s) keeps %s", path.Beginning(), path.Static, first)
		}
	}
	for k, want := range map[key]uint64{
		{snapshot.RootStatic, "Hello.Node", "Hello.Node"}:  nodes,
		{snapshot.RootStatic, "Hello.Node", "string"}:      nodes, // their texts
		{snapshot.RootStatic, table, entries}:              1,
		{snapshot.RootUnknown, entries, entries}:           5,
		{snapshot.RootStatic, thrown, thrown}:              1,
		{snapshot.RootThreadStatic, thread, thread}:        6,
		{snapshot.RootStatic, table, "string"}:             200, // keys and values
		{snapshot.RootUnknown, "Hello.Node", "Hello.Node"}: 0,
		{snapshot.RootUnknown, thread, thread}:             0,
		{snapshot.RootHandle, thread, thread}:              0,
	} {
		if got[k] != want {
			t.Errorf("%s keeps %d of %s, from %s on, and not %d", k.root, got[k], k.last, k.first, want)
		}
	}
	if got[key{snapshot.RootFrozen, "string", "string"}] < 100 {
		t.Errorf("%d texts are part of the program", got[key{snapshot.RootFrozen, "string", "string"}])
	}
	for _, typ := range h.Types {
		const text = 22 + 2*len("node ") + 2 // of a text with one digit
		least := uint64(nodes * (40 + text))
		if typ.Name == "Hello.Node" && (typ.Retained < least || typ.Retained > 2*least) {
			t.Errorf("the nodes retain %d bytes, and not %d", typ.Retained, least)
		}
	}
}

// checkThreadsAhead requires the runtime's threads: the program starts threads in a known order, and .NET counts them.
func checkThreadsAhead(t *testing.T, s *snapshot.Snapshot, pid int) {
	t.Helper()
	want := map[string]int{"holder": 2, "wanter": 3, "waiter": 4, "sleeper": 5, "semaphore": 6}
	managed, finalizers := 0, 0
	for i := range s.Threads {
		th := &s.Threads[i]
		id := want[th.Name]
		switch {
		case th.OSThreadID == pid:
			id = 1
			if th.Background || th.Role != "Main" {
				t.Errorf("the main thread is %+v", th)
			}
		case th.Role == "Finalizer":
			finalizers++
		case !th.Background:
			t.Errorf("thread %s is no background thread", th.Name)
		}
		if th.ManagedThreadID != id {
			t.Errorf("thread %s has the id %d, not %d", th.Name, th.ManagedThreadID, id)
		}
		if runs := id != 0 || th.Role == "Finalizer"; runs != (th.ThreadID != 0) || runs != (th.Mode == "preemptive") {
			t.Errorf("thread %s of the runtime: %v, %#x, %q", th.Name, runs, th.ThreadID, th.Mode)
		}
		if id != 0 {
			managed++
		}
	}
	if managed != 1+len(want) || finalizers != 1 {
		t.Errorf("%d threads have ids, and %d are the finalizer", managed, finalizers)
	}
}

// checkWaitsAhead requires what the program says that its threads wait for.
func checkWaitsAhead(t *testing.T, s *snapshot.Snapshot) {
	t.Helper()
	named := func(name string) *snapshot.Thread {
		i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Name == name })
		if i < 0 {
			t.Fatalf("there is no thread %s", name)
		}
		return &s.Threads[i]
	}
	for name, want := range map[string]snapshot.Wait{
		"holder":    {Kind: snapshot.HandleOne, Waiters: 1, Detail: "manual-reset event"},
		"wanter":    {Kind: snapshot.MonitorEnter, Type: "object", Waiters: 1, Recursion: 1},
		"waiter":    {Kind: snapshot.MonitorWait, Type: "object", Waiters: 1},
		"sleeper":   {Kind: snapshot.ThreadSleep},
		"semaphore": {Kind: snapshot.SemaphoreWait, Type: "System.Threading.SemaphoreSlim", Detail: "count 0"},
	} {
		th := named(name)
		w := th.Wait
		if w == nil || !w.Certain || w.Kind != want.Kind || w.Type != want.Type || w.Waiters != want.Waiters ||
			w.Detail != want.Detail || w.Recursion != want.Recursion || w.Timeout != snapshot.Forever ||
			(w.Object != 0) != (want.Type != "") || (w.Owner != nil) != (want.Kind == snapshot.MonitorEnter) {
			t.Errorf("thread %s waits for %+v", name, w)
		}
		if holds := len(th.Holds); holds > 0 != (name == "holder") {
			t.Errorf("thread %s holds %+v", name, th.Holds)
		}
	}
	holder, wanted := named("holder"), named("wanter").Wait
	if wanted == nil || wanted.Owner == nil || *wanted.Owner != (snapshot.ThreadRef{
		OSThreadID: holder.OSThreadID, ManagedThreadID: holder.ManagedThreadID, Name: holder.Name,
	}) {
		t.Errorf("the wanted lock is %+v", wanted)
		return
	}
	if h := holder.Holds; len(h) != 1 || !h[0].Certain || h[0].Object != wanted.Object ||
		h[0].Kind != snapshot.MonitorEnter || h[0].Lock != wanted.Lock || h[0].Lock == 0 {
		t.Errorf("the holder holds %+v, and the wanted lock is %+v", h, wanted)
	}
}

// checkMethodsAhead requires frames of methods of a program, in this order.
func checkMethodsAhead(t *testing.T, frames []snapshot.Frame, methods []string) {
	t.Helper()
	at := slices.IndexFunc(frames, func(f snapshot.Frame) bool {
		return f.Module == "hello" && f.Kind == snapshot.Managed
	})
	for _, m := range methods {
		if m == "<" {
			continue
		}
		want := "Hello.Program." + m
		if m == "Generic<String>.Enter" {
			want = "Hello.Program+Generic`1.Enter" // all type arguments that are classes share the code
		}
		if at < 0 || at >= len(frames) || frames[at].Method != want || frames[at].Signature != "()" ||
			frames[at].Kind != snapshot.Managed || frames[at].Offset == 0 {
			t.Errorf("not %v, but\n%s", methods, livetest.Text(frames))
			return
		}
		at++
	}
}

// checkCalledBack requires a stack of the host's main function, the library, and the host's function that the library's
// managed code calls. The library has a symbol for its entry point only. The functions between the two are
// NativeHost.InitializeModule, JSValue.CreateStringUtf16 and NodejsRuntime.CreateString, without names here.
func checkCalledBack(t *testing.T, frames []snapshot.Frame, library string) {
	t.Helper()
	callee := slices.IndexFunc(frames, func(f snapshot.Frame) bool { return f.Method == "napi_create_string_utf16" })
	entry := slices.IndexFunc(frames, func(f snapshot.Frame) bool {
		return f.Method == "napi_register_module_v1" && f.Module == library
	})
	if callee < 0 || entry-callee-1 < 3 || entry+1 >= len(frames) || frames[entry+1].Method != "main" {
		t.Errorf("the callback is frame %d, the entry point %d:\n%s", callee, entry, livetest.Text(frames))
		return
	}
	for _, f := range frames[callee+1 : entry] {
		if f.Kind != snapshot.Native || f.Module != library || f.Method != "" || f.Offset == 0 {
			t.Errorf("between callback and entry point is %+v", f)
		}
	}
}

// checkNoCLR requires that calls that need the CLR fail with an error that says why.
func checkNoCLR(t *testing.T, p *clrsnap.Process, pid int) {
	t.Helper()
	says := "process " + strconv.Itoa(pid) + " is a native AOT program"
	ignore := func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }
	_, subscribed := events.Subscribe(context.Background(), p, events.Options{})
	for what, err := range map[string]error{
		"DoStackSnapshot": p.DoStackSnapshot(1, ignore, 0, nil, nil),
		"Subscribe":       subscribed,
	} {
		if !errors.Is(err, clrsnap.CORPROF_E_RUNTIME_UNINITIALIZED) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if id, err := p.GetFunctionFromIP(0x1000); id != 0 || err != nil {
		t.Errorf("GetFunctionFromIP: %v, %v", id, err)
	}
}
