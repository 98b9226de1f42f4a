package report

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/snapshot"
)

// inFlight is the requests and calls of the synthetic process.
func inFlight() *snapshot.Requests {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	load, handle := awaits("Shop.Stock.Load{async}", "Stock.Load{async}", 41), awaits("Shop.Orders.Handle{async}",
		"Orders.Handle{async}", 17)
	send := awaits("System.Net.Http.HttpConnection.SendAsync{async}", "HttpConnection.SendAsync{async}", 0)
	send.Module = "System.Net.Http"
	const supplier = "10.1.2.9:6352"
	order := snapshot.Request{
		ID: "0HNQ9A2HQDI7D:00000001", Method: "GET", Path: "/orders/17", Query: "?key=secret", Protocol: "HTTP/1.1",
		Remote: "10.0.0.7:51234", Since: ago(111 * time.Second),
	}
	var orders []snapshot.Request
	for i := range 5 {
		o := order
		o.Since = o.Since.Add(time.Duration(i) * time.Second)
		o.Aborted = i > 1
		orders = append(orders, o)
	}
	held := order
	held.Path, held.Protocol, held.Since, held.Aborted = "/evil\x1b[31m", "HTTP/2", time.Time{}, true
	held.Thread = &snapshot.ThreadRef{OSThreadID: 4251, ManagedThreadID: 6, Name: ".NET TP Worker\x1b"}
	return &snapshot.Requests{
		Process: synthetic().Process, CapturedAt: at, Duration: 120 * time.Millisecond, Unproven: 3,
		ConsistentShare: 0.98, Requests: []snapshot.RequestGroup{
			{Method: "GET", Path: "/orders/{id:int}", Requests: orders, Doing: snapshot.Doing{
				State: snapshot.TaskWaiting, Frames: []snapshot.Frame{send, load, handle}, Branches: 1,
				WaitsFor: &snapshot.Awaited{Kind: snapshot.AwaitsSocket,
					Target: "recv tcp → " + supplier + " established"},
				Call: &snapshot.CallTo{Authority: "supplier:6352", Phase: snapshot.CallAnswer},
			}},
			{Method: "GET", Path: "/evil\x1b[31m", Requests: []snapshot.Request{held}, Doing: snapshot.Doing{
				State: snapshot.TaskRunning, Frames: []snapshot.Frame{
					managed("Shop", "Shop.Orders.Hold", "Shop.Orders.Hold", "Orders.Hold", "()"),
				},
			}},
			{Method: "PUT", Path: "/payments/{id}", Requests: []snapshot.Request{held, held}, Doing: snapshot.Doing{
				State: snapshot.TaskWaiting, Frames: []snapshot.Frame{
					managed("Shop", "Shop.Ledger.Add", "Shop.Ledger.Add", "Ledger.Add", "()"),
				},
				Wait: &snapshot.Wait{
					Kind: snapshot.LockEnter, Object: 0x7f30_0001_2340, Type: "System.Threading.Lock",
					Field:   "Shop.Ledger.gate",
					Owner:   &snapshot.ThreadRef{OSThreadID: 4260, ManagedThreadID: 9, Name: ".NET TP Worker"},
					Waiters: 2,
					Timeout: snapshot.Forever, Certain: true,
				},
			}},
			{Method: "GET", Path: "/news", Requests: []snapshot.Request{held}, Doing: snapshot.Doing{
				State: snapshot.TaskWaiting, Wait: &snapshot.Wait{Kind: snapshot.WaitIO, Target: "recv", Certain: true},
			}},
			{Method: "POST", Path: "/stock",
				Requests: []snapshot.Request{{ID: "0HNQ9A2HQDI7E:00000001", Path: "/stock"}}},
		},
		Calls: []snapshot.CallGroup{
			{Method: "GET", Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallConnection,
				Calls: make([]snapshot.ClientCall, 121),
				Doing: snapshot.Doing{State: snapshot.TaskWaiting, Frames: []snapshot.Frame{
					send, load, handle,
				}}},
			{Method: "GET", Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallAnswer,
				Calls: []snapshot.ClientCall{{
					Path: "/prices", Query: "?key=secret", Protocol: "HTTP/1.1", Remote: supplier,
					Since: ago(111 * time.Second), Request: order.ID,
				}}},
			{Method: "GET", Authority: "feed:443", Path: "/news", Phase: snapshot.CallBody,
				Calls: []snapshot.ClientCall{{Path: "/news", Protocol: "HTTP/2"}}},
			{Method: "PUT", Authority: "old:80", Path: "/", Phase: snapshot.CallOpen,
				Calls: []snapshot.ClientCall{{Path: "/"}}},
			{Method: "GET", Authority: "feed:443", Path: "/live", Phase: snapshot.CallWebSocket,
				Calls: []snapshot.ClientCall{{Path: "/live", Protocol: "HTTP/1.1"}}},
		},
		Pools: []snapshot.CallPool{
			{Authority: "supplier:6352", Active: 4, Queued: 121, HTTP1: snapshot.PoolConnections{All: 4, Maximum: 4}},
			{Authority: "feed:443", Secure: true, Active: 1,
				HTTP1: snapshot.PoolConnections{All: 1, Pending: 1, Maximum: 2},
				HTTP2: snapshot.PoolConnections{All: 1}},
			{Authority: "old:80", Proxied: true, Active: 1, HTTP1: snapshot.PoolConnections{All: 1}},
			{Authority: "old:80", Proxied: true, Active: 1, HTTP1: snapshot.PoolConnections{All: 1}}, // another client
		},
	}
}

