package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// example is a small snapshot: a thread that computes, and four workers that wait.
func example() *snapshot.Snapshot {
	managed := func(display, signature string) snapshot.Frame {
		short := display[strings.Index(display, ".")+1:]
		return snapshot.Frame{
			Kind: snapshot.Managed, Display: display, Short: short, Signature: signature, Module: "Shop",
		}
	}
	s := &snapshot.Snapshot{
		Process: snapshot.Process{
			PID: 4242, Command: "dotnet Shop.dll",
			Runtime: snapshot.Runtime{Version: "10.0.9", Shape: "shared"},
		},
		CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Threads: []snapshot.Thread{{
			OSThreadID: 4242, ManagedThreadID: 1, ThreadID: 0x55d01000, Name: "Shop", Role: "Main",
			State: "running", Mode: "cooperative", Pause: 14 * time.Microsecond, Complete: true,
			Frames: []snapshot.Frame{managed("Shop.Tree.Visit", "(Node)"), managed("Shop.Program.Main", "(string[])")},
		}},
		Stops: []time.Duration{14 * time.Microsecond},
	}
	for i := range 4 {
		s.Threads = append(s.Threads, snapshot.Thread{
			OSThreadID: 4250 + i, ManagedThreadID: 5 + i, Name: "orders", State: "waiting (futex)", Mode: "preemptive",
			Complete: true, Frames: []snapshot.Frame{managed("Shop.Orders.Take", "()")},
		})
	}
	return s
}

