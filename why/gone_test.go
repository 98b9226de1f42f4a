package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestGone: requests that go on for gone clients are told, likely if more clients go meanwhile. Nothing is told if such
// a request has ended, if there are few, or if another verdict has a reason why the requests wait.
func TestGone(t *testing.T) {
	began := same(1).Began
	ids := func(from, to int) (out []int) {
		for id := from; id <= to; id++ {
			out = append(out, id)
		}
		return out
	}
	const path, own = "/live/{match}", "Sport.LiveScores.StreamAsync"
	timer := snapshot.Awaited{Kind: snapshot.AwaitsTimer, HasDue: true}
	for _, tt := range []struct {
		name         string
		was, is      []int // requests in flight at the two looks
		gone, goneIs []int // those whose clients have gone
		streams      bool
		certainty    profile.Certainty
		says         string
	}{
		{"become more", ids(1, 40), ids(1, 48), ids(1, 30), ids(1, 33), true, profile.Likely,
			"33 of 48 requests for GET /live/{match} are for clients that have gone. The program goes on, in " +
				"Sport.LiveScores.StreamAsync: of the 30 requests for clients gone 3.0 s ago, " +
				"none has ended, and 3 more clients have gone meanwhile. Long work should end when " +
				"HttpContext.RequestAborted is cancelled."},
		{"as many", ids(1, 40), ids(1, 40), ids(1, 30), ids(1, 30), true, profile.Possible,
			"gone 3.0 s ago, none has ended. Long work should end when HttpContext.RequestAborted is " +
				"cancelled."},
		{"one more, perhaps with work that must be done", ids(1, 40), ids(1, 40), ids(1, 30), ids(1, 31), false,
			profile.Possible, "and 1 more client has gone meanwhile. Long work should end when " +
				"HttpContext.RequestAborted is cancelled. Work to be done without a client, too, looks the same."},
		{"one has ended", ids(1, 40), ids(2, 40), ids(1, 30), ids(2, 33), true, "", ""},
		{"few", ids(1, 20), ids(1, 20), ids(1, 9), ids(1, 15), true, "", ""},
		{"a small part", ids(1, 40), ids(1, 40), ids(1, 12), ids(1, 13), true, "", ""},
		{"just gone", ids(1, 40), ids(1, 40), nil, ids(1, 30), true, "", ""},
		{"nobody has gone", ids(1, 40), ids(1, 40), nil, nil, true, "", ""},
	} {
		group := func(all, gone []int) []snapshot.RequestGroup {
			g := served(began, path, &timer, own, 20*time.Second, all...)
			for i, id := range all {
				g.Requests[i].Aborted, g.Requests[i].Answering = slices.Contains(gone, id), tt.streams
			}
			other := served(began, "/fixtures", &timer, "Sport.Fixtures.Get", time.Second, ids(100, 200)...)
			return []snapshot.RequestGroup{other, g}
		}
		e := flights(same(3), group(tt.was, tt.gone), group(tt.is, tt.goneIs))
		list := e.gone(nil)
		if tt.certainty == "" {
			for _, v := range list {
				t.Errorf("%s: %s", tt.name, v.Text)
			}
			continue
		}
		if len(list) != 1 || list[0].Certainty != tt.certainty || list[0].Cause != profile.CauseStalled ||
			!strings.Contains(list[0].Text, tt.says) || len(list[0].Evidence[0].Frames) == 0 {
			t.Errorf("%s: %+v", tt.name, list)
			continue
		}
		if again := e.gone(list); len(again) > 0 {
			t.Errorf("%s: told twice: %s", tt.name, again[0].Text)
		}
		if v := (profile.Verdict{Cause: profile.CauseCPU, Evidence: list[0].Evidence}); len(
			e.gone([]profile.Verdict{v})) != 1 {
			t.Errorf("%s: not told beside the use of CPUs", tt.name)
		}
		early := group(append(ids(50, 51), tt.was...), append(ids(50, 51), tt.gone...))
		e.Early = &gather.FlightLook{At: -time.Second, InFlight: &requests.InFlight{
			Requests: &snapshot.Requests{Requests: early},
		}}
		if list := e.gone(nil); len(list) > 0 {
			t.Errorf("%s: ended since an earlier look: %s", tt.name, list[0].Text)
		}
	}
}

// TestGoneElsewhere: without an endpoint the path of requests for one place may change. A request that has ended
// counts all the same. The places of the requests are told, the place with the most first.
func TestGoneElsewhere(t *testing.T) {
	began := same(1).Began
	timer := snapshot.Awaited{Kind: snapshot.AwaitsTimer, HasDue: true}
	group := func(path, own string, from, to int) snapshot.RequestGroup {
		g := served(began, path, &timer, own, 20*time.Second)
		for id := from; id <= to; id++ {
			g.Requests = append(g.Requests, snapshot.Request{ID: fmt.Sprint(id), Aborted: true})
		}
		return g
	}
	const write, read = "Sport.Live.Write", "Sport.Live.Read"
	before := []snapshot.RequestGroup{group("/live/…", write, 1, 30)}
	after := []snapshot.RequestGroup{group("/live/4…", read, 1, 9), group("/live/4…", write, 10, 30)}
	list := flights(same(3), before, after).gone(nil)
	if len(list) != 1 || !strings.Contains(list[0].Text, "most of all in "+write) || len(list[0].Evidence) != 2 ||
		list[0].Evidence[0].Text != "21 requests for gone clients:" {
		t.Errorf("%+v", list)
	}
	before[0] = group("/live/…", write, 0, 30)
	for _, v := range flights(same(3), before, after).gone(nil) {
		t.Errorf("one has ended: %s", v.Text)
	}
}

// TestStalledGone: of requests that stand still, the requests for gone clients are counted.
func TestStalledGone(t *testing.T) {
	began := same(1).Began
	for gone, says := range map[int]string{
		0: "", 1: " 1 of the requests is for a client that has gone.",
		3: " 3 of the requests are for clients that have gone.",
		4: " All these requests are for clients that have gone.",
	} {
		g := served(began, "/orders/{id}", &source, "Shop.Orders.Find", 203*time.Second, 1, 2, 3, 4)
		for i := range gone {
			g.Requests[i].Aborted = true
		}
		list := judgeStalled(flights(same(3), []snapshot.RequestGroup{g}, []snapshot.RequestGroup{g}))
		if len(list) != 1 || !strings.Contains(list[0].Text, says) ||
			strings.Contains(list[0].Text, "gone.") != (says != "") {
			t.Errorf("%d: %+v", gone, list)
		}
	}
}
