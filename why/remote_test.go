package why

import (
	"fmt"
	"testing"
	"time"

	"clrsnap/profile"
)

const supplier = "10.1.2.9:6352"

// receiving makes threads that wait for an answer.
func receiving(n int, remote string) (out []profile.Thread) {
	for i := range n {
		io := profile.Wait{Kind: profile.WaitIO, Target: fmt.Sprintf("recv tcp 10.1.2.3:%d → %s established", 40000+i, remote)}
		t := waiting(10+i, io, "System.Net.Sockets.Socket.Receive", "Shop.Supplier.Ask")
		t.State = "receiving (recvmsg)"
		out = append(out, t)
	}
	return out
}

// silent makes connections that have got no answer for some time.
func silent(n int, sent, received time.Duration) (out []socket) {
	for i := range n {
		out = append(out, socket{
			local: fmt.Sprintf("10.1.2.3:%d", 40000+i), remote: supplier, ours: true, state: "established", sent: sent,
			received: received,
		})
	}
	return out
}

func TestRemote(t *testing.T) {
	verdict(t, judgeRemote(same(3, receiving(4, supplier)...)), profile.CauseRemoteCall, profile.Possible, supplier,
		"4 threads wait for it in Shop.Supplier.Ask")
	e := same(3, receiving(4, supplier)...)
	e.sockets = silent(4, time.Minute, 2*time.Minute)
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Possible, "4 of 4 connections", "60 s", "4 threads wait for it",
		"wait for news")
	for i := range e.sockets {
		e.sockets[i].state = "syn-sent"
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Certain, "does not accept them", "4 threads wait for it")
	e.sockets = silent(4, time.Minute, 50*time.Second)
	none(t, judgeRemote(e)) // consumers that have asked for nothing since the last message

	none(t, judgeRemote(same(3, receiving(2, supplier)...)))
	moving := same(3, receiving(4, supplier)...)
	for id := 10; id < 14; id++ {
		moving.runs(id, 0.2, 0)
	}
	none(t, judgeRemote(moving))
	// Each for another address.
	var each []profile.Thread
	for i := range 5 {
		one := receiving(i+1, fmt.Sprintf("10.1.2.9:%d", 7000+i))
		each = append(each, one[i])
	}
	none(t, judgeRemote(same(3, each...)))
}

func TestRemoteSockets(t *testing.T) {
	of := func(s ...socket) *evidence {
		e := same(3)
		e.sockets = s
		return e
	}
	verdict(t, judgeRemote(of(silent(4, 9*time.Second, time.Minute)...)), profile.CauseRemoteCall, profile.Possible, "9.0 s")
	none(t, judgeRemote(of(silent(1, time.Minute, time.Hour)...)))      // a request that is kept open
	none(t, judgeRemote(of(silent(4, time.Second, time.Minute)...)))    // an answer that takes its time
	none(t, judgeRemote(of(silent(6, time.Minute, 50*time.Second)...))) // idle connections: the answer came last
	some := append(silent(4, time.Minute, time.Hour), silent(4, time.Minute, 50*time.Second)...)
	none(t, judgeRemote(of(some...))) // others get their answers
	accepted := silent(6, time.Minute, time.Hour)
	for i := range accepted {
		accepted[i].ours = false
	}
	none(t, judgeRemote(of(accepted...))) // clients that are slow
	toItself := silent(6, time.Minute, time.Hour)
	for i := range toItself {
		toItself[i].own = true
	}
	none(t, judgeRemote(of(toItself...)))
	refused := silent(4, 0, 0)
	for i := range refused {
		refused[i].state = "syn-sent"
	}
	verdict(t, judgeRemote(of(refused...)), profile.CauseRemoteCall, profile.Likely, "does not accept")
}

// TestRemoteChains: async calls behind a limit of connections.
func TestRemoteChains(t *testing.T) {
	e := same(3)
	e.sockets = silent(2, 5*time.Second, time.Minute)
	answer := &profile.Awaited{Kind: profile.AwaitsSocket, Target: "recv tcp 10.1.2.3:40000 → " + supplier + " established"}
	slot := &profile.Awaited{Kind: profile.AwaitsCompletion}
	call := stack("System.Net.Http.HttpConnection.SendAsync", "Shop.Supplier.GetAsync")
	e.chains = []profile.TaskChain{
		{Count: 2, WaitsFor: answer, State: profile.TaskWaiting, Frames: call},
		{Count: 40, WaitsFor: slot, State: profile.TaskWaiting, Frames: call},
	}
	verdict(t, judgeRemote(e), profile.CauseRemoteCall, profile.Likely, supplier, "2 async calls wait for it",
		"Shop.Supplier.GetAsync", "40 async calls of HttpClient more")
	e.chains = e.chains[:1]
	none(t, judgeRemote(e))
}
