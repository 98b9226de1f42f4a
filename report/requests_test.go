package report

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// inFlight is the requests and calls of the synthetic process.
func inFlight() *profile.Requests {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	load, handle := awaits("Shop.Stock.Load{async}", "Stock.Load{async}", 41), awaits("Shop.Orders.Handle{async}",
		"Orders.Handle{async}", 17)
	send := awaits("System.Net.Http.HttpConnection.SendAsync{async}", "HttpConnection.SendAsync{async}", 0)
	send.Module = "System.Net.Http"
	const supplier = "10.1.2.9:6352"
	order := profile.Request{
		ID: "0HNQ9A2HQDI7D:00000001", Method: "GET", Path: "/orders/17", Query: "?key=secret", Protocol: "HTTP/1.1",
		Remote: "10.0.0.7:51234", Since: ago(111 * time.Second),
	}
	var orders []profile.Request
	for i := range 5 {
		o := order
		o.Since = o.Since.Add(time.Duration(i) * time.Second)
		orders = append(orders, o)
	}
	held := order
	held.Path, held.Protocol, held.Since, held.Aborted = "/evil\x1b[31m", "HTTP/2", time.Time{}, true
	held.Thread = &profile.ThreadRef{OSThreadID: 4251, ManagedThreadID: 6, Name: ".NET TP Worker\x1b"}
	return &profile.Requests{
		Process: synthetic().Process, CapturedAt: at, Duration: 120 * time.Millisecond, Unproven: 3,
		ConsistentShare: 0.98, Requests: []profile.RequestGroup{
			{Method: "GET", Path: "/orders/{id:int}", Requests: orders, Doing: profile.Doing{
				State: profile.TaskWaiting, Frames: []profile.Frame{send, load, handle}, Branches: 1,
				WaitsFor: &profile.Awaited{Kind: profile.AwaitsSocket,
					Target: "recv tcp → " + supplier + " established"},
				Call: &profile.CallTo{Authority: "supplier:6352", Phase: profile.CallAnswer},
			}},
			{Method: "GET", Path: "/evil\x1b[31m", Requests: []profile.Request{held}, Doing: profile.Doing{
				State: profile.TaskRunning, Frames: []profile.Frame{
					managed("Shop", "Shop.Orders.Hold", "Shop.Orders.Hold", "Orders.Hold", "()"),
				},
			}},
			{Method: "PUT", Path: "/payments/{id}", Requests: []profile.Request{held, held}, Doing: profile.Doing{
				State: profile.TaskWaiting, Frames: []profile.Frame{
					managed("Shop", "Shop.Ledger.Add", "Shop.Ledger.Add", "Ledger.Add", "()"),
				},
				Wait: &profile.Wait{
					Kind: profile.LockEnter, Object: 0x7f30_0001_2340, Type: "System.Threading.Lock",
					Field: "Shop.Ledger.gate",
					Owner: &profile.ThreadRef{OSThreadID: 4260, ManagedThreadID: 9, Name: ".NET TP Worker"}, Waiters: 2,
					Timeout: profile.Forever, Certain: true,
				},
			}},
			{Method: "GET", Path: "/news", Requests: []profile.Request{held}, Doing: profile.Doing{
				State: profile.TaskWaiting, Wait: &profile.Wait{Kind: profile.WaitIO, Target: "recv", Certain: true},
			}},
			{Method: "POST", Path: "/stock",
				Requests: []profile.Request{{ID: "0HNQ9A2HQDI7E:00000001", Path: "/stock"}}},
		},
		Calls: []profile.CallGroup{
			{Method: "GET", Authority: "supplier:6352", Path: "/prices", Phase: profile.CallConnection,
				Calls: make([]profile.ClientCall, 121),
				Doing: profile.Doing{State: profile.TaskWaiting, Frames: []profile.Frame{
					send, load, handle,
				}}},
			{Method: "GET", Authority: "supplier:6352", Path: "/prices", Phase: profile.CallAnswer,
				Calls: []profile.ClientCall{{
					Path: "/prices", Query: "?key=secret", Protocol: "HTTP/1.1", Remote: supplier,
					Since: ago(111 * time.Second), Request: order.ID,
				}}},
			{Method: "GET", Authority: "feed:443", Path: "/news", Phase: profile.CallBody,
				Calls: []profile.ClientCall{{Path: "/news", Protocol: "HTTP/2"}}},
			{Method: "PUT", Authority: "old:80", Path: "/", Phase: profile.CallOpen,
				Calls: []profile.ClientCall{{Path: "/"}}},
			{Method: "GET", Authority: "feed:443", Path: "/live", Phase: profile.CallWebSocket,
				Calls: []profile.ClientCall{{Path: "/live", Protocol: "HTTP/1.1"}}},
		},
		Pools: []profile.CallPool{
			{Authority: "supplier:6352", Active: 4, Queued: 121, HTTP1: profile.PoolConnections{All: 4, Maximum: 4}},
			{Authority: "feed:443", Secure: true, Active: 1,
				HTTP1: profile.PoolConnections{All: 1, Pending: 1, Maximum: 2}, HTTP2: profile.PoolConnections{All: 1}},
			{Authority: "old:80", Proxied: true, Active: 1, HTTP1: profile.PoolConnections{All: 1}},
			{Authority: "old:80", Proxied: true, Active: 1, HTTP1: profile.PoolConnections{All: 1}}, // another client
		},
	}
}

func TestRequestsText(t *testing.T) {
	for name, o := range map[string]RequestsOptions{
		"plain": {}, "80-color": {Width: 80, Color: true, Query: true}, "rows": {Rows: 1}, "full": {Full: true},
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
	for want, w := range map[string]profile.Wait{
		"waiting to enter a Lock":                 {Kind: profile.LockEnter, Certain: true},
		"waiting in Monitor.Wait of an object":    {Kind: profile.MonitorWait, Certain: true},
		"waiting for a SemaphoreSlim (uncertain)": {Kind: profile.SemaphoreWait},
		"sleeping":                {Kind: profile.ThreadSleep, Certain: true},
		"sleeping (at most 5 s)":  {Kind: profile.ThreadSleep, Timeout: 5 * time.Second, Certain: true},
		"waiting for recv":        {Kind: profile.WaitIO, Target: "recv", Certain: true},
		"waiting for recv a\\x1b": {Kind: profile.WaitIO, Target: "recv a\x1b", Certain: true},
		"waiting":                 {Kind: profile.WaitRuntime, Certain: true},
	} {
		if got := waitingText(&w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
