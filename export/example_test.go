package export_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"clrsnap/export"
	"clrsnap/profile"
)

// snapshot is a small snapshot: a thread that computes, and four workers that wait.
func snapshot() *profile.Snapshot {
	managed := func(display, signature string) profile.Frame {
		short := display[strings.Index(display, ".")+1:]
		return profile.Frame{
			Kind: profile.Managed, Display: display, Short: short, Signature: signature, Module: "Shop",
		}
	}
	s := &profile.Snapshot{
		Process: profile.Process{
			PID: 4242, Command: "dotnet Shop.dll",
			Runtime: profile.Runtime{Version: "10.0.9", Shape: "shared"},
		},
		CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Threads: []profile.Thread{{
			OSThreadID: 4242, ManagedThreadID: 1, ThreadID: 0x55d01000, Name: "Shop", Role: "Main",
			State: "running", Mode: "cooperative", Pause: 14 * time.Microsecond, Complete: true,
			Frames: []profile.Frame{managed("Shop.Tree.Visit", "(Node)"), managed("Shop.Program.Main", "(string[])")},
		}},
		Stops: []time.Duration{14 * time.Microsecond},
	}
	for i := range 4 {
		s.Threads = append(s.Threads, profile.Thread{
			OSThreadID: 4250 + i, ManagedThreadID: 5 + i, Name: "orders", State: "waiting (futex)", Mode: "preemptive",
			Complete: true, Frames: []profile.Frame{managed("Shop.Orders.Take", "()")},
		})
	}
	return s
}

// example is a small recording of CPU time, with samples of 10 ms: 10 in Program.Main,
// 20 in Tree.Visit and some in Cache.Evict, which Program.Main calls.
func example(evict int) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	thread := b.Thread(profile.RecordedThread{OSThreadID: 4242, ManagedThreadID: 1, Name: "Shop", Role: "Main"})
	at := func(method, signature string) int32 {
		f := b.Function(profile.Function{
			Kind: profile.Managed, Method: method, Display: method, Short: strings.TrimPrefix(method, "Shop."),
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
	r.Processes = []profile.Process{{PID: 4242, Command: "dotnet Shop.dll"}}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 100, Samples: len(r.Samples)}}
	return r
}

func ExampleText() {
	if err := export.Text(os.Stdout, snapshot(), export.TextOptions{Width: 100}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Process 4242 · .NET 10.0.9 (shared) · 2026-03-04 05:06:07.000 +00:00
	// dotnet Shop.dll
	//
	// Thread 4242 "Shop" (managed 1, 0x55d01000) Main · running · cooperative · paused 14 µs
	//     Shop.Tree.Visit(Node)  Shop
	//     Shop.Program.Main(string[])  Shop
	//
	// 4 threads with this stack · waiting (futex) · preemptive
	//   "orders" 4250 4251 4252 4253
	//     Shop.Orders.Take()  Shop
	//
	// 5 threads, 1 stopped (pauses: p50 14 µs, p99 14 µs, max 14 µs)
}

func ExampleJSON() {
	var document bytes.Buffer
	if err := export.JSON(&document, snapshot()); err != nil {
		log.Fatal(err)
	}
	var fields struct {
		Threads []struct {
			Name, State string
		}
	}
	if err := json.Unmarshal(document.Bytes(), &fields); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(fields.Threads), "threads, the first is", fields.Threads[0])
	// Output:
	// 5 threads, the first is {Shop running}
}

func ExampleGroupThreads() {
	s := snapshot()
	var threads []*profile.Thread
	for i := range s.Threads {
		threads = append(threads, &s.Threads[i])
	}
	for _, g := range export.GroupThreads(threads) {
		fmt.Println(len(g), "in", g[0].Frames[0].Display)
	}
	// Output:
	// 1 in Shop.Tree.Visit
	// 4 in Shop.Orders.Take
}

func ExampleSummary() {
	fmt.Println(export.Summary(snapshot()))
	// Output:
	// 5 threads, 1 stopped (pauses: p50 14 µs, p99 14 µs, max 14 µs)
}