func ExampleText() {
	if err := report.Text(os.Stdout, example(), report.TextOptions{Terminal: report.Terminal{Width: 100}}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Process 4242 · .NET 10.0.9 (shared) · 2026-03-04 05:06:07.000 +00:00
	// dotnet Shop.dll
	//
	// Thread 4242 "Shop" (managed 1) Main · running · paused 14 µs
	//     Shop.Tree.Visit(Node)  Shop
	//     Shop.Program.Main(string[])  Shop
	//
	// 4 threads with this stack · waiting (futex)
	//   "orders" 4250 4251 4252 4253
	//     Shop.Orders.Take()  Shop
	//
	// 5 threads, 1 stopped (pauses: p50 14 µs, p99 14 µs, max 14 µs)
}

func ExampleJSON() {
	var document bytes.Buffer
	if err := report.JSON(&document, example()); err != nil {
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
	s := example()
	var threads []*snapshot.Thread
	for i := range s.Threads {
		threads = append(threads, &s.Threads[i])
	}
	for _, g := range report.GroupThreads(threads) {
		fmt.Println(len(g), "in", g[0].Frames[0].Display)
	}
	// Output:
	// 1 in Shop.Tree.Visit
	// 4 in Shop.Orders.Take
}

func ExampleSummary() {
	fmt.Println(report.Summary(example()))
	// Output:
	// 5 threads, 1 stopped (pauses: p50 14 µs, p99 14 µs, max 14 µs)
}

func ExampleTop() {
	if err := report.Top(os.Stdout, profiletest.Example(10), report.TopOptions{Rows: 2, Sort: report.Cum}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Process 4242 · 2026-03-04 05:06:07 +00:00 · 1.0 s
	// dotnet Shop.dll
	//
	// CPU time: 400.00 ms · 0.40 CPUs on average · 1 thread · user code 100.0 % · 40 samples at 100 Hz
	//
	//   flat %  flat ms   cum %  cum ms   CPU %  function
	//      ~25     ~100   100.0  400.00    40.0  Shop.Program.Main()  Shop
	//      ~50     ~200     ~50    ~200     ~20  Shop.Tree.Visit(Node)  Shop
	// … and 1 function more (--top 0 shows all)
	//
	//        %      ms   CPU %  thread
	//    100.0  400.00    40.0  4242 "Shop" (managed 1) Main
}

func ExampleTopJSON() {
	var document bytes.Buffer
	if err := report.TopJSON(&document, profiletest.Example(10), report.TopOptions{Rows: 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(document.String(), `"display":"Shop.Tree.Visit"`))
	// Output:
	// true
}

func ExampleDiff() {
	before, after := profiletest.Example(10), profiletest.Example(100)
	o := report.TopOptions{Terminal: report.Terminal{Width: 100}, Rows: 1}
	if err := report.Diff(os.Stdout, before, after, o); err != nil {
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

func ExampleDiffJSON() {
	var document bytes.Buffer
	before, after := profiletest.Example(10), profiletest.Example(100)
	if err := report.DiffJSON(&document, before, after, report.TopOptions{Rows: 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(document.String(), `"noise":false`))
	// Output:
	// true
}

func ExampleProcesses() {
	list := []snapshot.Found{
		{
			PID: 4242, User: "shop", Command: "dotnet exec --depsfile x.json Shop.dll 80",
			Program: "Shop.dll", Arguments: "80",
			Threads: 31, Age: 3*time.Hour + 25*time.Minute, CPU: 5 * time.Hour, RSS: 210 << 20,
			Runtime: snapshot.Runtime{Version: "10.0.9", Shape: "shared"},
		},
		{PID: 5001, User: "root", Command: "./Backup", Err: errors.New("permission denied: run as root")},
	}
	if err := report.Processes(os.Stdout, list, report.Terminal{Width: 90}); err != nil {
		log.Fatal(err)
	}
	// Output:
	//  PID  USER  VERSION  SHAPE      AGE      CPU   MEMORY  THREADS  PROGRAM
	// 4242  shop  10.0.9   shared  3h 25m  146.3 %  210 MiB       31  Shop.dll 80
	// 5001  root  -        -            -        -        -        -  ./Backup
	//       ✗ permission denied: run as root
}

func ExampleProcessesJSON() {
	list := []snapshot.Found{{
		PID: 4242, User: "shop", Command: "dotnet Shop.dll", Program: "Shop.dll",
		Threads: 31, Age: 90 * time.Second, CPU: 2500 * time.Millisecond, RSS: 210 << 20,
	}}
	if err := report.ProcessesJSON(os.Stdout, list); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"processes":[{"pid":4242,"user":"shop","command":"dotnet Shop.dll","program":"Shop.dll","ageSeconds":90,"cpuSeconds":2.5,"rssBytes":220200960,"threads":31}]}
}

func ExampleChecks() {
	checks := []snapshot.Check{
		{Name: "memory", Outcome: snapshot.Fine, Detail: "can be read"},
		{Name: "perf events", Outcome: snapshot.Degraded, Detail: "are not permitted", Remedy: "run as root"},
	}
	sections := []report.Section{{Title: "process 4242", Checks: checks}}
	if err := report.Checks(os.Stdout, sections, report.Terminal{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// process 4242:
	// ok       memory       can be read
	// warning  perf events  are not permitted
	//                       → run as root
}

func ExampleRecordingSummary() {
	for _, line := range report.RecordingSummary(profiletest.Example(10)) {
		fmt.Println(line)
	}
	// Output:
	// 1s: 40 cpu samples; the program used 0.00 of 0 CPUs, clrsnap 0.00
}

// The texts that the tables use for amounts.
func ExampleAmountText() {
	fmt.Println(report.AmountText(profile.Alloc, profile.Amount{Weight: 3 << 20, Events: 5000}))
	fmt.Println(report.WeightText(profile.Nanoseconds, int64(1234*time.Millisecond)))
	fmt.Println("40 samples" + report.SamplingText(&profile.ModeStats{Mode: profile.CPU, Rate: 99, Samples: 40}))
	fmt.Println(report.PauseText(14200 * time.Nanosecond))
	fmt.Println(report.RuntimeText(&snapshot.Runtime{Version: "10.0.9", Shape: "shared"}))
	// Output:
	// 3.00 MiB in 5,000 objects
	// 1.23 s
	// 40 samples at 99 Hz
	// 14 µs
	// .NET 10.0.9 (shared)
}

func ExampleClean() {
	fmt.Println(report.Clean("evil\x1b[2Jname"))
	// Output:
	// evil\x1b[2Jname
}
