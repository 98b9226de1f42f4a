package snapshot_test

import (
	"fmt"
	"time"

	"clrsnap/snapshot"
)

func ExampleSnapshot() {
	s := snapshot.Snapshot{
		Process: snapshot.Process{PID: 4242, Command: "dotnet Shop.dll"},
		Threads: []snapshot.Thread{
			{
				OSThreadID: 4242, ManagedThreadID: 1, Role: "Main", State: "running", Mode: "cooperative",
				Pause: 14 * time.Microsecond, Complete: true,
				Frames: []snapshot.Frame{{Kind: snapshot.Managed, Display: "Shop.Program.Main", Module: "Shop"}},
			},
			{OSThreadID: 4250, Name: "orders-1", Error: "the thread has ended"},
		},
		Stops: []time.Duration{14 * time.Microsecond},
	}
	fmt.Printf("%s: %d threads, %d without a stack, stopped for %v at most\n",
		s.Process.Program(), len(s.Threads), s.Missing(), s.Pauses().Max)
	// Output:
	// Shop.dll: 2 threads, 1 without a stack, stopped for 14µs at most
}

func ExampleSumPauses() {
	p := snapshot.SumPauses([]time.Duration{30 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond})
	fmt.Println(p.Count, p.P50, p.P99, p.Max)
	// Output:
	// 3 20µs 30µs 30µs
}

func ExampleSignal() {
	s := snapshot.Signal{Number: 11, Name: "SIGSEGV", Reason: "address not mapped", Address: 0x10, HasAddress: true}
	fmt.Println(s.String())
	// Output:
	// SIGSEGV (address not mapped: 0x10)
}

func ExampleFramework() {
	fmt.Println(snapshot.Framework("System.Private.CoreLib"), snapshot.Framework("Shop"))
	// Output:
	// true false
}
