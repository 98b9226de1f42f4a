package profiletest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Example is a small recording of CPU time, with samples of 10 ms: 10 in Program.Main,
// 20 in Tree.Visit and some in Cache.Evict, a callee of Program.Main.
func Example(evict int) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	thread := b.Thread(profile.RecordedThread{OSThreadID: 4242, ManagedThreadID: 1, Name: "Shop", Role: "Main"})
	at := func(method, signature string) int32 {
		f := b.Function(profile.Function{
			Kind: snapshot.Managed, Method: method, Display: method, Short: strings.TrimPrefix(method, "Shop."),
			Signature: signature, Module: "Shop",
		})
		return b.Location(profile.Location{Function: f})
	}
	main, visit, remove := at("Shop.Program.Main", "()"), at("Shop.Tree.Visit", "(Node)"), at("Shop.Cache.Evict", "()")
	now := time.Duration(0)
	add := func(n int, leafFirst ...int32) {
		for range n {
			now += 10 * time.Millisecond
			b.Add(profile.Sample{
				At: now, Weight: int64(10 * time.Millisecond),
				Thread: thread, Node: b.Stack(leafFirst), Mode: profile.CPU,
			})
		}
	}
	add(10, main)
	add(20, visit, main)
	add(evict, remove, main)
	r := b.Recording()
	r.Start, r.Duration = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), time.Second
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll"}}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 100, Samples: len(r.Samples)}}
	return r
}

// Million is a recording of a million samples, of 60 threads and 20,000 different
// stacks. Each thread has some hundreds of stacks. Every other sample repeats the
// stack of its thread's previous sample.
func Million() *profile.Recording {
	const samples, threads, stacks = 1 << 20, 60, 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	b := profile.NewBuilder(profile.Limits{Samples: samples + 1})
	var locations []int32
	for i := range 4000 {
		name := fmt.Sprintf("Shop.Orders.Service%d.HandleAsync", i/4)
		f := b.Function(profile.Function{
			Kind: snapshot.Managed, Method: name, Display: name, Short: name[12:],
			Signature: "(Shop.Orders.Order, int)",
			Module:    "Shop",
		})
		locations = append(locations, b.Location(profile.Location{
			Function: f, Offset: uint64(i % 4 * 16), Tier: "tier-1",
		}))
	}
	var nodes []int32
	for range stacks {
		at := int32(0)
		for depth := range 10 + rng.IntN(30) {
			at = b.Child(at, locations[(depth*80+rng.IntN(1+depth/3))%len(locations)])
		}
		nodes = append(nodes, at)
	}
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 1, Command: "dotnet Shop.dll"}}
	for i := range threads {
		b.Thread(profile.RecordedThread{OSThreadID: 100 + i, ManagedThreadID: i, Name: fmt.Sprint("worker-", i)})
	}
	at := time.Duration(0)
	var last [threads]int32
	for i := range samples {
		at += time.Duration(rng.IntN(1_000_000))
		mode := profile.Mode(i & 1)
		thread := rng.Int32N(threads)
		if rng.IntN(2) == 0 {
			last[thread] = nodes[(int(thread)*stacks/threads+int(600*rng.Float64()*rng.Float64()))%stacks]
		}
		b.Add(profile.Sample{
			At: at, Weight: 10_000_000 + int64(rng.IntN(100_000)), Thread: thread,
			Node: last[thread], Mode: mode, State: profile.State(rng.IntN(2)) * profile.State(mode),
		})
	}
	r = b.Recording()
	r.Duration = at
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Samples: samples / 2}, {Mode: profile.Wall, Rate: 99, Samples: samples / 2},
	}
	return r
}
