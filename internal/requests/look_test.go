package requests

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestRequestsMissed: a walk finds missing requests by other objects, or by the results of an earlier walk.
func TestRequestsMissed(t *testing.T) {
	p := hangingRequests(t, "source", "semaphore", "delay", "several", "upstream")
	var all *walk
	var want map[string]string
	testenv.UntilSeen(t, func() string { // until the requests wait
		all = walkOf(t, p, nil, func(*walk) {})
		waiting := 0
		for _, s := range all.requests {
			if _, d := all.describe(s); d.State == snapshot.TaskWaiting {
				waiting++
			}
		}
		want = doings(all)
		connected := strings.HasSuffix(want["/upstream/{id}"], " answer}") // the call waits for nothing else any more
		if waiting != 5 || len(want) != 5 || !connected || len(all.listed) != 1 || all.missing() != 0 {
			return fmt.Sprintf("5 requests that wait, but %q, %d calls, %d missing", want, len(all.listed),
				all.missing())
		}
		return ""
	})
	check := func(what string, w *walk) {
		t.Helper()
		if got := doings(w); !maps.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("without Kestrel's objects", walkOf(t, p, nil, func(w *walk) { delete(w.Objects, serverClass) }))
	check("with what has been met before", walkOf(t, p, all, func(w *walk) {
		delete(w.Objects, tasks.BoxClass)
		delete(w.Objects, serverClass)
	}))
	blind := walkOf(t, p, nil, func(w *walk) { delete(w.Objects, tasks.BoxClass) })
	blind.inherit(all)
	check("with what earlier chains were", blind)

	for _, d := range []struct {
		lost  int
		whole bool
		want  int
	}{{0, true, 0}, {1, true, 5}, {0, false, 5}} {
		none := newWalk(context.Background(), p, session.WalkOptions{}, servingThreads{})
		none.lost, none.whole = d.lost, d.whole
		if none.inherit(all); len(none.requests) != d.want {
			t.Errorf("%+v: %d requests are kept", d, len(none.requests))
		}
	}

	both := walkOf(t, p, nil, func(*walk) {})
	for _, s := range all.requests { // results of an earlier walk on the same connection
		before := *s
		before.ID = strings.TrimSuffix(s.ID, "1") + "0"
		both.requests[before.ID] = &before
	}
	if both.dropEarlier(); !maps.Equal(doings(both), want) || len(both.requests) != 5 {
		t.Errorf("with what was served before: %d requests", len(both.requests))
	}
	for id := range both.requests {
		if all.requests[id] == nil {
			t.Errorf("%s was served before", id)
		}
	}

	outer := walkOf(t, p, nil, func(w *walk) {
		w.Objects[tasks.BoxClass] = slices.DeleteFunc(w.Objects[tasks.BoxClass], func(obj arch.Addr) bool {
			b, err := w.Reader.Box(obj)
			return err != nil || w.role(&async.Step{Box: b}) != web.Serving
		})
	})
	delete(want, "/several/{id}") // the task that awaits several methods does not lead to the methods
	got := doings(outer)
	delete(got, "/several/{id}")
	if !maps.Equal(got, want) || len(outer.listed) != 1 {
		t.Errorf("only with the methods that serve requests: %q and %d calls, want %q", got, len(outer.listed), want)
	}
}

// hangingRequests opens a server with hanging requests, one for each way.
func hangingRequests(t *testing.T, ways ...string) *session.Process {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { upstream.Close() }) // the listener accepts, and says nothing
	a := testenv.Start(t, "requests", testenv.Options{Args: []string{"--upstream", upstream.Addr().String()}})
	url := a.Ask("urls")[0]
	for i, way := range ways {
		go func() {
			r, err := http.Get(fmt.Sprintf("%s/%s/%d", url, way, i))
			if err != nil {
				return // the program has ended
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}()
	}
	testenv.UntilSeen(t, func() string {
		if begun := a.Ask("begun"); len(begun) < len(ways) {
			return fmt.Sprintf("%d requests, only %q have begun", len(ways), begun)
		}
		return ""
	})
	p, err := session.Open(context.Background(), a.PID, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// walkOf is a walk that has met only the objects left by miss.
func walkOf(t *testing.T, p *session.Process, earlier *walk, miss func(*walk)) *walk {
	t.Helper()
	w := newWalk(context.Background(), p, session.WalkOptions{}, servingThreads{})
	w.takeUp(earlier)
	before := p.Moments().Epoch()
	census, err := w.WalkHeap()
	if err != nil {
		t.Fatal(err)
	}
	w.whole = census.Consistent >= census.Size
	miss(w)
	w.read(before)
	return w
}

// doings are the methods and the wait of each hanging request, by its route.
func doings(w *walk) map[string]string {
	out := map[string]string{}
	for _, s := range w.requests {
		_, d := w.describe(s)
		var frames []string
		for i := range d.Frames {
			frames = append(frames, d.Frames[i].Display)
		}
		if d.WaitsFor != nil {
			frames = append(frames, string(d.WaitsFor.Kind))
		}
		out[s.Route] = strings.Join(frames, " ") + fmt.Sprint(d.Call)
	}
	return out
}