// The file extension chooses the format.
func ExampleEncode() {
	format, ok := export.FormatOf("shop.folded")
	if !ok {
		log.Fatal("no format has this file extension")
	}
	if err := export.Encode(os.Stdout, example(10), format, export.Options{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Shop.Program.Main() 100000
	// Shop.Program.Main();Shop.Tree.Visit(Node) 200000
	// Shop.Program.Main();Shop.Cache.Evict() 100000
}

func ExampleFormats() {
	for _, f := range export.Formats() {
		fmt.Println(f, f.Ending())
	}
	// Output:
	// html .html
	// clrsnap .clrsnap
	// pprof .pb.gz
	// speedscope .speedscope.json
	// folded .folded
	// trace .trace.json
	// svg .svg
}

func ExampleFlameGraph() {
	var page bytes.Buffer
	if err := export.FlameGraph(&page, example(10), export.FlameOptions{Title: "The shop"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(page.String(), "<title>The shop</title>"))
	// Output:
	// true
}

func ExampleSVG() {
	var picture bytes.Buffer
	if err := export.SVG(&picture, example(10), export.SVGOptions{Width: 800}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(picture.String(), `<svg xmlns="http://www.w3.org/2000/svg" width="800"`))
	// Output:
	// true
}

func ExampleFolded() {
	if err := export.Folded(os.Stdout, example(10), export.FoldedOptions{ByThread: true}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Shop (4242);Shop.Program.Main() 100000
	// Shop (4242);Shop.Program.Main();Shop.Tree.Visit(Node) 200000
	// Shop (4242);Shop.Program.Main();Shop.Cache.Evict() 100000
}

// What was written for go tool pprof can also be read back.
func ExamplePprof() {
	var file bytes.Buffer
	if err := export.Pprof(&file, example(10)); err != nil {
		log.Fatal(err)
	}
	r, err := export.ReadRecording(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Duration(r.Weight(profile.CPU)), "of CPU time in", len(r.Samples), "different stacks")
	// Output:
	// 400ms of CPU time in 3 different stacks
}

func ExampleSpeedscope() {
	var file bytes.Buffer
	if err := export.Speedscope(&file, example(10)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(file.String(), `"name":"Shop (4242), CPU"`))
	// Output:
	// true
}

func ExampleChromeTrace() {
	var file bytes.Buffer
	if err := export.ChromeTrace(&file, example(10)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Count(file.String(), `"ph":"B"`), "slices")
	// Output:
	// 3 slices
}

func ExampleWriteRecording() {
	var file bytes.Buffer
	if err := export.WriteRecording(&file, example(10)); err != nil {
		log.Fatal(err)
	}
	z, err := gzip.NewReader(&file)
	if err != nil {
		log.Fatal(err)
	}
	start, err := io.ReadAll(io.LimitReader(z, 31))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(start))
	// Output:
	// {"format":"clrsnap recording",
}

// A recording can be read from any format that ReadRecording knows.
func ExampleReadRecording() {
	folded := "Main;Parse 1200\nMain;Write 300\n"
	r, err := export.ReadRecording(strings.NewReader(folded))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Duration(r.Weight(profile.CPU)))
	for _, note := range r.Notes {
		fmt.Println(note)
	}
	// Output:
	// 1.5ms
	// Folded stacks have neither units nor times: their numbers are read as microseconds of CPU time.
}

func ExampleTop() {
	if err := export.Top(os.Stdout, example(10), export.TopOptions{Rows: 2, Sort: export.Cum}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Process 4242 · 2026-03-04 05:06:07 +00:00 · 1.0 s
	// dotnet Shop.dll
	//
	// CPU time: 400.00 ms · 1 thread · user code 100.0 % · 40 samples at 100 Hz
	//
	//   flat %  flat ms   cum %  cum ms  function
	//     25.0   100.00   100.0  400.00  Shop.Program.Main()  Shop
	//     50.0   200.00    50.0  200.00  Shop.Tree.Visit(Node)  Shop
	// … and 1 function more (--top 0 shows all)
	//
	//        %      ms  thread
	//    100.0  400.00  4242 "Shop" (managed 1) Main
}

func ExampleTopJSON() {
	var document bytes.Buffer
	if err := export.TopJSON(&document, example(10), export.TopOptions{Rows: 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(document.String(), `"display":"Shop.Tree.Visit"`))
	// Output:
	// true
}

func ExampleDifference() {
	before, after := example(10), example(100)
	if err := export.Difference(os.Stdout, before, after, export.TopOptions{Rows: 1, Width: 100}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Base:
	// Process 4242 · 2026-03-04 05:06:07 +00:00 · 1.0 s
	// dotnet Shop.dll
	//
	// Compared with it:
	// Process 4242 · 2026-03-04 05:06:07 +00:00 · 1.0 s
	// dotnet Shop.dll
	//
	// CPU time: 400.00 ms → 1.300 s · 0.40 → 1.30 CPUs on average (+0.90) · 40 → 130 samples
	//
	//   flat %     was  change    cum %     was  change   function
	//     76.9    25.0   +51.9     76.9    25.0   +51.9   Shop.Cache.Evict()  Shop
	// … and 2 functions more, 1 of them changed significantly (--top 0 shows all)
}

func ExampleDifferenceJSON() {
	var document bytes.Buffer
	if err := export.DifferenceJSON(&document, example(10), example(100), export.TopOptions{Rows: 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(document.String(), `"noise":false`))
	// Output:
	// true
}

func ExampleSampledModes() {
	fmt.Println(export.SampledModes(example(10)))
	// Output:
	// [cpu]
}

// The texts that the tables use for amounts.
func ExampleAmountText() {
	fmt.Println(export.AmountText(profile.Alloc, profile.Amount{Weight: 3 << 20, Events: 5000}))
	fmt.Println(export.WeightText(profile.Nanoseconds, int64(1234*time.Millisecond)))
	fmt.Println("40 samples" + export.SamplingText(&profile.ModeStats{Mode: profile.CPU, Rate: 99, Samples: 40}))
	fmt.Println(export.Pause(14200 * time.Nanosecond))
	fmt.Println(export.RuntimeText(&profile.Runtime{Version: "10.0.9", Shape: "shared"}))
	// Output:
	// 3.00 MiB in 5,000 objects
	// 1.23 s
	// 40 samples at 99 Hz
	// 14 µs
	// .NET 10.0.9 (shared)
}

func ExampleClean() {
	fmt.Println(export.Clean("evil\x1b[2Jname"))
	// Output:
	// evil\x1b[2Jname
}
