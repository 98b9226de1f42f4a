package why

import (
	"fmt"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

const supplier = "10.1.2.9:6352"

// receiving makes threads that wait for an answer.
func receiving(n int, remote string) (out []snapshot.Thread) {
	for i := range n {
		io := snapshot.Wait{Kind: snapshot.WaitIO,
			Target: fmt.Sprintf("recv tcp 10.1.2.3:%d → %s established", 40000+i, remote)}
		t := waiting(10+i, io, "System.Net.Sockets.Socket.Receive", "Shop.Supplier.Ask")
		t.State = "receiving (recvmsg)"
		out = append(out, t)
	}
	return out
}

// silent makes connections without an answer for some time.
func silent(n int, sent, received time.Duration) (out []gather.Socket) {
	for i := range n {
		out = append(out, gather.Socket{
			Local: fmt.Sprintf("10.1.2.3:%d", 40000+i), Remote: supplier, Ours: true, State: "established", Sent: sent,
			Received: received,
		})
	}
	return out
}

func TestRemote(t *testing.T) {
	verdict(t, judgeRemote(same(3, receiving(4, supplier)...)), profile.CauseRemoteCall, profile.Possible, supplier,
		"4 threads wait for the address in Shop.Supplier.Ask")
	e := same(3, receiving(4, supplier)...)
	e.Sockets = silent(4, time.Minute, 2*time.Minute)
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Possible, "4 of 4 connections", "60 s",
		"4 threads wait for the address", "wait for news")
	for i := range e.Sockets {
		e.Sockets[i].State = "syn-sent"
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Certain, "does not accept connections",
		"4 threads wait for the address")
	e.Sockets = silent(4, time.Minute, 50*time.Second)
	none(t, judgeRemote(e)) // consumers without a request since the last message

	none(t, judgeRemote(same(3, receiving(2, supplier)...)))
	moving := same(3, receiving(4, supplier)...)
	for id := 10; id < 14; id++ {
		moving.runs(id, 0.2, 0)
	}
	none(t, judgeRemote(moving))
	// Each for another address.
	var each []snapshot.Thread
	for i := range 5 {
		one := receiving(i+1, fmt.Sprintf("10.1.2.9:%d", 7000+i))
		each = append(each, one[i])
	}
	none(t, judgeRemote(same(3, each...)))
}

func TestRemoteSockets(t *testing.T) {
	of := func(s ...gather.Socket) *evidence {
		e := same(3)
		e.Sockets = s
		return e
	}
	verdict(t, judgeRemote(of(silent(4, 9*time.Second, time.Minute)...)), profile.CauseRemoteCall,
		profile.Possible, "9.0 s")
	none(t, judgeRemote(of(silent(1, time.Minute, time.Hour)...)))      // a long-lived request
	none(t, judgeRemote(of(silent(4, time.Second, time.Minute)...)))    // a slow answer
	none(t, judgeRemote(of(silent(6, time.Minute, 50*time.Second)...))) // idle connections: the answer came last
	some := append(silent(4, time.Minute, time.Hour), silent(4, time.Minute, 50*time.Second)...)
	none(t, judgeRemote(of(some...))) // others get their answers
	accepted := silent(6, time.Minute, time.Hour)
	for i := range accepted {
		accepted[i].Ours = false
	}
	none(t, judgeRemote(of(accepted...))) // slow clients
	toItself := silent(6, time.Minute, time.Hour)
	for i := range toItself {
		toItself[i].Own = true
	}
	none(t, judgeRemote(of(toItself...)))
	refused := silent(4, 0, 0)
	for i := range refused {
		refused[i].State = "syn-sent"
	}
	verdict(t, judgeRemote(of(refused...)), profile.CauseRemoteCall, profile.Likely, "does not accept")
}

// TestRemoteChains: async calls behind a limit of connections.
func TestRemoteChains(t *testing.T) {
	e := same(3)
	e.Sockets = silent(2, 5*time.Second, time.Minute)
	answer := &snapshot.Awaited{Kind: snapshot.AwaitsSocket,
		Target: "recv tcp 10.1.2.3:40000 → " + supplier + " established"}
	slot := &snapshot.Awaited{Kind: snapshot.AwaitsCompletion}
	call := stack("System.Net.Http.HttpConnection.SendAsync", "Shop.Supplier.GetAsync")
	e.Chains = []snapshot.TaskChain{
		{Count: 2, WaitsFor: answer, State: snapshot.TaskWaiting, Frames: call},
		{Count: 40, WaitsFor: slot, State: snapshot.TaskWaiting, Frames: call},
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Likely, supplier, "2 async calls wait for the address",
		"Shop.Supplier.GetAsync", "40 async calls of HttpClient more")
	e.Chains = e.Chains[:1]
	none(t, judgeRemote(e))
}

