package report

import (
	"strings"
	"testing"

	"clrsnap/snapshot"
)

// TestPermitQueues: semaphores that async methods wait for are listed, with the likely holder and the longest waiter.
func TestPermitQueues(t *testing.T) {
	frame := func(method string) []snapshot.Frame {
		return []snapshot.Frame{{Kind: snapshot.Async, Method: method, Display: method, Module: "Shop"}}
	}
	s := &snapshot.Snapshot{
		Awaits: []snapshot.Await{{
			Object: 0x7f20, Frames: frame("Shop.Bank.Pay"),
			WaitsFor: &snapshot.Awaited{Kind: snapshot.AwaitsTimer, Object: 0x7f30},
		}},
		PermitQueues: []snapshot.PermitQueue{
			{Object: 0x7f10, Type: "System.Threading.SemaphoreSlim", Field: "Shop.Bank.gate", Awaits: 12,
				Frames: frame("Shop.Orders.Book"), Holders: []snapshot.WaitNode{snapshot.AwaitNode(0)}},
			{Object: 0x7f40, Type: "System.Threading.SemaphoreSlim", Awaits: 1},
		},
	}
	var text, json strings.Builder
	g := s.WaitGraph()
	if err := WaitGraph(&text, s, g, WaitGraphOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := WaitGraphJSON(&json, s, g); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Semaphores that async methods wait for:\n",
		"  SemaphoreSlim 0x7f10 (Bank.gate) · 12 async waiters\n",
		"    a permit is held, most likely, by suspended Shop.Bank.Pay 0x7f20 · awaits a timer 0x7f30\n",
		"    the longest waiter:\n", "Shop.Orders.Book", "  SemaphoreSlim 0x7f40 · 1 async waiter\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	for _, want := range []string{
		`"permitQueues"`, `"object":"0x7f10"`, `"field":"Shop.Bank.gate"`, `"awaits":12`, `"likelyHolders":[{`,
		`"method":"Shop.Bank.Pay"`,
	} {
		if !strings.Contains(strings.ReplaceAll(json.String(), `": `, `":`), want) {
			t.Errorf("%q is not in\n%s", want, json.String())
		}
	}
}
