package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// only returns a function that selects one mode of a recording.
func only(m profile.Mode) func(*profile.Recording) *profile.Recording {
	return func(r *profile.Recording) *profile.Recording {
		return r.Select(profile.Selection{Modes: []profile.Mode{m}, Native: true})
	}
}

func TestTop(t *testing.T) {
	waiting := func(r *profile.Recording) *profile.Recording {
		return r.Select(profile.Selection{States: []profile.State{profile.Waiting}})
	}
	foreign := func(r *profile.Recording) *profile.Recording {
		return &profile.Recording{
			Threads: r.Threads[:1], Functions: r.Functions, Locations: r.Locations, Nodes: r.Nodes,
			Samples: r.Samples[:1],
		}
	}
	children := func(r *profile.Recording) *profile.Recording {
		r.Processes = append(r.Processes, snapshot.Process{PID: 5001}, snapshot.Process{PID: 5002})
		r.Threads[1].Process = 2
		return r
	}
	resting := func(*profile.Recording) *profile.Recording { return profiletest.RestingShop() }
	onlyIdle := func(*profile.Recording) *profile.Recording {
		return profiletest.RestingShop().Select(profile.Selection{Modes: []profile.Mode{profile.Wall},
			Threads: func(t *profile.RecordedThread) bool { return t.Role == "Signal handler" }})
	}
	nothing := func(*profile.Recording) *profile.Recording { return &profile.Recording{} }
	source := func(*profile.Recording) *profile.Recording { return profiletest.SourceShop() }
	for _, c := range []struct {
		name   string
		o      TopOptions
		change func(*profile.Recording) *profile.Recording
	}{
		{"plain", TopOptions{}, nil},
		{"80", TopOptions{Terminal: Terminal{Width: 80}, Rows: 5}, nil},
		{"140-color", TopOptions{Terminal: Terminal{Width: 140, Color: true}}, nil},
		{"cum", TopOptions{Terminal: Terminal{Width: 100}, Sort: Cum, Rows: 3}, only(profile.CPU)},
		{"threads", TopOptions{Terminal: Terminal{Width: 100}, ByThread: true, Rows: 2}, only(profile.Wall)},
		{"waiting", TopOptions{Terminal: Terminal{Width: 100}}, waiting},
		{"foreign", TopOptions{Terminal: Terminal{Width: 100}}, foreign},
		{"children", TopOptions{Terminal: Terminal{Width: 100}, Rows: 1}, children},
		{"nothing", TopOptions{Terminal: Terminal{Width: 100}}, nothing},
		{"resting", TopOptions{Terminal: Terminal{Width: 120}, Rows: 6}, resting},
		{"resting-80", TopOptions{Terminal: Terminal{Width: 80}, Rows: 6}, resting},
		{"resting-idle", TopOptions{Terminal: Terminal{Width: 120}, Rows: 6, Idle: true}, resting},
		{"resting-threads", TopOptions{Terminal: Terminal{Width: 120}, Rows: 1, ByThread: true}, resting},
		{"resting-only", TopOptions{Terminal: Terminal{Width: 100}}, onlyIdle},
		{"lines", TopOptions{Lines: true}, source},
		{"lines-80", TopOptions{Terminal: Terminal{Width: 80, Color: true}, Lines: true, Rows: 4}, source},
		{"lines-full", TopOptions{Lines: true, Full: true, Sort: Cum}, source},
		{"no-lines", TopOptions{}, source},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := profiletest.BusyShop()
			if c.change != nil {
				r = c.change(r)
			}
			var b bytes.Buffer
			if err := Top(&b, r, c.o); err != nil {
				t.Fatal(err)
			}
			profiletest.Golden(t, "top-"+c.name+".txt", b.Bytes())
			checkTerminal(t, b.String(), c.o.Color)
		})
	}
}

