package report

import (
	"testing"
	"time"

	"clrsnap/snapshot"
)

func TestWaitText(t *testing.T) {
	owner := &snapshot.ThreadRef{OSThreadID: 4251, ManagedThreadID: 6, Name: "orders-2"}
	for want, w := range map[string]*snapshot.Wait{
		"waits to enter Monitor of Shop.Order 0x7f10 held by orders-2 (4251) 3 times (5 waiters)": {
			Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Owner: owner, Recursion: 3, Waiters: 5,
			Timeout: snapshot.Forever, Certain: true,
		},
		"waits in Monitor.Wait of Shop.Order 0x7f10 (at most 30 s)": {
			Kind: snapshot.MonitorWait, Type: "Shop.Order", Object: 0x7f10, Waiters: 1, Timeout: 30 * time.Second,
			Certain: true,
		},
		"waits to enter Lock 0x7f10 (uncertain)": {
			Kind: snapshot.LockEnter, Type: "System.Threading.Lock", Object: 0x7f10,
		},
		"waits for async Shop.Orders.Load 0x7f10 (WaitingForActivation)": {
			Kind: snapshot.TaskWait, Type: "AsyncStateMachineBox<Shop.Orders.Load>", Object: 0x7f10,
			Method: "Shop.Orders.Load", Detail: "WaitingForActivation", Certain: true,
		},
		"waits for the end of thread orders-2 (4251)": {
			Kind: snapshot.ThreadJoin, Type: "System.Threading.Thread", Object: 0x7f10, Owner: owner, Certain: true,
		},
		"waits to enter Monitor of Shop.Order 0x7f10 held by a thread that has ended": {
			Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Owner: &snapshot.ThreadRef{},
			Certain: true,
		},
		"waits to enter Monitor of StockLedger._gate 0x7f10 held by orders-2 (4251)": {
			Kind: snapshot.MonitorEnter, Type: "object", Object: 0x7f10, Field: "Shop.Storage.StockLedger._gate",
			Owner: owner, Certain: true,
		},
		"waits for SemaphoreSlim 0x7f10 (Cache<String>._gate) (2 waiters)": {
			Kind: snapshot.SemaphoreWait, Type: "System.Threading.SemaphoreSlim", Object: 0x7f10, Waiters: 2,
			Certain: true, Field: "Shop.Cache<System.String>._gate",
		},
		"waits to enter Monitor of Shop.Order 0x7f10 (variable evil\\x1b of Ledger)": {
			Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Field: "variable evil\x1b of Shop.Ledger",
			Certain: true,
		},
		"waits for a SemaphoreSlim": {
			Kind: snapshot.SemaphoreWait, Certain: true,
		},
		"waits to enter Monitor of Evil\\x1b 0x1": {Kind: snapshot.MonitorEnter, Type: "Evil\x1b", Object: 1,
			Certain: true},
		"sleeps": {Kind: snapshot.ThreadSleep, Timeout: snapshot.Forever, Certain: true},
		"recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established": {
			Kind: snapshot.WaitIO, Target: "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established", Certain: true,
		},
		"": nil,
	} {
		if got := waitText(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestHoldText(t *testing.T) {
	for want, w := range map[string]snapshot.Wait{
		"holds Monitor of Shop.Order 0x7f10 3 times (5 waiters)": {
			Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Recursion: 3, Waiters: 5, Certain: true,
		},
		"holds Lock 0x7f10 (Ledger._gate) (1 waiter)": {
			Kind: snapshot.LockEnter, Type: "System.Threading.Lock", Object: 0x7f10, Field: "Shop.Ledger._gate",
			Waiters: 1, Certain: true,
		},
		"holds Lock 0x7f10 (1 waiter)": {Kind: snapshot.LockEnter, Type: "System.Threading.Lock", Object: 0x7f10,
			Waiters: 1, Certain: true},
		"holds ReaderWriterLockSlim 0x7f10, to write": {
			Kind: snapshot.WriteLock, Type: "System.Threading.ReaderWriterLockSlim", Object: 0x7f10, Certain: true,
		},
		"holds Lock 0x7f10 (1 waiter, uncertain)": {Kind: snapshot.LockEnter, Type: "System.Threading.Lock",
			Object: 0x7f10, Waiters: 1},
	} {
		if got := holdText(&w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
