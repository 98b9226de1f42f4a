package why

import (
	"strings"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestWaited: waits in own code that last the whole time are told, though they need not be wrong.
func TestWaited(t *testing.T) {
	adds := snapshot.Wait{Kind: snapshot.CollectionAdd, Object: 0x40,
		Type: "System.Collections.Concurrent.BlockingCollection<int>"}
	mutex := snapshot.Wait{Kind: snapshot.HandleOne, Type: "System.Threading.Mutex", Object: 0x50,
		Detail: "named orders, held by thread 812 of process 811 (shop)"}
	host := snapshot.Wait{Kind: snapshot.TaskWait, Method: "Microsoft.Extensions.Hosting.HostExtensions.RunAsync"}
	again := func(id int) snapshot.Thread { // a polling thread
		return worker(waiting(id, snapshot.Wait{Kind: snapshot.ThreadSleep}, "Shop.Store.Retry"))
	}
	e := same(3, again(11), again(12), waiting(1, adds, "System.Threading.Monitor.Wait", "Shop.Feed.Put"),
		waiting(2, adds, "Shop.Feed.Put"),
		waiting(3, mutex, "Shop.Store.Save"), waiting(4, snapshot.Wait{Kind: snapshot.ThreadSleep}, "Shop.Clock.Tick"),
		waiting(5, host, "Shop.Program.Main"), waiting(6, adds, "System.Threading.Monitor.Wait"),
		running(7, "Shop.Cache.Find"), waiting(8, adds, "Shop.Feed.Other")).runs(8, 0.5, 0).runs(11, 0.1, 0)
	room := snapshot.Awaited{Kind: snapshot.AwaitsChannel,
		Type: "System.Threading.Channels.BlockedWriteAsyncOperation<int>"}
	timer := snapshot.Awaited{Kind: snapshot.AwaitsTimer}
	chains := []snapshot.TaskChain{
		{Count: 5, Frames: stack("Shop.Outbox.Send"), WaitsFor: &room, State: snapshot.TaskWaiting},
		{Count: 3, Frames: stack("Shop.Outbox.Send"), WaitsFor: &room, State: snapshot.TaskWaiting},
		{Count: 9, Frames: stack("Shop.Clock.Later"), WaitsFor: &timer, State: snapshot.TaskWaiting},
		{Count: 9, Frames: stack("Shop.Outbox.Next"), WaitsFor: &room, State: snapshot.TaskReady},
	}
	r := snapshot.Requests{CapturedAt: e.Began.Add(time.Minute), Requests: []snapshot.RequestGroup{{
		Requests: []snapshot.Request{
			{Method: "GET", Path: "/a"}, {Method: "GET", Path: "/b", Since: e.Began.Add(time.Second)},
		},
	}}}
	e.Flights = []gather.FlightLook{{InFlight: &requests.InFlight{Requests: &r,
		Tasks: &snapshot.Tasks{Chains: chains}}}}
	want := []string{
		"2 threads wait in Shop.Feed.Put. One of them, orders-1 (1), waits to add to BlockingCollection<int> 0x40.",
		"2 workers of the thread pool sleep in Shop.Store.Retry: no other work gets them.",
		"orders-3 (3) waits for Mutex 0x50 (named orders, held by thread 812 of process 811 (shop)), in " +
			"Shop.Store.Save.",
		"8 async methods wait for room in a full channel, in Shop.Outbox.Send.",
		"2 requests are in flight, the oldest one for 59 s: GET /b.",
	}
	var got []string
	for _, w := range e.report().Waits {
		got = append(got, w.Text)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// TestLost: a permit counts as lost if the first method in the queue stays the same for a while.
func TestLost(t *testing.T) {
	lost := snapshot.Lost{Object: 0x30, Type: "System.Threading.SemaphoreSlim", Field: "Shop.Books.gate", First: 0x60,
		Awaits: 20, Frames: stack("Shop.Books.Book")}
	next := lost
	next.First = 0x61
	e := same(2)
	if e.Lost = gather.StillLost([]snapshot.Lost{lost}, []snapshot.Lost{next}); len(judgeLost(e)) > 0 {
		t.Error("somebody has got a permit, and it is lost")
	}
	e.Lost = gather.StillLost([]snapshot.Lost{lost}, []snapshot.Lost{lost})
	verdict(t, judgeLost(e), profile.CauseLockContention, profile.Likely,
		"20 async methods wait for a permit of SemaphoreSlim 0x30", "Books.gate", "Shop.Books.Book", "was not released")
}

// TestLostByIterators: the permit of an iterator that nothing keeps is lost, also if others still get permits. Somebody
// may go on with an iterator that has moved, or is kept.
func TestLostByIterators(t *testing.T) {
	lost := func(first uint64, iterators ...uint64) []snapshot.Lost {
		return []snapshot.Lost{{Object: 0x30, Type: "System.Threading.SemaphoreSlim", Field: "Shop.Store.cursors",
			First: first, Awaits: 9, Frames: stack("Shop.Store.Find"), Permits: 8, Iterators: iterators,
			Iterator: "Shop.Store.Rows"}}
	}
	for _, tt := range []struct {
		before, now []snapshot.Lost
		unkept      []uint64
		says        string
	}{
		{lost(0x60, 1, 2, 3), lost(0x60, 1, 2, 3), []uint64{1, 2, 3},
			"and none has got one for at least 2.0 s. 3 of its 8 " +
				"permits are lost: 3 iterators of Shop.Store.Rows took a permit each"},
		{lost(0x60, 1, 2, 3), lost(0x61, 2, 3, 4), []uint64{2, 4},
			"Store.cursors). 1 of its 8 permits is lost: 1 iterator"},
		{lost(0x60, 1, 2), lost(0x60, 1, 2), nil, ""},
		{lost(0x60, 1, 2), lost(0x60, 3, 4), []uint64{3, 4}, ""},
	} {
		e := same(2)
		e.Lost = gather.OnlyUnkept(gather.StillLost(tt.before, tt.now), tt.unkept)
		if tt.says == "" {
			none(t, judgeLost(e))
			continue
		}
		verdict(t, judgeLost(e), profile.CauseLockContention, profile.Likely, tt.says, "Shop.Store.Find")
	}
}

// TestWaitPhraseUncertain: uncertain facts are marked.
func TestWaitPhraseUncertain(t *testing.T) {
	lock := snapshot.Wait{Kind: snapshot.LockEnter, Type: "System.Threading.Lock", Object: 0x7f10}
	th := snapshot.Thread{Wait: &lock, Holds: []snapshot.Wait{lock}}
	th.Holds[0].Object = 0x7f20
	const both = " holds Lock 0x7f20 (uncertain) and waits to enter Lock 0x7f10 (uncertain)"
	if got := phrase.WaitPhrase(&th); got != both {
		t.Errorf("%q, want %q", got, both)
	}
	lock.Certain, th.Holds[0].Certain = true, true
	if got, want := phrase.WaitPhrase(&th), " holds Lock 0x7f20 and waits to enter Lock 0x7f10"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