// TestCallQueue: calls of HttpClient queue for connections at both looks, although the server answers.
func TestCallQueue(t *testing.T) {
	look := func(queued, maximum int) gather.FlightLook {
		return gather.FlightLook{InFlight: &requests.InFlight{Requests: &snapshot.Requests{
			Calls: []snapshot.CallGroup{
				{Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallConnection,
					Doing: snapshot.Doing{Frames: stack("Shop.Supplier.GetAsync")},
					Calls: make([]snapshot.ClientCall, queued)},
				{Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallAnswer,
					Calls: make([]snapshot.ClientCall, 2)},
			},
			Pools: []snapshot.CallPool{{Authority: "supplier:6352", Queued: queued, Active: 2,
				HTTP1: snapshot.PoolConnections{All: 2, Maximum: maximum}}},
		}}}
	}
	e := same(3)
	e.Flights = []gather.FlightLook{look(30, 2), look(38, 2)}
	verdict(t, judgeCallQueue(e), profile.CauseRemoteCall, profile.Likely,
		"38 calls of HttpClient to supplier:6352 wait for a connection, in Shop.Supplier.GetAsync",
		"may have 2 connections", "2 calls of HttpClient to supplier:6352/prices wait for the answer")
	for _, other := range []gather.FlightLook{look(0, 2), look(9, 2), look(38, 0), look(38, 4)} {
		e.Flights[0] = other
		none(t, judgeCallQueue(e))
	}

	// A short queue that stands.
	e.Began = time.Now()
	short := look(3, 2)
	short.At = 4 * time.Second
	calls := short.Requests.Calls
	for i := range calls[0].Calls {
		calls[0].Calls[i].Since = e.Began.Add(-time.Duration(i) * time.Minute)
	}
	calls[1].Phase = snapshot.CallBody
	e.Flights = []gather.FlightLook{look(1, 2), short}
	verdict(t, judgeCallQueue(e), profile.CauseRemoteCall, profile.Likely,
		"3 calls of HttpClient to supplier:6352 wait",
		"No call has got a connection in 4.0 s.", "an answer that has begun and is not read to the end",
		"2 calls of HttpClient to supplier:6352/prices have got the beginning of the answer")
	e.Flights[0] = look(20, 2) // others have got a connection
	none(t, judgeCallQueue(e))
	e.Flights[0] = look(1, 2)
	calls[0].Calls[1].Since = e.Began.Add(time.Second)
	none(t, judgeCallQueue(e))
}

// TestRemoteHTTP: all connections of an HttpClient's pool wait for an answer, and calls queue.
func TestRemoteHTTP(t *testing.T) {
	e := same(3)
	e.Sockets = silent(4, 111*time.Second, 2*time.Minute)
	call := stack("System.Net.Http.HttpConnection.SendAsync", "Shop.Supplier.GetAsync")
	e.Web = &snapshot.Requests{
		Calls: []snapshot.CallGroup{
			{Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallConnection,
				Doing: snapshot.Doing{Frames: call}, Calls: make([]snapshot.ClientCall, 121)},
			{Authority: "supplier:6352", Path: "/prices", Phase: snapshot.CallAnswer,
				Doing: snapshot.Doing{Frames: call},
				Calls: []snapshot.ClientCall{{Remote: supplier}, {Remote: supplier}, {Remote: supplier},
					{Remote: supplier}}},
			{Authority: "other:80", Phase: snapshot.CallConnection, Calls: make([]snapshot.ClientCall, 7)},
		},
		Pools: []snapshot.CallPool{
			{Authority: "supplier:6352", Queued: 121, Active: 4, HTTP1: snapshot.PoolConnections{All: 4, Maximum: 4}},
			{Authority: "other:80", Queued: 7, Active: 1, HTTP1: snapshot.PoolConnections{All: 1, Maximum: 1}},
		},
		Requests: []snapshot.RequestGroup{
			{Doing: snapshot.Doing{Call: &snapshot.CallTo{Authority: "supplier:6352"}},
				Requests: make([]snapshot.Request, 119)},
			{Doing: snapshot.Doing{Call: &snapshot.CallTo{Authority: "other:80"}}, Requests: make([]snapshot.Request,
				8)},
			{Requests: make([]snapshot.Request, 3)},
		},
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Certain,
		supplier+" does not answer: all 4 connections to the address have waited for up to 111 s, and 121 calls queue "+
			"for them, in Shop.Supplier.GetAsync. 119 requests to this program wait for these calls.",
		"121 calls of HttpClient to supplier:6352/prices wait for a connection")

	alone := e.Sockets
	for range 6 { // of other clients, with answers
		e.Sockets = append(e.Sockets, gather.Socket{
			Remote: supplier, State: "established", Ours: true, Own: true, Sent: time.Minute, Received: time.Second,
		})
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Certain,
		supplier+", where this process listens itself, does not answer: all 4 connections that an HttpClient may "+
			"have to the address have waited")
	e.Sockets = alone
	e.Web.Pools[0].HTTP1.Maximum = 6 // there may be more
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Likely, "4 calls of HttpClient wait for the answer",
		"121 calls queue for them")
	e.Web.Pools[0].HTTP1.Maximum = 4
	calls := e.Web.Calls[1].Calls
	calls[0].Remote = "10.1.2.9:1" // the server has another address
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Likely, "3 calls of HttpClient wait for the answer",
		"121 calls queue for them")
	for i := range calls {
		calls[i].Remote = "10.1.2.9:1"
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Possible, "4 of 4 connections")
	for i := range calls {
		calls[i].Remote = supplier
	}
	e.Web.Calls[1].Phase = snapshot.CallBody // the answers come
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Possible, "4 of 4 connections")
	e.Web.Calls[1].Phase = snapshot.CallOpen // the same: no thread is in such a call
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Possible, "4 of 4 connections")
	sends := snapshot.Thread{
		Frames: []snapshot.Frame{{Module: "System.Net.Http", Method: "System.Net.Http.HttpClient.Send"}}}
	e.Last().Snap.Threads = append(e.Last().Snap.Threads, sends)
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Likely, "1 call of HttpClient waits for the answer")
	e.Sockets = silent(4, time.Second, time.Minute) // each was used a second ago
	none(t, judgeRemote(e))
}