func TestRequestsText(t *testing.T) {
	for name, o := range map[string]RequestsOptions{
		"plain": {}, "80-color": {Terminal: Terminal{Width: 80, Color: true}, Query: true},
		"rows": {Rows: 1}, "full": {Full: true},
	} {
		r := inFlight()
		if name == "full" {
			r.Calls[0].Calls = r.Calls[0].Calls[:1]
		}
		var b bytes.Buffer
		if err := RequestsText(&b, r, o); err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(b.Bytes(), []byte("secret")); has != o.Query {
			t.Errorf("%s: the query is there: %v", name, has)
		}
		profiletest.Golden(t, "requests-"+name+".txt", b.Bytes())
	}
}

func TestRequestsJSON(t *testing.T) {
	r := inFlight()
	r.Calls[0].Calls = r.Calls[0].Calls[:1]
	for _, query := range []bool{false, true} {
		var b, indented bytes.Buffer
		if err := RequestsJSON(&b, r, RequestsOptions{Query: query}); err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(b.Bytes(), []byte("secret")); has != query {
			t.Errorf("the query is there: %v", has)
		}
		if !query {
			continue
		}
		if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "requests.json", indented.Bytes())
	}
}

func TestWaitingText(t *testing.T) {
	for want, w := range map[string]snapshot.Wait{
		"waiting to enter a Lock":                 {Kind: snapshot.LockEnter, Certain: true},
		"waiting in Monitor.Wait of an object":    {Kind: snapshot.MonitorWait, Certain: true},
		"waiting for a SemaphoreSlim (uncertain)": {Kind: snapshot.SemaphoreWait},
		"sleeping":                {Kind: snapshot.ThreadSleep, Certain: true},
		"sleeping (at most 5 s)":  {Kind: snapshot.ThreadSleep, Timeout: 5 * time.Second, Certain: true},
		"waiting for recv":        {Kind: snapshot.WaitIO, Target: "recv", Certain: true},
		"waiting for recv a\\x1b": {Kind: snapshot.WaitIO, Target: "recv a\x1b", Certain: true},
		"waiting":                 {Kind: snapshot.WaitRuntime, Certain: true},
	} {
		if got := waitingText(&w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
