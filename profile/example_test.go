package profile_test

import (
	"fmt"
	"strings"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// shop builds a small recording of CPU time, with samples of 10 ms: 10 in Program.Main,
// 20 in Tree.Visit and some in Cache.Evict, which Program.Main calls.
func shop(evict int) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	main := b.Thread(profile.RecordedThread{OSThreadID: 4242, ManagedThreadID: 1, Name: "Shop", Role: "Main"})
	at := func(method, signature string) int32 {
		f := b.Function(profile.Function{
			Kind: snapshot.Managed, Method: method, Display: method, Short: strings.TrimPrefix(method, "Shop."),
			Signature: signature, Module: "Shop",
		})
		return b.Location(profile.Location{Function: f})
	}
	program := at("Shop.Program.Main", "(string[])")
	visit, remove := at("Shop.Tree.Visit", "(Node)"), at("Shop.Cache.Evict", "()")
	add := func(n int, leafFirst ...int32) {
		node := b.Stack(leafFirst)
		for range n {
			b.Add(profile.Sample{Thread: main, Node: node, Mode: profile.CPU, Weight: int64(10 * time.Millisecond)})
		}
	}
	add(20, visit, visit, program) // recursive
	add(evict, remove, program)
	add(10, program)
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll"}}
	r.Duration = time.Second
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 100, Samples: 30 + evict}}
	return r
}

// A collector adds functions, locations and stacks to a Builder as they appear, and a
// sample for each stack.
func ExampleBuilder() {
	b := profile.NewBuilder(profile.Limits{})
	thread := b.Thread(profile.RecordedThread{OSThreadID: 4242, Name: "Shop"})
	main := b.Function(profile.Function{Kind: snapshot.Managed, Display: "Shop.Program.Main", Module: "Shop"})
	read := b.Function(profile.Function{Kind: snapshot.Native, Display: "read", Module: "libc.so.6"})
	leafFirst := []int32{
		b.Location(profile.Location{Function: read, Offset: 0x14}),
		b.Location(profile.Location{Function: main, Offset: 0x30}),
	}
	b.Add(profile.Sample{
		At: 10 * time.Millisecond, Weight: int64(10 * time.Millisecond),
		Thread: thread, Node: b.Stack(leafFirst), Mode: profile.Wall, State: profile.Waiting,
	})

	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll"}}
	r.Duration = time.Second
	r.Modes = []profile.ModeStats{{Mode: profile.Wall, Rate: 100, Samples: len(r.Samples)}}
	for _, s := range r.Samples {
		fmt.Println(s.Mode, s.State, time.Duration(s.Weight))
		for l := range r.Stack(s.Node) {
			fmt.Println(" ", r.Functions[l.Function].Display)
		}
	}
	// Output:
	// wall waiting 10ms
	//   read
	//   Shop.Program.Main
}

func ExampleRecording_Totals() {
	r := shop(10)
	t := r.Totals(profile.CPU)
	fmt.Println("all:", time.Duration(t.All.All().Weight))
	for _, f := range t.Functions {
		self, total := f.Self.All().Weight, f.Total.All().Weight
		fmt.Printf("%-17s self %3.0f %%, with what it calls %3.0f %%\n",
			r.Functions[f.Function].Display, 100*t.Share(self), 100*t.Share(total))
	}
	// Output:
	// all: 400ms
	// Shop.Program.Main self  25 %, with what it calls 100 %
	// Shop.Tree.Visit   self  50 %, with what it calls  50 %
	// Shop.Cache.Evict  self  25 %, with what it calls  25 %
}

func ExampleRecording_Select() {
	r := shop(10)
	none := r.Select(profile.Selection{Modes: []profile.Mode{profile.Wall}})
	main := r.Select(profile.Selection{
		Threads: func(t *profile.RecordedThread) bool { return t.Role == "Main" },
	})
	fmt.Println(len(none.Samples), "wall samples")
	fmt.Println(time.Duration(main.Weight(profile.CPU)), "of CPU time on the main thread")
	// Output:
	// 0 wall samples
	// 400ms of CPU time on the main thread
}

func ExampleRecording_Rename() {
	r := shop(10).Rename(func(f *profile.Function) profile.Function {
		return profile.Function{Kind: f.Kind, Display: f.Module, Module: f.Module} // by assembly
	})
	for _, f := range r.Functions {
		fmt.Println(f.Display)
	}
	// Output:
	// Shop
}

func ExampleRecording_SampledModes() {
	fmt.Println(shop(10).SampledModes())
	// Output:
	// [cpu]
}

func ExampleRecording_Mode() {
	if stats, ok := shop(10).Mode(profile.CPU); ok {
		fmt.Printf("%d samples at %g Hz, %d lost\n", stats.Samples, stats.Rate, stats.Lost)
	}
	// Output:
	// 40 samples at 100 Hz, 0 lost
}

// The function that has become slower stands out from functions whose shares have only
// changed by chance.
func ExampleCompare() {
	d := profile.Compare(shop(10), shop(100), profile.CPU)
	for _, c := range d.Functions {
		fmt.Printf("%-17s %+3.0f %% of the time, by chance: %v\n",
			c.Function.Display, 100*c.Self.Change(), c.Self.Noise)
	}
	// Unordered output:
	// Shop.Program.Main -17 % of the time, by chance: true
	// Shop.Tree.Visit   -35 % of the time, by chance: false
	// Shop.Cache.Evict  +52 % of the time, by chance: false
}

func ExampleModeNamed() {
	m, ok := profile.ModeNamed("alloc")
	fmt.Println(ok, m.Title(), "in", m.Unit())
	// Output:
	// true Allocated bytes in bytes
}
