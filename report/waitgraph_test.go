package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/snapshot"
)

// orders is a snapshot with a deadlock of two threads and a victim, a circle with a timeout, a lock whose owner has
// ended, a reader that blocks a writer, a semaphore, and hostile names.
func orders() *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Process: snapshot.Process{
			PID: 4242, Command: "dotnet Shop.dll", Runtime: snapshot.Runtime{Version: "10.0.14", Shape: "shared"},
		},
		CapturedAt: time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC),
	}
	add := func(name, method string, line int, w *snapshot.Wait, holds ...snapshot.Wait) {
		id := 4250 + len(s.Threads)
		s.Threads = append(s.Threads, snapshot.Thread{
			OSThreadID: id, ManagedThreadID: id - 4240, ThreadID: uint64(0x5000 + id), Name: name,
			State: "waiting (futex)", Wait: w, Holds: holds, Still: true, Complete: true,
			Frames: []snapshot.Frame{
				{Kind: snapshot.Native, Display: "pthread_cond_wait", Module: "libc.so.6"},
				{
					Kind: snapshot.Managed, Method: "System.Threading.Monitor.Enter",
					Display: "System.Threading.Monitor.Enter", Signature: "(object)", Module: "System.Private.CoreLib",
				},
				{
					Kind: snapshot.Managed, Method: method, Display: method,
					Short: method[strings.Index(method, ".")+1:], Signature: "()", Module: "Shop",
					Line: &snapshot.SourceLine{File: "/src/Shop/Orders.cs", Line: line},
				},
			},
		})
	}
	ref := func(i int, name string) *snapshot.ThreadRef {
		return &snapshot.ThreadRef{OSThreadID: 4250 + i, ManagedThreadID: 10 + i, Name: name}
	}
	wait := func(kind snapshot.WaitKind, object uint64, class string, owner *snapshot.ThreadRef) *snapshot.Wait {
		return &snapshot.Wait{
			Kind: kind, Object: object, Type: class, Owner: owner, Recursion: 1, Waiters: 1, Timeout: snapshot.Forever,
			Certain: true,
		}
	}
	order := snapshot.Wait{Kind: snapshot.MonitorEnter, Object: 0x7f10, Type: "Shop.Order", Recursion: 1, Waiters: 2,
		Certain: true}
	add("orders-1", "Shop.Orders.Book", 41,
		wait(snapshot.LockEnter, 0x7f20, "System.Threading.Lock", ref(1, "orders-2")), order)
	add("orders-2", "Shop.Stock.Take", 12, wait(snapshot.MonitorEnter, 0x7f10, "Shop.Order", ref(0, "orders-1")))
	add("web-1", "Shop.Web.Get", 7, wait(snapshot.MonitorEnter, 0x7f10, "Shop.Order", ref(0, "orders-1")))
	timed := wait(snapshot.TaskWait, 0x7f30, "System.Threading.Tasks.Task", ref(4, "pool"))
	timed.Timeout, timed.Detail = 30*time.Second, "Running"
	add("sync", "Shop.Sync.Run", 3, timed)
	add("pool", "Shop.Sync.Load", 9, wait(snapshot.ThreadJoin, 0x7f40, "System.Threading.Thread", ref(3, "sync")))
	add("late", "Shop.Late.Run", 5, wait(snapshot.MonitorEnter, 0x7f50, "Shop.Ledger\x1b[31m", &snapshot.ThreadRef{}))
	writer := wait(snapshot.WriteLock, 0x7f60, "System.Threading.ReaderWriterLockSlim", nil)
	writer.Readers, writer.Detail = []snapshot.ThreadRef{*ref(7, "reader")}, "1 reader"
	add("writer", "Shop.Table.Write", 30, writer)
	static := wait(snapshot.WaitRuntime, 0, "Shop.Config", ref(6, "writer"))
	static.Detail = "static constructor"
	add("reader", "Shop.Table.Read", 20, static)
	for i := range 6 {
		w := wait(snapshot.SemaphoreWait, 0x7f70, "System.Threading.SemaphoreSlim", nil)
		w.Detail = "count 0"
		add(fmt.Sprintf("call-%d<b>", i), "Shop.Client.Call", 77, w)
	}
	add("idle", "Shop.Main", 1, &snapshot.Wait{Kind: snapshot.ThreadSleep, Certain: true})
	ledger := snapshot.Wait{Kind: snapshot.LockEnter, Object: 0x7f80, Type: "System.Threading.Lock", Recursion: 1,
		Certain: true}
	permit := wait(snapshot.SemaphoreWait, 0x7f90, "System.Threading.SemaphoreSlim", nil)
	permit.Detail = "count 0"
	add("refund", "Shop.Pay.Refund", 61, permit, ledger)
	add("capture", "Shop.Pay.Book", 55, wait(snapshot.LockEnter, 0x7f80, "System.Threading.Lock", ref(15, "refund")))
	add("browse", "Shop.Pay.Show", 58, wait(snapshot.LockEnter, 0x7f80, "System.Threading.Lock", ref(15, "refund")))
	async := func(method string, line int) snapshot.Frame {
		return snapshot.Frame{
			Kind: snapshot.Async, Method: method, Display: method, Short: method, Module: "Shop",
			Line: &snapshot.SourceLine{File: "/src/Shop/Pay.cs", Line: line},
		}
	}
	s.Awaits = []snapshot.Await{{
		Object:   0x7fa0,
		Frames:   []snapshot.Frame{async("Shop.Pay.Capture\x1b[1m{async}", 44), async("Shop.Web.Post{async}", 9)},
		WaitsFor: &snapshot.Awaited{Kind: snapshot.AwaitsTask, Object: 0x7fb0, Type: "System.Threading.Tasks.Task"},
	}}
	s.LikelyEdges = []snapshot.LikelyEdge{
		{
			Waiter: snapshot.ThreadNode(15), Kind: snapshot.SemaphoreLock, Object: 0x7f90,
			Type: "System.Threading.SemaphoreSlim", Field: "Shop.Bank.Permits",
			Holders: []snapshot.WaitNode{snapshot.AwaitNode(0)},
		},
		{
			Waiter: snapshot.AwaitNode(0), Kind: snapshot.TaskLock, Object: 0x7fb0, Type: "System.Threading.Tasks.Task",
			Holders: []snapshot.WaitNode{snapshot.ThreadNode(16)}, Ends: true,
		},
	}
	s.Unsearched = "the managed heap is too large"
	return s
}

