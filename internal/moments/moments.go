// Package moments has the recorded moments of programs for the tests of several rooms, and the looks at the moments.
//
// A moment is the memory of a program that held still, and the program's own truths (package target/recorded). Tests
// compare what a look finds in the memory with the truths, without .NET. TestRecordMoments records moments anew.
package moments

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/deadlock"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/livetest"
	"clrsnap/internal/naming"
	"clrsnap/internal/requests"
	"clrsnap/internal/session"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/tasks"
	"clrsnap/internal/testenv"
	"clrsnap/internal/walk"
)

// small keeps the reserved memory of a program's heap small.
var small = []string{"DOTNET_GCHeapHardLimit=0x4000000"}

// program is a program whose moment was recorded.
type program struct {
	app    string
	ahead  bool // compiled ahead of time
	o      testenv.Options
	start  func(*testing.T, *testenv.Options) // changes the options of the start; nil: nothing
	begin  func(*testing.T, *testenv.App)     // what happens before the moment; nil: nothing
	asks   []string                           // questions to the program: the answers are the moment's truths
	stderr bool                               // stderr is a truth, too
	only   string                             // the only runtime; "": all
	looks  []Look
}

// Look asks of a process what a test compares.
type Look func(*session.Process) (any, error)

// runtimes are the runtimes of the moments, by the names in the names of files.
var runtimes = map[string]string{"net10": "10.0.14", "net11": "11.0.0"}

// programs are the programs of the recorded moments, by the beginnings of their files' names.
var programs = map[string]program{
	"deadlocks": {
		app: "deadlocks", o: testenv.Options{Env: small}, asks: []string{"truths"}, looks: []Look{Waits},
	},
	"deadlocks-suspended": {
		app: "deadlocks", o: testenv.Options{Env: small, Compile: livetest.RuntimeAsync}, asks: []string{"truths"},
		looks: []Look{Waits}, only: "net11",
	},
	"waits": {
		app: "waits", o: testenv.Options{Env: small}, asks: []string{"truths"}, looks: []Look{Waits, Threads},
	},
	"tasks": {
		app: "tasks", o: testenv.Options{Env: small, Args: []string{"--suspended", "3", "--running"}},
		asks: []string{"truths"}, looks: []Look{Tasks, Stacks},
	},
	"tasks-suspended": {
		app: "tasks", o: testenv.Options{
			Env: small, Args: []string{"--suspended", "3", "--running"}, Compile: livetest.RuntimeAsync,
		},
		asks: []string{"truths"}, looks: []Look{Tasks, Stacks}, only: "net11",
	},
	"requests": {
		app: "requests", o: testenv.Options{Env: small}, start: upstream, begin: hang, asks: []string{"begun"},
		looks: []Look{Requests, InFlight}, only: "net11",
	},
	"heap": {
		app: "heap", o: testenv.Options{Env: small, Args: []string{"--objects", "2000"}},
		asks: []string{"leak 300", "truth", "total"}, looks: []Look{Heap, Objects, Retained, Piles},
	},
	"keepers": {
		app: "keepers", o: testenv.Options{Env: small}, asks: []string{"truth"}, looks: []Look{Roots},
		only: "net11",
	},
	"contexts": {app: "contexts", o: testenv.Options{Env: small}, looks: []Look{Contexts}, only: "net11"},
	"generics": {
		app: "generics", o: testenv.Options{Env: small}, asks: []string{"places"}, looks: []Look{Stacks},
		only: "net11",
	},
	"failing": {
		app: "failing", o: testenv.Options{Env: small, Args: []string{"--hold", heldWays}}, stderr: true,
		looks: []Look{Stacks}, only: "net11",
	},
	"ahead": {
		app: "hello", ahead: true, looks: []Look{Waits, Tasks, Nodes}, only: "net11",
	},
	"hosted": {
		app: "hosted", o: testenv.Options{Env: small, Args: []string{"--of", "failed"}}, looks: []Look{InFlight},
		only: "net11",
	},
}

// heldWays are the ways in which the program failing keeps a thread in a handler.
const heldWays = "catch,filter,finally,again,throw-ex,inner,during,dispatch,async,aggregate,aggregates,generic," +
	"iterator,lambda,dynamic,collectible,null,divide,constructor,argument,reflection,remote,deep,lines,no-message,cycle"

var everything = session.Options{
	Options: naming.Options{ExactGenerics: true, Lines: true}, Inlined: true, Async: true,
}

// Waits looks for wait edges.
func Waits(p *session.Process) (any, error) {
	return deadlock.Snapshot(context.Background(), p, deadlock.Options{Permits: deadlock.PermitsAlways})
}

// Stacks takes the stacks of all threads.
func Stacks(p *session.Process) (any, error) {
	return p.Snapshot(context.Background(), session.SnapshotOptions{})
}

// Tasks finds the async methods.
func Tasks(p *session.Process) (any, error) {
	return tasks.Find(context.Background(), p, session.WalkOptions{})
}

// Requests finds the requests of a web server.
func Requests(p *session.Process) (any, error) {
	return requests.Find(context.Background(), p, session.WalkOptions{})
}

// InFlight is Requests for callers that compare two moments.
func InFlight(p *session.Process) (any, error) {
	return requests.FindInFlight(context.Background(), p, session.WalkOptions{}, true, true)
}