// checkTerminal requires that no control character from a target reaches the terminal.
func checkTerminal(t *testing.T, text string, color bool) {
	t.Helper()
	if color {
		for _, st := range []style{bold, dim, red, green, yellow, magenta, cyan, boldCyan} {
			text = strings.ReplaceAll(text, "\x1b["+string(st)+"m", "")
		}
		text = strings.ReplaceAll(text, "\x1b[0m", "")
	}
	if i := strings.IndexByte(text, '\x1b'); i >= 0 {
		t.Errorf("a control character gets through: %q", text[i:min(i+20, len(text))])
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("spaces at the end of %q", line)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name      string
		o         TopOptions
		base, now *profile.Recording
	}{
		{"plain", TopOptions{}, profiletest.CalmShop(), profiletest.BusyShop()},
		{"80", TopOptions{Terminal: Terminal{Width: 80}, Rows: 4}, profiletest.CalmShop(), profiletest.BusyShop()},
		{
			"140-color", TopOptions{Terminal: Terminal{Width: 140, Color: true}, Sort: Cum},
			only(profile.CPU)(profiletest.CalmShop()), only(profile.CPU)(profiletest.BusyShop()),
		},
		{"back", TopOptions{Terminal: Terminal{Width: 100}, Rows: 6}, profiletest.BusyShop(), profiletest.CalmShop()},
		{
			"no-mode", TopOptions{},
			only(profile.Wall)(profiletest.CalmShop()), only(profile.Wall)(profiletest.BusyShop()),
		},
		{"resting", TopOptions{Terminal: Terminal{Width: 120}, Rows: 3}, profiletest.BusyShop(),
			profiletest.RestingShop()},
		{"itself", TopOptions{Terminal: Terminal{Width: 120}, Rows: 3}, profiletest.BusyShop(), profiletest.BusyShop()},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Diff(&b, c.base, c.now, c.o); err != nil {
				t.Fatal(err)
			}
			profiletest.Golden(t, "diff-"+c.name+".txt", b.Bytes())
			checkTerminal(t, b.String(), c.o.Color)
		})
	}
}

func TestEventTables(t *testing.T) {
	all := func(r *profile.Recording) *profile.Recording { return r }
	for name, c := range map[string]struct {
		o      TopOptions
		choose func(*profile.Recording) *profile.Recording
	}{
		"plain": {TopOptions{}, all}, "80": {TopOptions{Terminal: Terminal{Width: 80}, Rows: 4}, all},
		"cum":     {TopOptions{Terminal: Terminal{Width: 100}, Sort: Cum, Rows: 3}, only(profile.Alloc)},
		"color":   {TopOptions{Terminal: Terminal{Color: true, Width: 120}}, only(profile.Alloc)},
		"threads": {TopOptions{Terminal: Terminal{Width: 100}, ByThread: true}, only(profile.Contention)},
	} {
		var b bytes.Buffer
		if err := Top(&b, c.choose(profiletest.EventShop()), c.o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "top-events-"+name+".txt", b.Bytes())
		checkTerminal(t, b.String(), c.o.Color)
	}
	for name, o := range map[string]TopOptions{
		"plain": {}, "120": {Terminal: Terminal{Width: 120}, Sort: Cum, Rows: 3},
	} {
		var b bytes.Buffer
		if err := Diff(&b, profiletest.EventShop(), profiletest.LaterShop(), o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "diff-events-"+name+".txt", b.Bytes())
		checkTerminal(t, b.String(), o.Color)
	}
	for name, write := range map[string]func(io.Writer) error{
		"top-events.json": func(w io.Writer) error { return TopJSON(w, profiletest.EventShop(), TopOptions{Rows: 1}) },
		"diff-events.json": func(w io.Writer) error {
			return DiffJSON(w, only(profile.Alloc)(profiletest.EventShop()),
				only(profile.Alloc)(profiletest.LaterShop()), TopOptions{Rows: 1})
		},
	} {
		var b, indented bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, name, indented.Bytes())
	}
}

