package requests

import (
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/clr/web"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// blockedThread is a thread that runs a request and waits for a Lock.
func blockedThread(lock uint64, waits ...string) *snapshot.Thread {
	t := &snapshot.Thread{
		OSThreadID: int(lock), State: "waiting (futex)", Complete: true, Wait: &snapshot.Wait{
			Kind: snapshot.LockEnter, Object: lock, Type: "System.Threading.Lock", Field: "Shop.Ledger.gate",
			Waiters: 2,
			Owner:   &snapshot.ThreadRef{OSThreadID: 7}, Timeout: snapshot.Forever, Certain: true,
		},
		Frames: []snapshot.Frame{{Kind: snapshot.Native, Method: "__futex_abstimed_wait", Module: "libc.so.6"}},
	}
	for _, m := range waits {
		t.Frames = append(t.Frames, snapshot.Frame{Kind: snapshot.Managed, Method: m, Display: m, Module: coreLib})
	}
	for _, m := range []string{"Shop.Ledger.Add", "Shop.Payments.Pay"} {
		t.Frames = append(t.Frames, snapshot.Frame{Kind: snapshot.Managed, Method: m, Display: m, Module: "Shop"})
	}
	const server = "Microsoft.AspNetCore.Server.Kestrel.Core"
	t.Frames = append(t.Frames, snapshot.Frame{
		Kind: snapshot.Managed, Module: server,
		Method: server + ".Internal.Http.HttpProtocol+<ProcessRequests>d__238`1.MoveNext",
	})
	return t
}

// TestThreadDoing: a request with a blocked thread waits for the object that the thread waits for. Find with the
// same lock in the same place are one group.
func TestThreadDoing(t *testing.T) {
	one := threadDoing(blockedThread(0x7000, "System.Threading.WaitHandle.WaitOne", "System.Threading.Lock.Enter"))
	if one.State != snapshot.TaskWaiting || one.Wait == nil || len(one.Frames) != 4 ||
		one.Frames[0].Kind != snapshot.Managed || one.Frames[3].Method != "Shop.Payments.Pay" {
		t.Errorf("%+v", one)
	}
	same, other := threadDoing(blockedThread(0x7000, "System.Threading.Lock.Enter")), threadDoing(blockedThread(0x8000))
	if doingKey(&one) != doingKey(&same) || doingKey(&one) == doingKey(&other) {
		t.Error("not grouped by the lock")
	}
	elsewhere := blockedThread(0x7000)
	elsewhere.Frames[1].Display = "Shop.Ledger.Remove"
	if d := threadDoing(elsewhere); doingKey(&one) == doingKey(&d) {
		t.Error("not grouped by the place")
	}

	busy := blockedThread(0x7000)
	busy.State, busy.Wait = "running", nil
	if d := threadDoing(busy); d.State != snapshot.TaskRunning || d.Wait != nil || len(d.Frames) != 3 {
		t.Errorf("%+v", d)
	}
	busy.State = "waiting (futex)" // in native code: not known
	if d := threadDoing(busy); d.State != snapshot.TaskWaiting || d.Wait != nil || len(d.Frames) != 3 {
		t.Errorf("%+v", d)
	}
}

// TestJoinWait: a group shows the facts common to all its requests.
func TestJoinWait(t *testing.T) {
	of := func(change func(*snapshot.Wait)) *snapshot.Wait {
		w := blockedThread(0x7000).Wait
		change(w)
		return w
	}
	to := of(func(w *snapshot.Wait) { w.Certain, w.Owner, w.Waiters = false, nil, 0 })
	joinWait(to, of(func(w *snapshot.Wait) { w.Waiters = 3 }))
	joinWait(to, of(func(w *snapshot.Wait) { w.Certain, w.Owner, w.Waiters = false, nil, 0 }))
	if to.Owner == nil || to.Owner.OSThreadID != 7 || to.Waiters != 3 || !to.Certain || to.Timeout != snapshot.Forever {
		t.Errorf("%+v", to)
	}
	joinWait(to, of(func(w *snapshot.Wait) { w.Owner, w.Timeout = &snapshot.ThreadRef{OSThreadID: 8}, 5 }))
	joinWait(to, of(func(w *snapshot.Wait) {}))
	if to.Owner != nil || to.Object != 0x7000 || to.Timeout != 0 {
		t.Errorf("%+v", to)
	}

	event := func(at uint64, detail string) *snapshot.Wait {
		return of(func(w *snapshot.Wait) { w.Kind, w.Object, w.Owner, w.Detail = snapshot.EventWait, at, nil, detail })
	}
	to = event(0x7000, "not set")
	if waitKey(to) != waitKey(event(0x8000, "set")) {
		t.Error("requests that wait for an event each are not grouped")
	}
	joinWait(to, event(0x8000, "not set"))
	if to.Object != 0 || to.Detail != "not set" {
		t.Errorf("%+v", to)
	}
	if joinWait(to, event(0x8000, "set")); to.Detail != "" {
		t.Errorf("%+v", to)
	}
}

// TestRequestRoom: the memory for requests has a bound, however long their paths are, and the result is marked as
// full.
func TestRequestRoom(t *testing.T) {
	w := &walk{Walk: &tasks.Walk{}, requests: map[string]*served{}, room: 64 << 10}
	path := strings.Repeat("x", 10<<10)
	for i := range 100 {
		if !w.addRequest(&web.Request{ID: strconv.Itoa(i), Path: path}) {
			break
		}
	}
	if n := len(w.requests); n != 6 || !w.Full {
		t.Errorf("%d requests, full: %v", n, w.Full)
	}
}
