package why

import (
	"testing"
	"time"

	"clrsnap/internal/cgroup"
	"clrsnap/internal/gather"
	"clrsnap/internal/procfs"
	"clrsnap/internal/stopped"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

const (
	enter   = "System.Threading.Monitor.Enter"
	reserve = "Shop.Orders.Reserve"
	confirm = "Shop.Orders.Confirm"
)

// embrace are two threads that hold a lock each and want the other's lock.
func embrace() []snapshot.Thread {
	return []snapshot.Thread{
		holding(waiting(1, wants(0x20, 2), enter, reserve), 0x10),
		holding(waiting(2, wants(0x10, 1), enter, confirm), 0x20),
	}
}

func TestDeadlock(t *testing.T) {
	victim := waiting(3, wants(0x10, 1), enter, confirm)
	e := same(2, append(embrace(), victim)...)
	verdict(t, judgeDeadlock(e), profile.CauseDeadlock, profile.Certain,
		"orders-1 (1) holds Shop.Order 0x10 and waits to enter Monitor of Shop.Order 0x20", reserve, confirm,
		"1 more thread waits for them")

	// Locks that nobody in the deadlock waits for are not told; the others name their owners themselves.
	more := embrace()
	more[0] = holding(more[0], 0x30)
	for i := range more[0].Holds {
		more[0].Holds[i].Certain = false
	}
	verdict(t, judgeDeadlock(same(2, more...)), profile.CauseDeadlock, profile.Certain,
		"orders-1 (1), in "+reserve+", holds Shop.Order 0x10 and waits to enter Monitor of Shop.Order 0x20")

	// The members have run meanwhile: the waits need not have been at one time.
	none(t, judgeDeadlock(same(2, embrace()...).runs(1, 0.1, 0)))
	none(t, judgeDeadlock(same(4, waiting(1, wants(0x10, 2), enter, reserve), running(2, confirm))))

	// The running time is unknown.
	unknown := embrace()
	unknown[0].Wait.Timeout = 3 * time.Second
	e = same(3, unknown...)
	for i := range e.Looks {
		clear(e.Looks[i].Ran)
		e.Looks[i].After[1], e.Looks[i].After[2] = procfs.Schedstat{}, procfs.Schedstat{}
		e.Looks[i].MarkStill()
	}
	none(t, judgeDeadlock(e))

	// A deadlock with a timeout is at most likely.
	late := embrace()
	late[0].Wait.Timeout = 3 * time.Second
	verdict(t, judgeDeadlock(same(3, late...)), profile.CauseDeadlock, profile.Likely, "timeout of 3.0 s")
}

func TestDeadlockInCore(t *testing.T) {
	e := same(1, embrace()...)
	e.Process.Core = &snapshot.Core{Path: "core.42"}
	verdict(t, judgeDeadlock(e), profile.CauseDeadlock, profile.Certain)
	for path, want := range map[string]string{
		"core.42": "core.42", "my core;rm -r $HOME": "'my core;rm -r $HOME'", "it's": `'it'\''s'`,
	} {
		e.Process.Core.Path = path
		if c := judgeDeadlock(e)[0].Commands[0]; c != "clrsnap locks --core "+want {
			t.Error(c)
		}
	}
}

// TestStuckHolder: a thread holds a lock while the thread waits for a permit that nobody
// releases.
func TestStuckHolder(t *testing.T) {
	permit := snapshot.Wait{Kind: snapshot.SemaphoreWait, Object: 0x30, Type: "System.Threading.SemaphoreSlim",
		Timeout: snapshot.Forever}
	holder := holding(waiting(1, permit, "System.Threading.SemaphoreSlim.Wait", reserve), 0x10)
	wanting := waiting(2, wants(0x10, 1), enter, confirm)
	verdict(t, judgeDeadlock(same(3, holder, wanting)), profile.CauseDeadlock, profile.Likely, reserve,
		"SemaphoreSlim 0x30")
	named := permit
	named.Field = "Shop.Stock._permits"
	owner := holding(waiting(1, named, "System.Threading.SemaphoreSlim.Wait", reserve), 0x10)
	verdict(t, judgeDeadlock(same(3, owner, wanting)), profile.CauseDeadlock, profile.Likely,
		"waits for a permit of SemaphoreSlim 0x30 (Stock._permits)")
	none(t, judgeDeadlock(same(3, holder)))                           // nobody wants the lock
	none(t, judgeDeadlock(same(3, holder, wanting).runs(1, 0.05, 0))) // the holder goes on now and then
	none(t, judgeDeadlock(same(3, holder, wanting).runs(2, 0.05, 0))) // others come and go
	// Consumers of a queue without work.
	turn := waiting(2, wants(0x10, 1), enter, reserve)
	verdict(t, judgeDeadlock(same(3, holder, turn)), profile.CauseDeadlock, profile.Possible, "take turns")
	permit.Timeout = time.Second
	patient := holding(waiting(1, permit, "System.Threading.SemaphoreSlim.Wait", reserve), 0x10)
	none(t, judgeDeadlock(same(3, patient, wanting)))
}

// blockedCooperatively is a thread that the runtime cannot stop.
func blockedCooperatively() snapshot.Thread {
	t := waiting(1, snapshot.Wait{Kind: snapshot.WaitIO, Target: "read pipe:[1]"}, "Shop.Sensor.Poll")
	t.Mode, t.State = "cooperative", "reading (read)"
	return t
}

// collecting is a thread that waits in the runtime.
func collecting(id int) snapshot.Thread {
	t := waiting(id, snapshot.Wait{Kind: snapshot.WaitRuntime}, "Shop.Orders.Add")
	t.Frames = append([]snapshot.Frame{native("libc.so.6"), native("libcoreclr.so")}, t.Frames...)
	return t
}

func TestSuspension(t *testing.T) {
	verdict(t, of(stopped.Suspension)(same(3, blockedCooperatively(), collecting(2))), profile.CauseSuspension,
		profile.Likely,
		"Shop.Sensor.Poll", "2.0 s", "1 thread waits for the runtime")
	verdict(t, of(stopped.Suspension)(same(3, blockedCooperatively())), profile.CauseSuspension, profile.Likely,
		"Each garbage collection waits for this thread")
	// The runtime wakes the thread again and again with requests to stop.
	verdict(t, of(stopped.Suspension)(same(3, blockedCooperatively(), collecting(2)).runs(1, 0.1, 0.05)),
		profile.CauseSuspension, profile.Likely)
	moving := blockedCooperatively()
	moving.Frames[0].SP += 8
	none(t, of(stopped.Suspension)(looksAt([]snapshot.Thread{blockedCooperatively()}, []snapshot.Thread{moving})))
	none(t, of(stopped.Suspension)(same(3, collecting(2), collecting(3))))

	// A running thread can be stopped: a running thread is the reason only if everybody
	// waits for the thread.
	loop := running(1, "Shop.Sensor.Spin")
	verdict(t, of(stopped.Suspension)(same(3, loop, collecting(2), collecting(3)).runs(1, 1, 0)),
		profile.CauseSuspension,
		profile.Likely, "Shop.Sensor.Spin")
	none(t, of(stopped.Suspension)(same(3, loop, collecting(2)).runs(1, 1, 0)))
	others := []snapshot.Thread{loop, collecting(2), collecting(3)}
	for id := 4; id < 10; id++ {
		others = append(others, waiting(id, snapshot.Wait{Kind: snapshot.ThreadSleep}, "Shop.Orders.Rest"))
	}
	none(t, of(stopped.Suspension)(same(3, others...).runs(1, 1, 0)))

	// All waits go through the runtime's own code.
	var sleeping []snapshot.Thread
	for id := 4; id < 9; id++ {
		x := waiting(id, snapshot.Wait{Kind: snapshot.ThreadSleep}, "System.Threading.Thread.Sleep", "Shop.Orders.Rest")
		x.Frames = append([]snapshot.Frame{native("libc.so.6"), native("libcoreclr.so")}, x.Frames...)
		sleeping = append(sleeping, x)
	}
	none(t, of(stopped.Suspension)(same(3, append(sleeping, loop)...).runs(1, 1, 0)))

	// The collector itself runs in cooperative mode, too.
	gc := running(1, "Shop.Orders.Add")
	gc.Frames = append([]snapshot.Frame{native("libcoreclr.so")}, gc.Frames...)
	none(t, of(stopped.Suspension)(same(3, gc, collecting(2), collecting(3)).runs(1, 1, 0)))
}

func TestFinalizer(t *testing.T) {
	event := snapshot.Wait{Kind: snapshot.EventWait, Type: "System.Threading.ManualResetEventSlim", Object: 0x10}
	stuck := waiting(5, event, "System.Threading.Monitor.Wait", "Shop.Lease.Close", "Shop.Lease.Finalize",
		"System.GC.RunFinalizers")
	stuck.Role = "Finalizer"
	verdict(t, of(stopped.Finalizer)(same(3, stuck)), profile.CauseFinalizer, profile.Certain, "Shop.Lease.Finalize",
		"Shop.Lease.Close", "2.0 s")
	verdict(t, of(stopped.Finalizer)(same(3, stuck).runs(5, 0.5, 0)), profile.CauseFinalizer, profile.Likely)

	// Finalizers of several objects, one after the other.
	other := stuck
	other.Frames = stack("System.Threading.Monitor.Wait", "Shop.Page.Close", "Shop.Page.Finalize",
		"System.GC.RunFinalizers")
	none(t, of(stopped.Finalizer)(looksAt([]snapshot.Thread{stuck}, []snapshot.Thread{other})))
	idle := waiting(5, snapshot.Wait{Kind: snapshot.WaitIdle})
	idle.Role = "Finalizer"
	none(t, of(stopped.Finalizer)(looksAt([]snapshot.Thread{stuck}, []snapshot.Thread{idle})))

	// An unreadable stack says nothing.
	unread := stuck
	unread.Complete, unread.Frames = false, stuck.Frames[:1]
	before, without := []snapshot.Thread{stuck}, []snapshot.Thread{unread}
	verdict(t, of(stopped.Finalizer)(looksAt(without, before, without, before, without)), profile.CauseFinalizer,
		profile.Certain, "Shop.Lease.Close", "2.0 s")
	none(t, of(stopped.Finalizer)(looksAt(without, before, without)))
	none(t, of(stopped.Finalizer)(looksAt(without, without)))
}

func TestHeld(t *testing.T) {
	e := same(2)
	e.Moments = []gather.Moment{{State: 'T'}, {State: 'T', At: tick}}
	verdict(t, of(stopped.Held)(e), profile.CauseStopped, profile.Certain, "kill -CONT 42")
	e.Moments[1].State = 'S'
	none(t, of(stopped.Held)(e))
	e.Moments = []gather.Moment{{Groups: cgroup.State{Frozen: true}}, {Groups: cgroup.State{Frozen: true}}}
	verdict(t, of(stopped.Held)(e), profile.CauseStopped, profile.Certain, "freezer")
}

func TestDebugger(t *testing.T) {
	e := same(2)
	e.Moments = []gather.Moment{{State: 't', Traced: 7, Tracer: "gdb"}, {State: 't', Traced: 7}}
	verdict(t, of(stopped.Debugger)(e), profile.CauseDebugger, profile.Certain, "gdb (7)", "has stopped the process")
	none(t, of(stopped.Held)(e))
	e.Moments[0].State, e.Moments[1].State = 'S', 'S'
	verdict(t, of(stopped.Debugger)(e), profile.CauseDebugger, profile.Certain, "The process runs")
	e.Moments[1].Traced = 0 // the tracer came and went, as clrsnap does
	none(t, of(stopped.Debugger)(e))
}
