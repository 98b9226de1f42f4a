package record_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/export"
	"clrsnap/profile"
	"clrsnap/record"
)

// Ten seconds of a running process, as a flame graph.
func ExampleRecord() {
	ctx := context.Background()
	p, err := clrsnap.Open(ctx, 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	r, err := record.Record(ctx, p, record.Options{
		Modes: []profile.Mode{profile.CPU, profile.Wall}, Duration: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := os.Create("recording.html")
	if err != nil {
		log.Fatal(err)
	}
	if err := export.FlameGraph(out, r, export.FlameOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}
}

// The allocations and exceptions of a program, from its start to its end.
func ExampleCommand() {
	cmd := exec.Command("dotnet", "Shop.dll")
	r, err := record.Command(context.Background(), cmd, clrsnap.Options{}, record.Options{
		Events: events.Options{Monitor: events.MonitorAllocations | events.MonitorExceptions},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		fmt.Println("the program:", err)
	}
	for _, m := range r.Modes {
		fmt.Printf("%v: %d samples of %d events\n", m.Mode, m.Samples, m.Seen)
	}
}
