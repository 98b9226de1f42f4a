package session_test

import (
	"context"
	"regexp"
	"testing"

	"clrsnap/internal/heapwalk"
	"clrsnap/internal/livetest"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/testenv"
	"clrsnap/internal/walk"
)

// small keeps the reserved memory of a program's heap small.
var small = []string{"DOTNET_GCHeapHardLimit=0x4000000"}

// moments are the recorded moments, by the beginnings of their files' names.
var moments = map[string]moment{
	"deadlocks": {
		app: "deadlocks", o: testenv.Options{Env: small}, asks: []string{"truths"}, looks: []look{waitsLook},
	},
	"deadlocks-suspended": {
		app: "deadlocks", o: testenv.Options{Env: small, Compile: livetest.RuntimeAsync}, asks: []string{"truths"},
		looks: []look{waitsLook}, only: "net11",
	},
	"waits": {
		app: "waits", o: testenv.Options{Env: small}, asks: []string{"truths"}, looks: []look{waitsLook, threadsLook},
	},
	"tasks": {
		app: "tasks", o: testenv.Options{Env: small, Args: []string{"--suspended", "3", "--running"}},
		asks: []string{"truths"}, looks: []look{tasksLook, stacksLook},
	},
	"tasks-suspended": {
		app: "tasks", o: testenv.Options{
			Env: small, Args: []string{"--suspended", "3", "--running"}, Compile: livetest.RuntimeAsync,
		},
		asks: []string{"truths"}, looks: []look{tasksLook, stacksLook}, only: "net11",
	},
	"requests": {
		app: "requests", o: testenv.Options{Env: small}, start: upstream, begin: hang, asks: []string{"begun"},
		looks: []look{requestsLook, inFlightLook}, only: "net11",
	},
	"heap": {
		app: "heap", o: testenv.Options{Env: small, Args: []string{"--objects", "2000"}},
		asks: []string{"leak 300", "truth", "total"}, looks: []look{heapLook, objectsLook, retainedLook, pilesLook},
	},
	"keepers": {
		app: "keepers", o: testenv.Options{Env: small}, asks: []string{"truth"}, looks: []look{rootsLook},
		only: "net11",
	},
	"contexts": {app: "contexts", o: testenv.Options{Env: small}, looks: []look{contextsLook}, only: "net11"},
	"generics": {
		app: "generics", o: testenv.Options{Env: small}, asks: []string{"places"}, looks: []look{stacksLook},
		only: "net11",
	},
	"failing": {
		app: "failing", o: testenv.Options{Env: small, Args: []string{"--hold", heldWays}}, stderr: true,
		looks: []look{stacksLook}, only: "net11",
	},
	"ahead": {
		app: "hello", ahead: true, looks: []look{waitsLook, tasksLook, nodesLook}, only: "net11",
	},
	"hosted": {
		app: "hosted", o: testenv.Options{Env: small, Args: []string{"--of", "failed"}}, looks: []look{inFlightLook},
		only: "net11",
	},
}

// heldWays are the ways in which the program failing keeps a thread in a handler.
const heldWays = "catch,filter,finally,again,throw-ex,inner,during,dispatch,async,aggregate,aggregates,generic," +
	"iterator,lambda,dynamic,collectible,null,divide,constructor,argument,reflection,remote,deep,lines,no-message,cycle"

var everything = session.Options{
	Options: naming.Options{ExactGenerics: true, Lines: true},
	Inlined: true, Async: true, Permits: session.PermitsAlways,
}

func waitsLook(p *session.Process) (any, error) {
	return p.Snapshot(context.Background(), session.SnapshotOptions{Waits: true})
}

func stacksLook(p *session.Process) (any, error) {
	return p.Snapshot(context.Background(), session.SnapshotOptions{})
}

func tasksLook(p *session.Process) (any, error) {
	return p.Tasks(context.Background(), session.WalkOptions{})
}

func requestsLook(p *session.Process) (any, error) {
	return p.Requests(context.Background(), session.WalkOptions{})
}

func inFlightLook(p *session.Process) (any, error) {
	return p.InFlight(context.Background(), session.WalkOptions{}, true, true)
}

func heapLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{Owners: true})
}

func objectsLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Type: regexp.MustCompile(`^Shop\.Colour\[\]$`), MaxInstances: 10, MaxStrings: 1000,
	})
}

func nodesLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Type: regexp.MustCompile(`^Hello\.Node$`), MaxStrings: 10,
	})
}

func retainedLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{Keepers: true, Graph: true})
}

func rootsLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Roots: regexp.MustCompile(`^Shop\.(By[A-Z]\w*|Order|Listener|Reminder|Session)$`),
	})
}

func contextsLook(p *session.Process) (any, error) {
	return heapwalk.Heap(context.Background(), p, heapwalk.Options{
		Roots: regexp.MustCompile(`^(Contexts\.Treasure|System\.Reflection\.LoaderAllocator)$`), Retained: true,
	})
}

// pilesLook finds the large collections, and the dominator of the largest.
func pilesLook(p *session.Process) (any, error) {
	piles, err := heapwalk.Piles(context.Background(), p)
	if err != nil || len(piles) == 0 {
		return piles, err
	}
	keeper, count, err := heapwalk.Keeper(context.Background(), p, piles[0])
	return []any{piles, keeper, count}, err
}

// threadsLook suspends each thread, and asks about each frame what recordings ask.
func threadsLook(p *session.Process) (any, error) {
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

// eachMoment repeats a test for the moments of a program.
func eachMoment(t *testing.T, name string, test func(t *testing.T, m *recorded.Moment)) {
	t.Helper()
	for runtime := range momentRuntimes {
		if only := moments[name].only; only == "" || only == runtime {
			t.Run(runtime, func(t *testing.T) {
				m, err := recorded.ReadFile(momentFile(name + "-" + runtime))
				if err != nil {
					t.Fatal(err)
				}
				test(t, m)
			})
		}
	}
}

// lookAt is a look at a moment by a process of its own.
func lookAt[T any](t *testing.T, m *recorded.Moment, l look) T {
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