func TestTopJSON(t *testing.T) {
	indented := func(write func(*bytes.Buffer) error) []byte {
		var b, out bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(b.String(), "}\n") || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("not one line: %q", b.String())
		}
		if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	profiletest.Golden(t, "top.json", indented(func(b *bytes.Buffer) error {
		return TopJSON(b, profiletest.BusyShop(), TopOptions{Rows: 2})
	}))
	profiletest.Golden(t, "top-lines.json", indented(func(b *bytes.Buffer) error {
		return TopJSON(b, profiletest.SourceShop(), TopOptions{Rows: 2})
	}))
	profiletest.Golden(t, "top-resting.json", indented(func(b *bytes.Buffer) error {
		return TopJSON(b, profiletest.RestingShop(), TopOptions{Rows: 1})
	}))
	profiletest.Golden(t, "diff.json", indented(func(b *bytes.Buffer) error {
		return DiffJSON(b, only(profile.CPU)(profiletest.CalmShop()), only(profile.CPU)(profiletest.BusyShop()),
			TopOptions{Rows: 2})
	}))
	// Lists are never null, not even empty lists.
	profiletest.Golden(t, "top-nothing.json",
		indented(func(b *bytes.Buffer) error { return TopJSON(b, &profile.Recording{}, TopOptions{}) }))
	profiletest.Golden(t, "diff-nothing.json", indented(func(b *bytes.Buffer) error {
		return DiffJSON(b, &profile.Recording{}, &profile.Recording{}, TopOptions{})
	}))
}

// TestTopHasAll: with all rows the flat shares of a table add up to the whole.
func TestTopHasAll(t *testing.T) {
	var b bytes.Buffer
	if err := TopJSON(&b, profiletest.BusyShop(), TopOptions{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Modes []struct {
			jsonModeTotals
			Functions []jsonFunctionTop
			Threads   []jsonThreadTop
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Modes {
		flat, threads := 0.0, 0.0
		for _, f := range m.Functions {
			flat += *f.Flat.Seconds
			if *f.Cum.Seconds < *f.Flat.Seconds || f.Cum.Share > 1 {
				t.Errorf("%s: %+v", f.Display, f)
			}
		}
		for _, x := range m.Threads {
			threads += *x.Total.Seconds
		}
		if m.Mode == "cpu" {
			flat += 0.02 // two samples have no stack
		}
		if want := *m.Total.Seconds; flat < want-1e-6 || flat > want+1e-6 || threads < want-1e-6 ||
			threads > want+1e-6 {
			t.Errorf("%s: functions have %v s, threads %v s, of %v s", m.Mode, flat, threads, want)
		}
	}
}

func TestTopWriteError(t *testing.T) {
	for name, err := range map[string]error{
		"Top":      Top(profiletest.Full{}, profiletest.BusyShop(), TopOptions{}),
		"Diff":     Diff(profiletest.Full{}, profiletest.CalmShop(), profiletest.BusyShop(), TopOptions{}),
		"TopJSON":  TopJSON(profiletest.Full{}, profiletest.BusyShop(), TopOptions{}),
		"DiffJSON": DiffJSON(profiletest.Full{}, profiletest.CalmShop(), profiletest.BusyShop(), TopOptions{}),
	} {
		if !errors.Is(err, profiletest.ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSigned(t *testing.T) {
	for v, want := range map[float64]string{0.01: "0.0", -0.01: "0.0", 1: "+1.0", -1: "-1.0", 0: "0.0"} {
		if got := signed(fmt.Sprintf("%.1f", v)); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

// BenchmarkTop: tables of a million samples.
func BenchmarkTop(b *testing.B) {
	r := profiletest.Million()
	for b.Loop() {
		if err := Top(io.Discard, r, TopOptions{Rows: 20}); err != nil {
			b.Fatal(err)
		}
	}
}