func TestWaitGraph(t *testing.T) {
	s := orders()
	for name, write := range map[string]func(io.Writer, *snapshot.WaitGraph) error{
		"waitgraph.txt": func(w io.Writer, g *snapshot.WaitGraph) error {
			return WaitGraph(w, s, g, WaitGraphOptions{Text: TextOptions{Terminal: Terminal{Width: 100}}})
		},
		"waitgraph-color.txt": func(w io.Writer, g *snapshot.WaitGraph) error {
			return WaitGraph(w, s, g, WaitGraphOptions{Text: TextOptions{Terminal: Terminal{Color: true}}, All: true})
		},
		"waitgraph.json": func(w io.Writer, g *snapshot.WaitGraph) error { return WaitGraphJSON(w, s, g) },
		"waitgraph.dot":  func(w io.Writer, g *snapshot.WaitGraph) error { return WaitGraphDOT(w, s, g) },
		"waitgraph.svg":  func(w io.Writer, g *snapshot.WaitGraph) error { return WaitGraphSVG(w, s, g) },
		"waitgraph.html": func(w io.Writer, g *snapshot.WaitGraph) error { return WaitGraphHTML(w, s, g) },
	} {
		var b bytes.Buffer
		if err := write(&b, s.WaitGraph()); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, name, b.Bytes())
		if strings.Contains(b.String(), "\x1b") && name != "waitgraph-color.txt" {
			t.Errorf("%s has an escape character", name)
		}
		if strings.Contains(b.String(), "<b>") && strings.HasSuffix(name, "ml") {
			t.Errorf("%s has markup of the program's", name)
		}
	}
}

