package why

import (
	"testing"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestFullQueue: threads wait for room in a queue, and nobody makes room.
func TestFullQueue(t *testing.T) {
	adds := snapshot.Wait{Kind: snapshot.CollectionAdd, Object: 0x40,
		Type: "System.Collections.Concurrent.BlockingCollection<int>"}
	ends := snapshot.Wait{Kind: snapshot.EventWait, Object: 0x50}
	sleeps := snapshot.Wait{Kind: snapshot.ThreadSleep}
	put := func(id int) snapshot.Thread { return waiting(id, adds, "Shop.Log.Put", "Shop.Orders.Place") }
	host := waiting(9, ends, "Shop.Program.Main")
	verdict(t, judgeFullQueue(same(3, put(1), put(2), host, waiting(4, sleeps, "Shop.Watchdog.Run"))),
		profile.CauseStalled, profile.Likely,
		"2 threads wait for room in a full queue, in Shop.Log.Put", "has ended")
	writer := waiting(3, ends, "Shop.Log.Write")
	verdict(t, judgeFullQueue(same(3, put(1), put(2), waiting(4, sleeps, "Shop.Clock.Tick"), writer)),
		profile.CauseStalled, profile.Possible, "Perhaps orders-3 (3) takes from the queue", "Shop.Log.Write")
	verdict(t, judgeFullQueue(same(3, put(1), put(2), running(4, "Shop.Printer.Print")).runs(4, 0.9, 0)),
		profile.CauseStalled, profile.Possible, "(4) takes from the queue", "Shop.Printer.Print")
	suspended := same(3, put(1), put(2), host)
	suspended.Flights = []gather.FlightLook{{InFlight: &requests.InFlight{Tasks: &snapshot.Tasks{Methods: 7}}}}
	verdict(t, judgeFullQueue(suspended), profile.CauseStalled, profile.Possible, "7 async methods are suspended")

	none(t, judgeFullQueue(same(3, put(1), host)))
	none(t, judgeFullQueue(same(1, put(1), put(2), host)))
	// One of the threads has got room meanwhile.
	none(t, judgeFullQueue(same(3, put(1), put(2), put(3), host).runs(3, 0.5, 0)))
	first := []snapshot.Thread{put(1), put(2), put(3)}
	last := []snapshot.Thread{put(1), put(2), waiting(3, sleeps, "Shop.Orders.Place")}
	none(t, judgeFullQueue(looksAt(first, first, last)))
	short := adds
	short.Timeout = 1
	none(t, judgeFullQueue(same(3, waiting(1, short, "Shop.Log.Put"), waiting(2, short, "Shop.Log.Put"))))
}
