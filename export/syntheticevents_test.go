package export_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Recordings of events: events of the web service, and a few events with numbers that can be checked
// by hand.

// happening is a kind of event of the service: the stack, the leaf (see leafOf), its frequency among
// all events of its mode, and its weight.
type happening struct {
	parts, leaf string
	often       int
	size        int64
}

const coreLib = "System.Private.CoreLib!"

var happenings = map[profile.Mode][]happening{
	profile.Alloc: {
		{request + "orders json", coreLib + "System.|Byte[]", 30, 4096},
		{request + "orders price rule rule linq", "Shop.Domain!Shop.Domain.Pricing.|Discount", 24, 72},
		{request + "orders price rule rule rule dict", coreLib + "System.|String", 14, 58},
		{request + "search json", coreLib + "System.|Byte[]", 9, 16384},
		{
			request + "orders sql", coreLib +
				"System.Collections.Generic.|Dictionary<System.String, " +
				"System.Collections.Generic.List<Shop.Domain.Product>>+Entry[]", 12, 960,
		},
		{request + "search dict", coreLib + "System.|String", 7, 44},
		{"thread pool async flush", coreLib + "System.|Byte[]", 4, 200_000},
	},
	profile.Exception: {
		{
			request + "orders price rule",
			"Shop.Domain!Shop.Domain.Pricing.|NoSuchRuleException, caught by Shop.Domain.Pricing.RuleTree.Apply", 21, 1,
		},
		{request + "orders sql", coreLib + "System.|TimeoutException, caught by OrdersController.Post{async}", 3, 1},
		{request + "search", coreLib + "System.|FormatException, not caught", 1, 1},
	},
	profile.Contention: {
		{request + "orders lock", "!held by .NET TP Worker", 9, 23_400_000},
		{request + "orders lock", "!held by Main", 1, 180_000_000},
		{"thread pool async flush", "!held by Telemetry", 2, 1_700_000},
	},
	profile.ThreadStart: {{"main", "!Telemetry", 1, 1}, {request + "orders sql", "!import", 4, 1}},
	profile.GC: {
		{request + "orders json", "!gen 0, allocation", 28, 1_400_000},
		{request + "orders price rule rule linq", "!gen 1, allocation", 5, 6_100_000},
		{"thread pool async flush", "!gen 2, large-object allocation", 1, 61_000_000},
	},
	profile.Waits: {
		{request + "orders lock", "Shop!Monitor.Wait Shop.|Order", 6, 23_400_000},
		{request + "orders sql", "!Task.Wait", 5, 41_000_000},
		{"main", "!Thread.Join", 1, 900_000_000},
	},
	profile.Live: {
		{request + "orders price rule rule linq", "Shop.Domain!Shop.Domain.Pricing.|Discount", 9, 72},
		{request + "orders price rule rule rule dict", coreLib + "System.|String", 5, 58},
		{"thread pool async flush", coreLib + "System.|Byte[] (not collected yet)", 1, 200_000},
	},
}

const allocEvery = 512 << 10

// eventful is a recording of the web service in every mode.
func eventful(seconds int, factor int) *profile.Recording {
	s := sampledService(seconds, factor)
	aSecond := map[profile.Mode]int{
		profile.Alloc: 90, profile.Exception: 9, profile.Contention: 14, profile.ThreadStart: 1, profile.GC: 3,
		profile.Waits: 12, profile.Live: 8,
	}
	stats := map[profile.Mode]*profile.ModeStats{}
	for _, m := range profile.Modes[2:] {
		n := aSecond[m] * seconds
		for range n {
			s.happen(m, time.Duration(s.rng.IntN(seconds*1e9)), s.pickHappening(happenings[m], factor))
		}
		stats[m] = &profile.ModeStats{Mode: m, Samples: n, Seen: int64(n)}
	}
	alloc, contention := stats[profile.Alloc], stats[profile.Contention]
	stats[profile.Live].Every, stats[profile.Live].Seen = allocEvery, 0
	alloc.Every, alloc.Seen, alloc.Lost, alloc.Broken = allocEvery, 25_000*int64(seconds), 4, 2
	contention.Every, contention.Seen = int64(time.Millisecond), 910*int64(seconds)
	r := s.finish(seconds)
	for _, m := range profile.Modes[2:] {
		r.Modes = append(r.Modes, *stats[m])
	}
	return r
}

func (s *service) pickHappening(list []happening, factor int) happening {
	var lots []int // the index of each happening, as many times as it is often
	for i, h := range list {
		n := h.often
		if strings.Contains(h.parts, "price") || strings.Contains(h.parts, "lock") {
			n *= factor
		}
		lots = append(lots, slices.Repeat([]int{i}, n)...)
	}
	return list[lots[s.rng.IntN(len(lots))]]
}