// Heap counts all objects by type.
func Heap(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{Owners: true})
}

// Objects lists single objects and texts of the program heap.
func Objects(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Type: regexp.MustCompile(`^Shop\.Colour\[\]$`), MaxInstances: 10, MaxStrings: 1000,
	})
}

// Nodes lists single objects of the program hello.
func Nodes(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Type: regexp.MustCompile(`^Hello\.Node$`), MaxStrings: 10,
	})
}

// Retained finds what keeps what.
func Retained(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{Dominators: true, Graph: true})
}

// Roots finds the paths to objects of the program keepers.
func Roots(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Roots: regexp.MustCompile(`^Shop\.(By[A-Z]\w*|Order|Listener|Reminder|Session)$`),
	})
}

// Contexts finds the paths to objects of the program contexts.
func Contexts(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Roots: regexp.MustCompile(`^(Contexts\.Treasure|System\.Reflection\.LoaderAllocator)$`), Retained: true,
	})
}

// Piles finds the large collections, and the dominator of the largest.
func Piles(p *session.Process) (any, error) {
	piles, err := heapwalk.Piles(context.Background(), p)
	if err != nil || len(piles) == 0 {
		return piles, err
	}
	keeper, count, err := heapwalk.PilePath(context.Background(), p, piles[0])
	return []any{piles, keeper, count}, err
}

// Threads suspends each thread, and asks about each frame what recordings ask.
func Threads(p *session.Process) (any, error) {
	threads, err := p.Threads()
	if err != nil {
		return nil, err
	}
	var out []any
	for _, th := range threads {
		if th.ID == 0 {
			continue
		}
		st, err := p.SnapshotThread(context.Background(), th.ID)
		if err != nil {
			return nil, err
		}
		s, err := p.Suspend(th.ID)
		if err != nil {
			return nil, err
		}
		named, calls := s.Named()
		for i := range calls {
			out = append(out, p.InlinedAt(&calls[i]))
		}
		out = append(out, st, named, len(calls), frameFacts(p, s))
		s.Release()
	}
	return out, nil
}

// frameFacts are what recordings ask about the frames of a suspended thread.
func frameFacts(p *session.Process, s *session.Suspension) (out []any) {
	ctx := s.Walk.Context
	p.Walker.Walk(&s.Walk, &ctx, walk.ByUnwindInfo, func(f *walk.Frame) bool {
		fr, _ := p.LastingFrame(f)
		out = append(out, fr.Frame)
		if f.Kind != walk.Managed {
			_, at := p.NativePlace(f)
			out = append(out, p.NativeFrame(f), at)
			return true
		}
		place, ok := p.Place(f, &fr)
		out = append(out, place.IL, place.Next, place.Method, ok, p.Sites(&fr), p.MayHaveContext(f))
		slot, context, ok := p.Context(f)
		out = append(out, slot, context, ok)
		if m, err := p.Method(f.Code.MethodDesc); err == nil {
			out = append(out, m.Exact)
		}
		code, ok := p.AsyncCode(f, &fr)
		suspendable, can := p.Suspendable(f.Code.MethodDesc)
		out = append(out, code, ok, suspendable, can, p.ReadsChannel(&fr.Frame))
		return true
	})
	return out
}

// Each repeats a test for the moments of a program.
func Each(t *testing.T, name string, test func(t *testing.T, m *recorded.Moment)) {
	t.Helper()
	for runtime := range runtimes {
		if only := programs[name].only; only == "" || only == runtime {
			t.Run(runtime, func(t *testing.T) {
				m, err := recorded.ReadFile(fileOf(name + "-" + runtime))
				if err != nil {
					t.Fatal(err)
				}
				test(t, m)
			})
		}
	}
}

// At is a look at a moment by a process of its own.
func At[T any](t *testing.T, m *recorded.Moment, l Look) T {
	t.Helper()
	p, err := session.OpenRecorded(t.Context(), m, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	result, err := l(p)
	if err != nil {
		t.Fatal(err)
	}
	return result.(T)
}

// folder has the files of the moments. Rooms lie beside this package.
const folder = "../moments/testdata"

func fileOf(name string) string { return filepath.Join(folder, name+".moment") }

// upstream starts a server that never answers, for the requests of /upstream.
func upstream(t *testing.T, o *testenv.Options) {
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); s.CloseClientConnections(); s.Close() })
	o.Args = append(slices.Clone(o.Args), "--upstream", strings.TrimPrefix(s.URL, "http://"))
}

// hang has requests of some kinds hang.
func hang(t *testing.T, a *testenv.App) {
	url := a.Ask("urls")[0]
	kinds := []string{"source", "delay", "semaphore", "several", "thread", "thread-later", "task", "upstream",
		"upstream", "upstream", "answering"}
	for i, kind := range kinds {
		go func() {
			if r, err := http.Get(fmt.Sprintf("%s/%s/%d?key=secret", url, kind, i)); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
	for deadline := time.Now().Add(testenv.Hang); len(a.Ask("begun")) < len(kinds); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the requests do not begin")
		}
	}
}

// Compare reports the differences of texts by name.
func Compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %q, want %q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q, want none", name, got[name])
		}
	}
}
