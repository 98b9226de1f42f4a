package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// diagnosis is the diagnosis of an invented process.
func diagnosis() *profile.Findings {
	s := synthetic()
	refs := []snapshot.ThreadRef{{OSThreadID: 4250, ManagedThreadID: 5, Name: "evil\x1b[31m\u202e"}, {OSThreadID: 4251}}
	return &profile.Findings{
		Process: s.Process, At: s.CapturedAt, Took: 4400 * time.Millisecond,
		Verdicts: []profile.Verdict{
			{
				Cause: profile.CauseDeadlock, Certainty: profile.Certain,
				Text: "Deadlock: evil\x1b[31m\u202e (4250) holds Shop.Order 0x7f4a8d415378 and waits to enter " +
					"Monitor of Shop.Stock 0x7f4a8d415390, held by thread 4251.",
				Evidence: []profile.Evidence{
					{Text: "evil\x1b[31m\u202e (4250) waits:", Frames: waiting(), Threads: refs[:1]},
					{Text: "2 more threads wait, directly or not.", Threads: refs},
				},
				Commands: []string{"clrsnap locks 4242", "clrsnap stack 4242"},
			},
			{
				Cause: profile.CauseExceptions, Certainty: profile.Likely,
				Text: "The program throws 3,509 exceptions a second.",
				Evidence: []profile.Evidence{
					{Text: "33 % of the CPU time goes into them."},
					{Text: "2 async methods throw them:", Frames: []snapshot.Frame{
						awaits("Shop.Stock.Load", "Stock.Load", 41),
						awaits("Shop.Orders.Handle", "Orders.Handle", 17),
					}},
				},
			},
		},
		Looked:  []string{"4 looks at 38 threads, with what they wait for and hold", "3.2 s of samples"},
		Missing: []string{"The heap was not looked at: it is too large."},
	}
}

func TestWhy(t *testing.T) {
	nothing := diagnosis()
	nothing.Verdicts, nothing.Missing = nil, nil
	waits := diagnosis()
	waits.Verdicts, waits.Missing = nil, nil
	waits.Waits = []profile.Evidence{
		{Text: "2 threads wait in Shop.Feed.Put. One of them, evil\x1b[31m\u202e (4250), waits to add to " +
			"BlockingCollection<byte[]> 0x7f4a8d415378.",
			Threads: []snapshot.ThreadRef{{OSThreadID: 4250}, {OSThreadID: 4251}}},
		{Text: "8 async methods wait for room in a full channel, in Shop.Outbox.Send."},
	}
	cut := diagnosis()
	cut.Verdicts, cut.Missing, cut.Incomplete = nil,
		[]string{"It was not looked at to the end: context canceled."}, true
	dump := diagnosis()
	dump.Process.Core, dump.Verdicts, dump.Incomplete = &snapshot.Core{Path: "core.1"}, nil, true
	for _, c := range []struct {
		name string
		d    *profile.Findings
		o    WhyOptions
	}{
		{"why", diagnosis(), WhyOptions{}},
		{"why-color", diagnosis(), WhyOptions{Terminal: Terminal{Color: true, Width: 70}}},
		{"why-full", diagnosis(), WhyOptions{Full: true}},
		{"why-nothing", nothing, WhyOptions{}},
		{"why-waits", waits, WhyOptions{}},
		{"why-incomplete", cut, WhyOptions{}},
		{"why-dump", dump, WhyOptions{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Why(&b, c.d, c.o); err != nil {
				t.Fatal(err)
			}
			profiletest.Golden(t, c.name+".txt", b.Bytes())
			if i := strings.IndexAny(b.String(), "\x1b\u202e"); i >= 0 && !c.o.Color {
				t.Errorf("a control character gets through: %q", b.String()[i:][:20])
			}
		})
	}
}

func TestWhyJSON(t *testing.T) {
	var b, indented bytes.Buffer
	d := diagnosis()
	d.Waits = []profile.Evidence{{Text: "1 request is in flight."}}
	if err := WhyJSON(&b, d); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "why.json", indented.Bytes())
	b.Reset()
	if err := WhyJSON(&b, &profile.Findings{}); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, `"verdicts":[]`) || !strings.Contains(s, `"looked":[]`) {
		t.Error(s)
	}
}

// TestWhyOwnFrames: a long stack shows how the thread waits, and the program's own frames.
func TestWhyOwnFrames(t *testing.T) {
	own := snapshot.Frame{Kind: snapshot.Managed, Method: "Shop.Orders.Handle", Display: "Shop.Orders.Handle",
		Module: "Shop"}
	frames := make([]snapshot.Frame, 0, 42)
	for i := range 40 {
		name := fmt.Sprintf("Inner.Step%d", i)
		frames = append(frames, snapshot.Frame{
			Kind: snapshot.Managed, Method: "System." + name, Display: "System." + name,
			Module: "System.Private.CoreLib",
		})
	}
	frames = append(frames, own, frames[0])
	d := diagnosis()
	d.Verdicts[0].Evidence[0].Frames = frames
	var b bytes.Buffer
	if err := Why(&b, d, WhyOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Inner.Step2 ", "… 37 more", "Orders.Handle"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "Inner.Step3 ") {
		t.Error("all frames of the runtime are shown")
	}
}