func (s *service) happen(m profile.Mode, at time.Duration, h happening) {
	x := profile.Sample{At: at, Weight: h.size, Events: 1, Thread: int32(5 + s.rng.IntN(7)), Mode: m}
	switch {
	case m.OfObjects():
		x.Weight = max(h.size, allocEvery)
		x.Events = x.Weight / h.size
	case m.Unit() == profile.Nanoseconds:
		x.Weight += s.rng.Int64N(h.size)
	}
	if m.OfWaits() {
		x.State = profile.Waiting
	}
	x.Node = s.b.Child(s.node(stackText(h.parts)), leafOf(s.b, h.leaf))
	s.b.Add(x)
}

// leafOf returns the location of an event, given as module!name. The text before a | in the name is
// the namespace; the text after a comma behind it is the fate.
func leafOf(b *profile.Builder, text string) int32 {
	module, name, _ := strings.Cut(text, "!")
	fate := ""
	if strings.Contains(name, "Exception, ") {
		name, fate, _ = strings.Cut(name, ", ")
	}
	short := name[strings.Index(name, "|")+1:]
	return b.Location(profile.Location{
		Function: b.Function(profile.Function{
			Kind: snapshot.Event, Display: strings.Replace(name, "|", "", 1), Short: short, Module: module,
			Fate: fate,
		}),
	})
}

// few is a recording of ten seconds with numbers that can be checked by hand: samples with one thread,
// one function, and an event as the leaf.
func few(samples ...profile.Sample) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	b.Thread(profile.RecordedThread{OSThreadID: 1, Name: "main"})
	run := b.Location(profile.Location{
		Function: b.Function(profile.Function{Kind: snapshot.Managed, Method: "Shop.Run", Display: "Shop.Run",
			Short: "Shop.Run", Signature: "()", Module: "Shop"}), Tier: "tier-1",
	})
	for i, s := range samples {
		stack := []int32{run}
		if s.Mode.OfEvents() {
			stack = []int32{leafOf(b, fmt.Sprintf("Shop!Shop.|Thing%d", i)), run}
		}
		s.Node = b.Stack(stack)
		b.Add(s)
	}
	r := b.Recording()
	r.Version, r.Duration = "1.0.0", 10*time.Second
	r.Processes = []snapshot.Process{{PID: 77, Command: "/app/shop"}}
	return r
}

const second = int64(time.Second)

// fewOfAll has two samples of each mode.
func fewOfAll() *profile.Recording {
	r := few(
		profile.Sample{At: 1e9, Mode: profile.CPU, Weight: second / 4},
		profile.Sample{At: 2e9, Mode: profile.CPU, Weight: second / 4},
		profile.Sample{At: 1e9, Mode: profile.Wall, Weight: 6 * second},
		profile.Sample{At: 2e9, Mode: profile.Wall, Weight: second, State: profile.Waiting},
		profile.Sample{At: 3e9, Mode: profile.Alloc, Weight: 3 << 30, Events: 1500},
		profile.Sample{At: 4e9, Mode: profile.Alloc, Weight: 1 << 30, Events: 12345},
		profile.Sample{At: 3e9, Mode: profile.Exception, Weight: 300, Events: 300},
		profile.Sample{At: 4e9, Mode: profile.Exception, Weight: 1000, Events: 1000},
		profile.Sample{At: 3e9, Mode: profile.Contention, Weight: second, Events: 1, State: profile.Waiting},
		profile.Sample{At: 3e9, Mode: profile.Contention, Weight: second / 2, Events: 4, State: profile.Waiting},
		profile.Sample{At: 3e9, Mode: profile.ThreadStart, Weight: 1, Events: 1},
		profile.Sample{At: 4e9, Mode: profile.ThreadStart, Weight: 1, Events: 1},
		profile.Sample{At: 3e9, Mode: profile.GC, Weight: second / 10, Events: 1},
		profile.Sample{At: 4e9, Mode: profile.GC, Weight: second / 5, Events: 2},
	)
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 4, Samples: 2}, {Mode: profile.Wall, Rate: 1, Got: 0.5, Samples: 2, Broken: 1},
		{Mode: profile.Alloc, Samples: 2, Seen: 40, Every: 2 << 30, Lost: 2},
		{Mode: profile.Exception, Samples: 2, Seen: 1300, Every: 650},
		{Mode: profile.Contention, Samples: 2, Seen: 12000, Every: int64(time.Millisecond), Broken: 1},
		{Mode: profile.ThreadStart, Samples: 2, Seen: 2}, {Mode: profile.GC, Samples: 2, Seen: 3},
	}
	return r
}