// TestWaitGraphJSONNames: scripts rely on these names.
func TestWaitGraphJSONNames(t *testing.T) {
	s := orders()
	var b bytes.Buffer
	if err := WaitGraphJSON(&b, s, s.WaitGraph()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Locks []struct {
			Kind, Object, Type string
			Owner              struct{ OSThreadID int }
			Recursion          int
			Waiters            []struct {
				OSThreadID int
				Kind       string
			}
		}
		Deadlocks []struct {
			Threads []struct{ OSThreadID int }
			Text    string
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Deadlocks) != 3 || len(got.Deadlocks[0].Threads) != 2 ||
		got.Deadlocks[0].Threads[0].OSThreadID != 4250 ||
		got.Deadlocks[0].Text != "Deadlock: orders-1 (4250) holds Shop.Order 0x7f10 and waits for Lock 0x7f20, "+
			"held by orders-2 (4251), which waits for Shop.Order 0x7f10, held by orders-1 (4250)" {
		t.Errorf("deadlocks: %+v", got.Deadlocks)
	}
	for _, l := range got.Locks {
		if l.Object == "0x7f10" {
			if l.Kind != "Monitor" || l.Type != "Shop.Order" || l.Owner.OSThreadID != 4250 || l.Recursion != 1 ||
				len(l.Waiters) != 2 || l.Waiters[0].OSThreadID != 4251 || l.Waiters[0].Kind != "Monitor.Enter" {
				t.Errorf("%+v", l)
			}
			return
		}
	}
	t.Errorf("no lock of the order: %+v", got.Locks)
}

// TestWaitGraphXML: the picture is well-formed, with any names.
func TestWaitGraphXML(t *testing.T) {
	s := orders()
	for i := range s.Threads {
		s.Threads[i].Name += "</text>&\"'\x00\xff]]>"
	}
	var b bytes.Buffer
	if err := WaitGraphSVG(&b, s, s.WaitGraph()); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitGraphLarge: pictures and texts of many waiters stay small.
func TestWaitGraphLarge(t *testing.T) {
	s := &snapshot.Snapshot{}
	for i := range 5000 {
		w := &snapshot.Wait{
			Kind: snapshot.MonitorEnter, Object: uint64(1 + i/50), Type: "Shop.Order", Certain: true,
			Timeout: snapshot.Forever, Owner: &snapshot.ThreadRef{OSThreadID: 1 + i/50*7},
		}
		if i == 0 {
			w = nil
		}
		s.Threads = append(s.Threads, snapshot.Thread{OSThreadID: i + 1, Wait: w, Complete: true})
	}
	g := s.WaitGraph()
	var svg, text bytes.Buffer
	if err := WaitGraphSVG(&svg, s, g); err != nil || svg.Len() > 500_000 {
		t.Errorf("SVG: %d bytes, %v", svg.Len(), err)
	}
	if err := WaitGraph(&text, s, g, WaitGraphOptions{}); err != nil || text.Len() > 100_000 {
		t.Errorf("text: %d bytes, %v", text.Len(), err)
	}
}

// TestWaitGraphFewBoxes: a picture has a bounded number of boxes, one for each thread, and says how many are left
// out.
func TestWaitGraphFewBoxes(t *testing.T) {
	s := &snapshot.Snapshot{}
	add := func(object uint64, owner *snapshot.ThreadRef, readers ...snapshot.ThreadRef) {
		s.Threads = append(s.Threads,
			snapshot.Thread{OSThreadID: len(s.Threads) + 1, Complete: true, Wait: &snapshot.Wait{
				Kind: snapshot.WriteLock, Object: object, Certain: true, Timeout: snapshot.Forever, Owner: owner,
				Readers: readers,
			}})
	}
	s.Threads = append(s.Threads, snapshot.Thread{OSThreadID: 1})
	add(1, &snapshot.ThreadRef{OSThreadID: 1})                                        // 2 waits for 1
	add(2, nil, snapshot.ThreadRef{OSThreadID: 1}, snapshot.ThreadRef{OSThreadID: 2}) // 3 for both
	p := newPicture(s, s.WaitGraph())
	if len(p.boxes) != 3 || p.left != 0 {
		t.Errorf("%d boxes, %d left out", len(p.boxes), p.left)
	}
	for i := range 1000 {
		add(uint64(10+i), nil)
	}
	if p := newPicture(s, s.WaitGraph()); len(p.boxes) > mostBoxes+1 || p.left < 1000-mostBoxes {
		t.Errorf("%d boxes, %d left out", len(p.boxes), p.left)
	}
}

func TestDeadlockText(t *testing.T) {
	s := orders()
	want := []string{
		"Deadlock: orders-1 (4250) holds Shop.Order 0x7f10 and waits for Lock 0x7f20, held by orders-2 (4251), which " +
			"waits for Shop.Order 0x7f10, held by orders-1 (4250)",
		`Deadlock: late (4255) waits for Shop.Ledger\x1b[31m 0x7f50: the owner has ended without leaving ` +
			"the lock, so the lock will never be free",
		"Deadlock: writer (4256) waits to write under ReaderWriterLockSlim 0x7f60, which is read by reader (4257), " +
			"which waits for the static constructor of Shop.Config, run by writer (4256)",
		"Circle of waits: sync (4253) waits for Task 0x7f30, run by pool (4254), which waits for the end of sync " +
			"(4253): the circle ends by itself, because one thread waits for at most 30 s",
	}
	g := s.WaitGraph()
	for i, d := range append(g.Deadlocks, g.Suspected...) {
		if got := DeadlockText(s, &d); i >= len(want) || got != want[i] {
			t.Errorf("%d: %s", i, got)
		}
	}
	d := g.Deadlocks[1]
	d.Timeout = 5 * time.Second
	if got := DeadlockText(s, &d); !strings.HasPrefix(got, "Abandoned lock: late (4255) waits for ") ||
		!strings.HasSuffix(got, "so the lock will never be free, but one thread waits for at most 5 s") {
		t.Error(got)
	}
}

// TestWaitGraphLikely: a picture of a likely circle without a thread has its members and dashed arrows. The picture
// of a likely wait edge with many holders stays small.
func TestWaitGraphLikely(t *testing.T) {
	s := &snapshot.Snapshot{Awaits: make([]snapshot.Await, 60)}
	for i := range s.Awaits {
		s.Awaits[i].Object = uint64(0x7f00 + 8*i)
		need := snapshot.LikelyEdge{
			Waiter: snapshot.AwaitNode(i), Kind: snapshot.SemaphoreLock, Object: 1,
			Type: "System.Threading.SemaphoreSlim",
		}
		if i < 2 {
			need.Holders = []snapshot.WaitNode{snapshot.AwaitNode(1 - i)}
		} else {
			for k := 2; k < len(s.Awaits); k++ {
				need.Holders = append(need.Holders, snapshot.AwaitNode(k))
			}
		}
		s.LikelyEdges = append(s.LikelyEdges, need)
	}
	g := s.WaitGraph()
	p := newPicture(s, g)
	dashes := 0
	for _, a := range p.more {
		if a.likely {
			dashes++
		}
	}
	if most := 2 + 58*(mostNeeds+1); len(g.Likely) != 2 || len(p.boxes) != 60 || dashes < 60 || dashes > most {
		t.Errorf("%d circles, %d boxes, %d dashed arrows", len(g.Likely), len(p.boxes), dashes)
	}
	var dot bytes.Buffer
	if err := WaitGraphDOT(&dot, s, g); err != nil || strings.Count(dot.String(), "style=dashed") != dashes {
		t.Errorf("%v\n%s", err, dot.String())
	}
	if first := knotsOf(s, g)[0]; len(first.needs) != 2 && len(first.nodes) == 2 {
		t.Errorf("%+v", first)
	}
}

// TestBehind: a reader behind a waiting writer is said to wait for the writer.
func TestBehind(t *testing.T) {
	const table = "System.Threading.ReaderWriterLockSlim"
	refs := []snapshot.ThreadRef{{OSThreadID: 1, Name: "report"}, {OSThreadID: 2, Name: "pool"},
		{OSThreadID: 3, Name: "importer"}}
	list := []snapshot.Wait{
		{Kind: snapshot.TaskWait, Object: 0x10, Type: "System.Threading.Tasks.Task", Owner: &refs[1],
			Detail: "Running"},
		{Kind: snapshot.ReadLock, Object: 0x20, Type: table, Behind: refs[2:]},
		{Kind: snapshot.WriteLock, Object: 0x20, Type: table, Readers: refs[:1]},
	}
	s := &snapshot.Snapshot{}
	for i := range list {
		list[i].Certain, list[i].Timeout = true, snapshot.Forever
		s.Threads = append(s.Threads,
			snapshot.Thread{OSThreadID: i + 1, Name: refs[i].Name, Still: true, Wait: &list[i]})
	}
	many := snapshot.Wait{Kind: snapshot.ReadLock, Object: 0x20, Type: table, Behind: refs, Certain: true}
	if got := waitText(&many); got != "waits to read under ReaderWriterLockSlim 0x20 behind report (1) and 2 others" {
		t.Error(got)
	}
	g := s.WaitGraph()
	if len(g.Deadlocks) != 1 {
		t.Fatalf("%+v", g)
	}
	const want = "Deadlock: report (1) reads under ReaderWriterLockSlim 0x20 and waits for Task 0x10, run by pool " +
		"(2), which waits to read under ReaderWriterLockSlim 0x20, behind importer (3), which waits to write under " +
		"ReaderWriterLockSlim 0x20, which is read by report (1)"
	if got := DeadlockText(s, &g.Deadlocks[0]); got != want {
		t.Errorf("%s\nwant: %s", got, want)
	}
}

// TestWaitGraphRegisters: the document has the stops and the source of registers, like the document of stacks.
func TestWaitGraphRegisters(t *testing.T) {
	for _, s := range []*snapshot.Snapshot{
		{},
		{Stops: []time.Duration{5 * time.Microsecond}, Released: 1,
			Registers: snapshot.Registers{From: snapshot.RegistersTogether, Reason: "no right"}},
	} {
		var stacks, locks bytes.Buffer
		if err := errors.Join(JSON(&stacks, s), WaitGraphJSON(&locks, s, &snapshot.WaitGraph{})); err != nil {
			t.Fatal(err)
		}
		type counted struct {
			Stops             *int
			Pauses, Registers map[string]any
		}
		var want, got counted
		if err := errors.Join(json.Unmarshal(stacks.Bytes(), &want), json.Unmarshal(locks.Bytes(), &got)); err != nil {
			t.Fatal(err)
		}
		told := s.Registers.From != ""
		stops := len(s.Stops) + s.Released
		if !reflect.DeepEqual(got, want) || got.Stops == nil || *got.Stops != stops || (got.Pauses != nil) != told {
			t.Errorf("%s", locks.Bytes())
		}
	}
}
