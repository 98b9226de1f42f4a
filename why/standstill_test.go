package why

import (
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/requests"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// suspended makes a chain of an async method.
func suspended(n int, w snapshot.Awaited, methods ...string) snapshot.TaskChain {
	return snapshot.TaskChain{Count: n, Frames: stack(methods...), WaitsFor: &w, State: snapshot.TaskWaiting}
}

// inFlight adds two looks, between which no async method goes on.
func (e *evidence) inFlight(chains ...snapshot.TaskChain) *evidence {
	waits := map[uint64]requests.WaitingChain{}
	for i := range chains {
		for range chains[i].Count {
			object := uint64(len(waits))
			waits[object] = requests.WaitingChain{Key: tasks.ChainKey(&chains[i]), For: object}
		}
	}
	for i := range e.Looks {
		if i == 0 || i == len(e.Looks)-1 {
			e.Flights = append(e.Flights, gather.FlightLook{At: e.Looks[i].At, InFlight: &requests.InFlight{
				Requests: &snapshot.Requests{}, Tasks: &snapshot.Tasks{Chains: chains}, Waiting: waits,
			}})
		}
	}
	return e
}

// TestStandstill: threads and async methods wait for other code of the program, and none is left. Whatever may go on by
// itself makes the verdict less certain, or prevents the verdict.
func TestStandstill(t *testing.T) {
	of := func(kind snapshot.WaitKind) snapshot.Wait {
		return snapshot.Wait{Kind: kind, Object: 0x40, Timeout: snapshot.Forever}
	}
	meet := func(id int) snapshot.Thread {
		return waiting(id, of(snapshot.BarrierWait), "Shop.Phases.Meet", "Shop.Start.Run")
	}
	host := waiting(42, of(snapshot.EventWait), "Shop.Program.Main")
	idle := waiting(8, of(snapshot.CollectionTake), "Shop.Mail.Deliver", "Shop.Start.Run")
	clock := waiting(9, snapshot.Wait{Kind: snapshot.ThreadSleep, Timeout: tick}, "Shop.Clock.Tick", "Shop.Start.Run")
	latch := waiting(7, of(snapshot.CountdownWait), "Shop.Batch.Run", "Shop.Start.Run")
	source := snapshot.Awaited{Kind: snapshot.AwaitsCompletion}
	gate := snapshot.Awaited{Kind: snapshot.AwaitsCompletion, Object: 0x50}
	socket := suspended(1, snapshot.Awaited{Kind: snapshot.AwaitsSocket}, "Shop.Net.Read")

	told := func(e *evidence, c profile.Certainty, says ...string) {
		t.Helper()
		verdict(t, e.standstill(nil), profile.CauseStalled, c, says...)
	}
	silent := func(e *evidence) {
		t.Helper()
		none(t, e.standstill(nil))
	}
	told(same(3, meet(1), meet(2), host, idle).inFlight(), profile.Likely, "2 threads wait, such as orders-1 (1)",
		"Shop.Phases.Meet", "No other code of Shop.Phases", "nobody is seen who could end the wait")
	told(same(3, meet(1), meet(2), host, clock).inFlight(), profile.Possible, "Threads that wait for news")
	told(same(3, meet(1), meet(2), host, running(9, "Shop.Clock.Tick")).inFlight(), profile.Possible)
	told(same(3, meet(1), meet(2), host).inFlight(socket), profile.Possible)
	silent(same(3, meet(1), host, clock).inFlight())
	silent(same(3, meet(1), meet(2), host, waiting(9, of(snapshot.EventWait), "Shop.Phases.Load")).inFlight())
	silent(same(3, meet(1), meet(2), host).inFlight(suspended(1, source, "Shop.Phases.LoadAsync")))
	silent(same(3, meet(1), meet(2), host).inFlight().runs(1, 0.5, 0))
	silent(same(1, meet(1), meet(2), host).inFlight())
	silent(same(3, meet(1), meet(2), host)) // nothing is known of async methods

	told(same(3, latch, host, idle).inFlight(), profile.Likely, "orders-7 (7) waits for", "Shop.Batch.Run")
	silent(same(3, latch, host, clock).inFlight())
	timed := same(3, latch, host).inFlight()
	timed.LastFlight().Tasks.Timers = []snapshot.Timer{{Count: 1, Callback: "Shop.Clock.Tick"}}
	silent(timed)
	queued := same(3, latch, host).inFlight()
	queued.LastFlight().Tasks.Pool = &snapshot.Pool{Queued: 1}
	silent(queued)

	told(same(3, host, idle).inFlight(suspended(12, source, "Shop.Rpc.Ask")), profile.Likely,
		"12 async methods wait for a TaskCompletionSource", "Shop.Rpc.Ask")
	silent(same(3, host, idle).inFlight(suspended(12, gate, "Shop.Rpc.Stopped")))
	silent(same(3, host, idle).inFlight(suspended(5, source, "Shop.Rpc.Ask")))
	silent(same(3, host, clock).inFlight(suspended(12, source, "Shop.Rpc.Ask")))
	again := same(3, host, idle).inFlight(suspended(12, source, "Shop.Rpc.Ask"))
	again.LastFlight().InFlight.Waiting = map[uint64]requests.WaitingChain{}
	silent(again)

	full := snapshot.Awaited{Kind: snapshot.AwaitsPipe, Type: "System.IO.Pipelines.Pipe+DefaultPipeWriter"}
	empty := snapshot.Awaited{Kind: snapshot.AwaitsPipe, Type: "System.IO.Pipelines.Pipe+DefaultPipeReader"}
	told(same(3, host, idle).inFlight(suspended(4, full, "Shop.Hose.Fill")), profile.Likely,
		"4 async methods wait for room in a full pipe, in Shop.Hose.Fill", "No other code of Shop.Hose")
	silent(same(3, host, idle).inFlight(suspended(4, full, "Shop.Hose.Fill"), suspended(1, empty, "Shop.Tank.Take")))
	silent(same(3, host, clock).inFlight(suspended(4, full, "Shop.Hose.Fill")))
	silent(same(3, host, idle).inFlight(suspended(1, full, "Shop.Hose.Fill")))
	silent(same(3, host, idle).inFlight(suspended(4, empty, "Shop.Hose.Fill")))

	var jobs []snapshot.Thread
	for id := range 12 {
		w := of(snapshot.TaskWait)
		w.Method = "Shop.Jobs.Check{async}"
		jobs = append(jobs, waiting(100+id, w, "Shop.Jobs.Run"))
	}
	checks := suspended(12, gate, "Shop.Jobs.Check{async}")
	told(same(3, append(jobs, host, clock)...).inFlight(checks), profile.Possible, "12 threads wait", "Shop.Jobs.Run")
	told(same(3, append(jobs, host)...).inFlight(checks), profile.Likely, "12 threads wait")
	silent(same(3, append(jobs[:5:5], host)...).inFlight(checks))
	silent(same(3, append(jobs, host)...).inFlight(suspended(12, snapshot.Awaited{Kind: snapshot.AwaitsTimer},
		"Shop.Jobs.Check{async}")))

	other := []profile.Verdict{{Cause: profile.CauseDeadlock}}
	none(t, same(3, meet(1), meet(2), host).inFlight().standstill(other))
}

// end sets how all exceptions have ended.
func end(e *evidence, fate string) *evidence {
	for i := range e.Samples.Functions {
		if f := &e.Samples.Functions[i]; f.Kind == snapshot.Event {
			f.Fate = fate
		}
	}
	return e
}

// TestRetries: threads sleep in a method that has caught exceptions all the time.
func TestRetries(t *testing.T) {
	sleeps := snapshot.Wait{Kind: snapshot.ThreadSleep, Timeout: tick}
	save := func(id int) snapshot.Thread { return waiting(id, sleeps, "Shop.Book.Save", "Shop.Start.Run") }
	looks := func(fate string, threads ...snapshot.Thread) *evidence {
		r := same(3, threads...).recorded(3, profile.Exception)
		for range 5 {
			for _, id := range []int{1, 2} {
				r.add(id, profile.Sample{Mode: profile.Exception, Weight: 1}, "System.IO.IOException", "Shop.Book.Lock",
					"Shop.Book.Save", "Shop.Start.Run")
			}
		}
		return end(r.done(), fate)
	}
	const here = profile.CaughtBy + "Shop.Book.Save"
	verdict(t, judgeRetries(looks(here, save(1), save(2))), profile.CauseStalled, profile.Possible,
		"2 threads try something again and again", "in Shop.Book.Save in 3 of 3 looks", "System.IO.IOException")
	none(t, judgeRetries(looks(profile.CaughtBy+"Shop.Start.Run", save(1), save(2))))
	none(t, judgeRetries(looks(here, save(1), save(3))))
	none(t, judgeRetries(looks(here, waiting(1, sleeps, "Shop.Book.Save"), waiting(2, sleeps, "Shop.Book.Save"))))
	none(t, judgeRetries(looks(here, running(1, "Shop.Book.Save", "Shop.Start.Run"), save(2))))

	// One piece of work fails, in a loop at the base of a thread, or in an async method.
	pause := 20 * time.Millisecond
	often := func(typ, fate string, n int, threads ...snapshot.Thread) *evidence {
		r := same(3, threads...).recorded(3, profile.Exception)
		for i := range n {
			x := profile.Sample{Mode: profile.Exception, Weight: 1, At: time.Duration(i) * pause}
			r.add(1, x, typ, "Shop.Book.Parse", "Shop.Book.Run")
		}
		return end(r.done(), fate)
	}
	const loop = profile.CaughtBy + "Shop.Book.Run"
	run := waiting(1, sleeps, "Shop.Book.Run")
	verdict(t, judgeRetries(often("System.FormatException", loop, 150, run)), profile.CauseStalled, profile.Possible,
		"The same failure comes again and again: Shop.Book.Run catches 50 System.FormatException a "+
			"second, thrown in Shop.Book.Parse, and pauses between the tries.")
	none(t, judgeRetries(often("System.FormatException", loop, 50, run)))
	pause = time.Microsecond // a batch
	none(t, judgeRetries(often("System.FormatException", loop, 150, run)))
	pause = 20 * time.Millisecond
	none(t, judgeRetries(often("System.FormatException", "", 150, run)))
	none(t, judgeRetries(often("System.FormatException", profile.CaughtBy+"Shop.Book.Parse", 150,
		waiting(1, sleeps, "Shop.Book.Parse", "Shop.Book.Run"))))
	none(t, judgeRetries(often("System.OperationCanceledException", loop, 150, run)))
	none(t, judgeRetries(often("System.FormatException", loop, 150, running(1, "Shop.Book.Run"))))
	async := often("System.FormatException", loop, 150, running(1, "Shop.Book.Run"))
	chains := []snapshot.TaskChain{suspended(1, snapshot.Awaited{Kind: snapshot.AwaitsTimer}, "Shop.Book.Run")}
	async.Flights = []gather.FlightLook{{InFlight: &requests.InFlight{Tasks: &snapshot.Tasks{Chains: chains}}}}
	verdict(t, judgeRetries(async), profile.CauseStalled, profile.Possible, "Shop.Book.Run catches 50")
}
