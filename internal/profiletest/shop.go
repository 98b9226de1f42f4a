package profiletest

import (
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// CoreLib is the name of .NET's own assembly.
const CoreLib = "System.Private.CoreLib"

// shop builds recordings of a small service; times are in ms.
type shop struct {
	*profile.Builder
	at time.Duration
}

func newShop() *shop {
	s := &shop{Builder: profile.NewBuilder(profile.Limits{})}
	for i, name := range []string{"Shop", "orders-1", "orders-2", "evil\x1b[31m", ".NET Timer", "", "Finalizer"} {
		s.Thread(profile.RecordedThread{OSThreadID: 4242 + i, ManagedThreadID: i + 1, Name: name})
	}
	s.Thread(profile.RecordedThread{Role: "ThreadPool worker"})
	return s
}

// stack makes a stack of names, base first: "Shop.Type.Method(…)" is user code, "System.…"
// framework, "lib!name" native, with a symbol or without, "kernel!name" kernel.
func (s *shop) stack(names ...string) int32 {
	node := int32(0)
	for _, name := range names {
		node = s.Child(node, s.Location(profile.Location{Function: s.Function(shopFunction(name))}))
	}
	return node
}

func shopFunction(name string) profile.Function {
	if module, symbol, ok := strings.Cut(name, "!"); ok {
		kind := snapshot.Native
		if module == "kernel" {
			kind = snapshot.Kernel
		}
		if symbol == "" {
			return profile.Function{Kind: kind, Display: "[" + module + "]", Short: "[" + module + "]", Module: module}
		}
		return profile.Function{Kind: kind, Method: symbol, Display: symbol, Short: symbol, Module: module}
	}
	full, signature := display.SplitSignature(name)
	module, _, _ := strings.Cut(name, ".")
	if module == "System" {
		module = CoreLib
	}
	return profile.Function{
		Kind: snapshot.Managed, Method: full, Display: full, Short: display.Shorten(full), Signature: signature,
		Module: module,
	}
}

func (s *shop) add(n int, thread int32, mode profile.Mode, state profile.State, weight int, node int32) {
	for range n {
		s.at += time.Millisecond
		s.Add(profile.Sample{
			At: s.at, Weight: int64(weight) * 1e6, Thread: thread, Node: node, Mode: mode, State: state,
		})
	}
}

const (
	MainName   = "Shop.Program.Main(string[])"
	submitName = "Shop.Orders.Queue.Submit(System.Collections.Generic.Dictionary<string, Shop.Orders.Order>, " +
		"System.Threading.CancellationToken)"
	VisitName   = "Shop.Tree.Visit(Shop.Node)"
	sortName    = "System.Array.Sort(T[], System.Collections.Generic.IComparer<T>)"
	waitName    = "System.Threading.Monitor.Wait(object, int)"
	evilName    = "Shop.Evil\x1b[2J.Run()"
	runtimeName = "libcoreclr.so!"
)

// BusyShop is a recording with an example of everything in the tables.
func BusyShop() *profile.Recording {
	s := newShop()
	cpu := func(n int, thread int32, names ...string) {
		s.add(n, thread, profile.CPU, profile.Running, 10, s.stack(names...))
	}
	cpu(700, 0, MainName, submitName, VisitName, VisitName, VisitName)
	cpu(420, 1, MainName, submitName, sortName)
	cpu(300, 2, MainName, submitName, VisitName, VisitName, sortName)
	cpu(111, 2, MainName, submitName, "libc.so.6!memcpy")
	cpu(90, 3, evilName)
	cpu(60, 4, runtimeName, runtimeName)
	cpu(40, 5, waitName, "libc.so.6!pthread_cond_wait", "kernel!do_futex")
	cpu(7, 6, "Shop.Program.Main{lambda 1_0}()")
	cpu(2, 7)
	wall := func(n int, thread int32, state profile.State, names ...string) {
		s.add(n, thread, profile.Wall, state, 30, s.stack(names...))
	}
	wall(500, 0, profile.Running, MainName, submitName, VisitName)
	wall(1500, 1, profile.Waiting, MainName, submitName, waitName, "libc.so.6!pthread_cond_wait")
	wall(100, 1, profile.Running, MainName, submitName, waitName)
	s.Add(profile.Sample{
		At: s.at, Weight: 3e9, Count: 100, Thread: 2, Node: s.stack(sortName), Mode: profile.Wall, Incomplete: true,
	})
	r := s.Recording()
	r.Start, r.Duration = time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.FixedZone("", 3600)), 20*time.Second
	r.Processes = []snapshot.Process{
		{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{Version: "10.0.9",
			Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Source: profile.FromThreads, Samples: 1730, Lost: 70, Late: 9},
		{Mode: profile.Wall, Rate: 99, Got: 33.3, Samples: 2200, Lost: 1, Late: 300, Broken: 100, Released: 1},
	}
	r.Cost = profile.Cost{TargetCPU: 18 * time.Second, Processors: 2}
	r.Notes = []string{"Child 4300 could not be opened.\x1b[31m"}
	return r
}

// CalmShop is an earlier BusyShop: in BusyShop a function is slower, one is new, one has
// vanished.
func CalmShop() *profile.Recording {
	s := newShop()
	cpu := func(n int, thread int32, names ...string) {
		s.add(n, thread, profile.CPU, profile.Running, 10, s.stack(names...))
	}
	cpu(300, 0, MainName, submitName, VisitName, VisitName)
	cpu(410, 1, MainName, submitName, sortName)
	cpu(60, 2, MainName, submitName, "libc.so.6!memcpy")
	cpu(150, 3, "Shop.Cache.Evict(Shop.Node)")
	cpu(30, 4, runtimeName)
	cpu(24, 5, waitName, "libc.so.6!pthread_cond_wait", "kernel!do_futex")
	r := s.Recording()
	r.Duration = 20 * time.Second
	r.Processes = []snapshot.Process{
		{PID: 3131, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{Version: "10.0.9",
			Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 99, Samples: 974}}
	r.Cost = profile.Cost{TargetCPU: 9800 * time.Millisecond, Processors: 2}
	return r
}

// EventShop is a recording with samples of every mode.
func EventShop() *profile.Recording {
	s := newShop()
	event := func(module, display, short string) int32 {
		return s.Location(profile.Location{
			Function: s.Function(profile.Function{Kind: snapshot.Event, Display: display, Short: short,
				Module: module}),
		})
	}
	queue := event("Shop", "Shop.Orders.Queue<System.Int32>", "Queue<Int32>")
	array := event(CoreLib, "System.Byte[]", "Byte[]")
	thrown := s.Location(profile.Location{Function: s.Function(profile.Function{
		Kind: snapshot.Event, Display: "System.InvalidOperationException", Short: "InvalidOperationException",
		Module: CoreLib, Fate: profile.CaughtBy + "Shop.Tree.Visit",
	})})
	evil := event("Shop", "Shop.\x1b[31mEvil;Exception", "\x1b[31mEvil;Exception")
	held := event("", `held by app.orders-2`, `held by app.orders-2`)
	started, induced, gen0 := event("", "orders-3", "orders-3"), event("", "gen 2, induced",
		"gen 2, induced"), event("", "gen 0, out of budget", "gen 0, out of budget")

	add := func(thread int32, m profile.Mode, weight, events int64, leaf int32, names ...string) {
		s.at += 100 * time.Millisecond
		x := profile.Sample{
			At: s.at, Weight: weight, Events: events, Thread: thread, Mode: m, Node: s.Child(s.stack(names...), leaf),
			Incomplete: len(names) == 0,
		}
		if m.OfWaits() {
			x.State = profile.Waiting
		}
		s.Add(x)
	}
	s.add(5, 0, profile.CPU, profile.Running, 10, s.stack(MainName, submitName))
	s.add(4, 1, profile.Wall, profile.Waiting, 30, s.stack(MainName, waitName))
	add(0, profile.Alloc, 3<<30, 1_234_567_890, array, MainName, submitName, sortName)
	add(1, profile.Alloc, 512<<10, 7, queue, MainName, submitName)
	add(1, profile.Alloc, 512<<10, 1, array, MainName, "libcoreclr.so!")
	add(2, profile.Alloc, 512<<10, 2, array)
	add(1, profile.Exception, 4000, 4000, thrown, MainName, VisitName)
	add(1, profile.Exception, 4, 4, evil, MainName)
	add(1, profile.Contention, 45_000_000, 1, held, MainName, submitName, waitName)
	add(2, profile.Contention, 5_600_000, 2, held, MainName, submitName, waitName)
	add(0, profile.ThreadStart, 1, 1, started, MainName)
	add(0, profile.GC, 7_000_000, 1, induced, MainName)
	add(1, profile.GC, 250_000, 3, gen0, MainName, submitName)
	pulsed, joined := event("Shop", "Monitor.Wait Shop.Order", "Monitor.Wait Order"),
		event("", "Thread.Join", "Thread.Join")
	add(1, profile.Waits, 30_000_000, 1, pulsed, MainName, submitName, waitName)
	add(2, profile.Waits, 8_000_000, 2, joined, MainName)
	recent := event(CoreLib, "System.Byte[] (not collected yet)", "Byte[] (not collected yet)")
	add(0, profile.Live, 1<<29, 205_761_315, array, MainName, submitName, sortName)
	add(1, profile.Live, 512<<10, 7, queue, MainName, submitName)
	add(1, profile.Live, 512<<10, 1, recent, MainName, "libcoreclr.so!")

	r := s.Recording()
	r.Version, r.Start, r.Duration = "1.2.3", time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC), 2*time.Second
	r.Processes = []snapshot.Process{
		{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{Version: "10.0.9",
			Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Source: profile.FromProcessors, Samples: 5},
		{Mode: profile.Wall, Rate: 99, Samples: 4},
		{Mode: profile.Alloc, Samples: 4, Broken: 1, Every: 512 << 10},
		{Mode: profile.Exception, Samples: 2, Lost: 3, Seen: 40040, Rethrown: 120, Every: 10},
		{Mode: profile.Contention, Samples: 3, Seen: 17, Every: 1_000_000},
		{Mode: profile.ThreadStart, Samples: 1, Seen: 1},
		{Mode: profile.GC, Samples: 4, Seen: 4},
		{Mode: profile.Waits, Samples: 3, Seen: 90, Every: 1_000_000},
		{Mode: profile.Live, Samples: 3, Lost: 2, Every: 512 << 10},
	}
	r.Cost = profile.Cost{TargetCPU: 90 * time.Millisecond, Processors: 2}
	const class = "System.InvalidOperationException"
	r.Messages = profile.Messages{Others: 10, Counts: []profile.MessageCount{
		{Type: class, Module: CoreLib, Text: "Sequence contains no elements", Count: 3990},
		{Type: "Shop.\x1b[31mEvil;Exception", Module: "Shop",
			Text: "two\r\nlines\x1b[2J" + strings.Repeat(" so long", 20), Cut: true, Count: 3},
		{Type: "Shop.\x1b[31mEvil;Exception", Module: "Shop", Count: 1},
	}}
	return r
}

// LaterShop is EventShop some time later: other classes, fewer exceptions.
func LaterShop() *profile.Recording {
	r := EventShop()
	for i := range r.Samples {
		switch s := &r.Samples[i]; {
		case s.Mode == profile.Alloc && s.Weight == 512<<10:
			s.Weight, s.Events, s.Count = s.Weight<<11, s.Events<<11, 1<<11
		case s.Mode == profile.Exception && s.Weight == 4000:
			s.Weight, s.Events = 400, 400
		case s.Mode == profile.GC:
			s.Weight *= 3
		}
	}
	return r
}
