package profiletest

import (
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// LockShop is a recording with waits for locks. Some of their holders were looked at.
func LockShop() *profile.Recording {
	s := newShop()
	event := func(module, display, short string) int32 {
		return s.Location(profile.Location{
			Function: s.Function(profile.Function{Kind: snapshot.Event, Display: display, Short: short,
				Module: module}),
		})
	}
	orders := event("Shop", "lock Shop.Order", "lock Order")
	second := event("Shop", "lock Shop.Order #2", "lock Order #2")
	evil := event("Shop", "lock Shop.\x1b[31mEvil", "lock \x1b[31mEvil")
	visit := shopFunction(VisitName)
	visiting := event("", "held by "+visit.Display, "held by "+visit.Short)
	unseen := event("", "held by ThreadPool worker (code not seen)", "held by ThreadPool worker (code not seen)")
	wait := func(thread int32, ms int64, holder, lock int32, names ...string) {
		s.at += 100 * time.Millisecond
		s.Add(profile.Sample{
			At: s.at, Weight: ms * 1e6, Events: 1, Thread: thread, Mode: profile.Contention, State: profile.Waiting,
			Node: s.Child(s.Child(s.stack(names...), lock), holder),
		})
	}
	look := func(waited time.Duration, lock int32, names ...string) {
		s.Hold(profile.Hold{
			At: s.at - time.Millisecond, Waited: waited, Lock: s.FunctionOf(lock), Holder: s.FunctionOf(visiting),
			Waiter: 0, Thread: 1, Node: s.stack(names...),
		})
	}
	wait(0, 80, visiting, orders, MainName, submitName)
	look(5*time.Millisecond, orders, MainName, submitName, VisitName, sortName)
	look(25*time.Millisecond, orders, MainName, submitName, VisitName, sortName)
	wait(0, 120, visiting, orders, MainName, submitName)
	look(7*time.Millisecond, orders, MainName, VisitName)
	wait(2, 1, unseen, orders, MainName, submitName)
	wait(2, 3, unseen, second, MainName)
	wait(0, 2, unseen, evil, MainName)
	r := s.Recording()
	r.Version, r.Start, r.Duration = "1.2.3", time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), 2*time.Second
	r.Processes = []snapshot.Process{
		{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{Version: "10.0.9",
			Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{{Mode: profile.Contention, Samples: 5, Seen: 5}}
	r.Cost = profile.Cost{TargetCPU: 90 * time.Millisecond, Processors: 2}
	return r
}
