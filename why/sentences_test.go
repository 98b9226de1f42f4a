package why

import (
	"strings"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestStalledOnce: requests that wait in one method in one way are told once, whatever calls of .NET lead to the wait.
func TestStalledOnce(t *testing.T) {
	began := same(1).Began
	blocked := func(through, method string, from, to int) snapshot.RequestGroup {
		g := served(began, "/products/{id}", nil, "Shop.Products.Find", 30*time.Second)
		g.Doing.Wait = &snapshot.Wait{Kind: snapshot.TaskWait, Type: "System.Threading.Tasks.Task<int>"}
		g.Doing.Frames = append(stack(through), stack(method)...)
		g.Doing.Frames[1].Line = &snapshot.SourceLine{File: "Products.cs", Line: 100 + from}
		for id := from; id <= to; id++ {
			g.Requests = append(g.Requests, served(began, "", nil, "", 30*time.Second, id).Requests...)
		}
		return g
	}
	list := []snapshot.RequestGroup{
		blocked("System.Threading.Tasks.Task.GetResultCore", "Shop.Products.Find", 1, 10),
		blocked("System.Threading.Tasks.Task.get_Result", "Shop.Products.Find", 11, 15),
		blocked("System.Threading.Tasks.Task.get_Result", "Shop.Products.List", 16, 19),
	}
	got := judgeStalled(flights(same(3), list, list))
	if len(got) != 1 || !strings.HasPrefix(got[0].Text, "15 requests for GET /products/{id} stand still") {
		t.Fatalf("%+v", got)
	}
	as := 0
	for _, x := range got[0].Evidence {
		if strings.Contains(x.Text, "stand still as well") {
			as++
		}
	}
	if as != 1 {
		t.Errorf("%d other places, want Shop.Products.List alone: %+v", as, got[0].Evidence)
	}
}

// TestSemaphoreNames: a SemaphoreSlim has its field's name, if a thread's wait or the search for permits knows the
// field, and no other semaphore's.
func TestSemaphoreNames(t *testing.T) {
	const typ = "System.Threading.SemaphoreSlim"
	e := same(2, waiting(1, snapshot.Wait{Kind: snapshot.SemaphoreWait, Type: typ, Object: 0x30,
		Field: "Shop.Bank.permits"},
		"Shop.Bank.Refund"))
	e.Lost = []snapshot.Lost{{Object: 0x40, Field: "Shop.Pool.free"}}
	for object, want := range map[uint64]string{
		0x30: "SemaphoreSlim (Bank.permits)", 0x40: "SemaphoreSlim (Pool.free)", 0x50: "a SemaphoreSlim",
		0: "a SemaphoreSlim",
	} {
		w := &snapshot.Awaited{Kind: snapshot.AwaitsSemaphore, Object: object, Type: typ}
		if got := e.AwaitedThing(w); got != want {
			t.Errorf("%#x: %q, want %q", object, got, want)
		}
	}
}

// TestThrownAt: a method that throws, and a method that only calls what throws, are told apart.
func TestThrownAt(t *testing.T) {
	for _, tt := range []struct {
		stack []string
		want  string
	}{
		{[]string{"Shop.Prices.Parse", "Shop.Prices.Import"}, "in Shop.Prices.Parse"},
		{[]string{"System.Runtime.EH.RhThrowEx", "Shop.Prices.Parse"}, "in Shop.Prices.Parse"},
		{[]string{"System.Number.ThrowFormatException", "System.Decimal.Parse", "Shop.Prices.Parse"},
			"below Shop.Prices.Parse"},
		{[]string{"System.Decimal.Parse"}, "in System.Decimal.Parse"},
	} {
		if got := gather.ThrownAt(stack(tt.stack...)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.stack, got, tt.want)
		}
	}
}

// TestLostFor: a semaphore's standstill lasts as long as the looks, if all waiters are still the same.
func TestLostFor(t *testing.T) {
	w := snapshot.Awaited{Kind: snapshot.AwaitsSemaphore, Object: 0x30}
	chain := snapshot.TaskChain{Frames: stack("Shop.Books.Book"), WaitsFor: &w, State: snapshot.TaskWaiting, Count: 2}
	key := tasks.ChainKey(&chain)
	waits := func(objects ...uint64) map[uint64]requests.WaitingChain {
		out := map[uint64]requests.WaitingChain{}
		for _, object := range objects {
			out[object] = requests.WaitingChain{Key: key, For: object}
		}
		return out
	}
	lost := &snapshot.Lost{Object: 0x30, Awaits: 2}
	for _, tt := range []struct {
		was, is map[uint64]requests.WaitingChain
		want    time.Duration
	}{
		{waits(1, 2), waits(1, 2), 3 * time.Second},
		{waits(1, 2), waits(2, 3), gather.LostGap},
		{nil, waits(2), gather.LostGap},
	} {
		e := flights(same(2), nil, nil)
		e.Flights[0].Waiting, e.Flights[1].Waiting = tt.was, tt.is
		e.Flights[1].Tasks.Chains = []snapshot.TaskChain{chain}
		if got := e.lostFor(lost); got != tt.want {
			t.Errorf("%v, %v: %v, want %v", tt.was, tt.is, got, tt.want)
		}
	}
}

// TestTimerCallbacks: callbacks of timers that wait for a lock are told.
func TestTimerCallbacks(t *testing.T) {
	const says = "callbacks of timers wait. Callbacks pile up if they take longer than the timer's period."
	queue := queueFor(6)
	if v := judgeLocks(same(4, queue...)); strings.Contains(v[0].Text, says) {
		t.Errorf("no timer is known: %s", v[0].Text)
	}
	for i := range queue[1:] {
		queue[1+i].Frames = append(queue[1+i].Frames, stack("System.Threading.TimerQueueTimer.CallCallback")...)
	}
	verdict(t, judgeLocks(same(4, queue...)), profile.CauseLockContention, profile.Likely, " In the last look, 6 "+says)
}
