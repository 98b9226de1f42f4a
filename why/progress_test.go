package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// source is what an async method waits for that only the program can bring about.
var source = snapshot.Awaited{Kind: snapshot.AwaitsCompletion, Type: "System.Threading.Tasks.TaskCompletionSource"}

// served makes a group of requests for a path, with the given numbers, begun so long before the look.
func served(at time.Time, path string, wait *snapshot.Awaited, own string, age time.Duration, ids ...int,
) snapshot.RequestGroup {
	g := snapshot.RequestGroup{Method: "GET", Path: path, Doing: snapshot.Doing{
		State: snapshot.TaskWaiting, WaitsFor: wait, Frames: stack(own),
	}}
	for _, id := range ids {
		g.Requests = append(g.Requests, snapshot.Request{ID: fmt.Sprintf("0HN%d:00000001", id), Since: at.Add(-age)})
	}
	return g
}

// flights are two looks, some seconds apart.
func flights(e *evidence, before, after []snapshot.RequestGroup) *evidence {
	for i, groups := range [][]snapshot.RequestGroup{before, after} {
		at := time.Duration(i) * 3 * time.Second
		e.Flights = append(e.Flights, gather.FlightLook{At: at, InFlight: &requests.InFlight{
			Requests: &snapshot.Requests{Requests: groups, CapturedAt: e.Began.Add(at)}, Tasks: &snapshot.Tasks{},
			Begun: map[string]int{"0HN1": 1 + 30*i},
		}})
	}
	return e
}

// TestStalled: requests that neither end nor go on are told, however busy the process is. Requests that end, go on, are
// answered, or end by themselves are not.
func TestStalled(t *testing.T) {
	began := same(1).Began
	ids := func(from, to int) (out []int) {
		for id := from; id <= to; id++ {
			out = append(out, id)
		}
		return out
	}
	socket := snapshot.Awaited{Kind: snapshot.AwaitsSocket,
		Target: "recv tcp 10.0.0.1:1000 → 10.0.0.9:5432 established"}
	timer := snapshot.Awaited{Kind: snapshot.AwaitsTimer, HasDue: true}
	const path, own = "/orders/{id}", "Shop.Orders.Find"
	all := ids(1, 40)
	for _, tt := range []struct {
		name       string
		wait, last *snapshot.Awaited // at the two looks
		age        time.Duration     // at the last look
		was, is    []int
		answering  bool
		certainty  profile.Certainty
	}{
		{"forty that stand", &source, &source, 30 * time.Second, all, all, false, profile.Likely},
		{"three for minutes", &source, &source, 203 * time.Second, ids(1, 3), ids(1, 3), false, profile.Likely},
		{"three that may be a long poll", &source, &source, 23 * time.Second, ids(1, 3), ids(1, 3), false,
			profile.Possible},
		{"a database", &socket, &socket, 30 * time.Second, all, all, false, profile.Possible},
		{"just begun", &source, &source, 4 * time.Second, all, all, false, ""},
		{"two", &source, &source, 203 * time.Second, ids(1, 2), ids(1, 2), false, ""},
		{"one has ended", &source, &source, 30 * time.Second, all, ids(2, 40), false, ""},
		{"others now", &source, &source, 4 * time.Second, all, ids(41, 80), false, ""},
		{"gone on", &source, &socket, 30 * time.Second, all, all, false, ""},
		{"a timer", &timer, &timer, 30 * time.Second, all, all, false, ""},
		{"streams", &source, &source, 30 * time.Second, all, all, true, ""},
	} {
		age := tt.age - 3*time.Second // at the first look: the looks are three seconds apart
		before := served(began, path, tt.wait, own, age, tt.was...)
		after := served(began, path, tt.last, own, age, tt.is...)
		for _, g := range []*snapshot.RequestGroup{&before, &after} {
			for k := range g.Requests {
				g.Requests[k].Answering = tt.answering
			}
		}
		e := flights(same(3, running(7, "Shop.Cache.Find")).runs(7, 1, 0), []snapshot.RequestGroup{before},
			[]snapshot.RequestGroup{after})
		list := judgeStalled(e)
		if tt.certainty == "" {
			for _, v := range list {
				t.Errorf("%s: %s", tt.name, v.Text)
			}
			continue
		}
		if len(list) != 1 || list[0].Certainty != tt.certainty || list[0].Cause != profile.CauseStalled {
			t.Errorf("%s: %+v", tt.name, list)
			continue
		}
		for _, says := range []string{"requests for GET /orders/{id} stand still: none has ended or gone on in 3.0 s",
			"in Shop.Orders.Find"} {
			if !strings.Contains(list[0].Text, says) {
				t.Errorf("%s: %q is not in %q", tt.name, says, list[0].Text)
			}
		}
	}
	still := []snapshot.RequestGroup{served(began, path, &source, own, 27*time.Second, all...)}
	if n := flights(same(1), still, still).RequestsEnded(); n != 30 {
		t.Errorf("%d requests have ended, want 30", n)
	}
}

// TestStalledMethods: a queue of async methods that only grows is told. A queue that moves, or does not grow, is not.
func TestStalledMethods(t *testing.T) {
	semaphore := snapshot.Awaited{Kind: snapshot.AwaitsSemaphore, Object: 0x40, Type: "System.Threading.SemaphoreSlim"}
	written := snapshot.Awaited{Kind: snapshot.AwaitsChannel,
		Type: "System.Threading.Channels.BlockedWriteAsyncOperation<int>"}
	read := snapshot.Awaited{Kind: snapshot.AwaitsChannel,
		Type: "System.Threading.Channels.BlockedReadAsyncOperation<int>"}
	for _, tt := range []struct {
		name                     string
		wait                     snapshot.Awaited
		first, last, nextF, next uint64 // objects at the first and the last look: from, up to
		again                    uint64 // 1: at the last look, the methods wait for other objects
		says                     string
	}{
		{"grows", semaphore, 1, 20, 1, 30, 0,
			"30 async methods wait for a permit of a SemaphoreSlim, in Shop.Books.Book, and become more: none of the " +
				"20 that"},
		{"full", written, 1, 20, 1, 21, 0, "room in a full channel"},
		{"consumers", read, 1, 20, 1, 30, 0, ""},
		{"moves", semaphore, 1, 20, 2, 40, 0, ""},
		{"wait again", semaphore, 1, 20, 1, 30, 1, ""},
		{"as before", semaphore, 1, 20, 1, 20, 0, ""},
		{"few", semaphore, 1, 5, 1, 9, 0, ""},
	} {
		chain := snapshot.TaskChain{Frames: stack("Shop.Books.Book"), WaitsFor: &tt.wait, State: snapshot.TaskWaiting}
		e := flights(same(1), nil, nil)
		for i, objects := range [][2]uint64{{tt.first, tt.last}, {tt.nextF, tt.next}} {
			waiting := map[uint64]requests.WaitingChain{}
			for object := objects[0]; object <= objects[1]; object++ {
				waiting[object] = requests.WaitingChain{Key: tasks.ChainKey(&chain), For: object + tt.again*uint64(i)}
			}
			c := chain
			c.Count = len(waiting)
			e.Flights[i].Waiting, e.Flights[i].Tasks.Chains = waiting, []snapshot.TaskChain{c}
		}
		list := judgeStalled(e)
		if tt.says == "" {
			for _, v := range list {
				t.Errorf("%s: %s", tt.name, v.Text)
			}
		} else if len(list) != 1 || !strings.Contains(list[0].Text, tt.says) {
			t.Errorf("%s: %+v", tt.name, list)
		}
	}
}
