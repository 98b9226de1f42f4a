package export

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"clrsnap/profile"

	pprof "github.com/google/pprof/profile"
)

// eventShop is a recording with samples of every mode.
func eventShop() *profile.Recording {
	s := newShop()
	event := func(module, display, short string) int32 {
		return s.Location(profile.Location{
			Function: s.Function(profile.Function{Kind: profile.Event, Display: display, Short: short, Module: module}),
		})
	}
	queue := event("Shop", "Shop.Orders.Queue<System.Int32>", "Queue<Int32>")
	array := event(coreLib, "System.Byte[]", "Byte[]")
	thrown := event(coreLib, "System.InvalidOperationException", "InvalidOperationException")
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
		if m == profile.Contention {
			x.State = profile.Waiting
		}
		s.Add(x)
	}
	s.add(5, 0, profile.CPU, profile.Running, 10, s.stack(mainName, submitName))
	s.add(4, 1, profile.Wall, profile.Waiting, 30, s.stack(mainName, waitName))
	add(0, profile.Alloc, 3<<30, 1_234_567_890, array, mainName, submitName, sortName)
	add(1, profile.Alloc, 512<<10, 7, queue, mainName, submitName)
	add(1, profile.Alloc, 512<<10, 1, array, mainName, "libcoreclr.so!")
	add(2, profile.Alloc, 512<<10, 2, array)
	add(1, profile.Exception, 4000, 4000, thrown, mainName, visitName)
	add(1, profile.Exception, 4, 4, evil, mainName)
	add(1, profile.Contention, 45_000_000, 1, held, mainName, submitName, waitName)
	add(2, profile.Contention, 5_600_000, 2, held, mainName, submitName, waitName)
	add(0, profile.ThreadStart, 1, 1, started, mainName)
	add(0, profile.GC, 7_000_000, 1, induced, mainName)
	add(1, profile.GC, 250_000, 3, gen0, mainName, submitName)

	r := s.Recording()
	r.Version, r.Start, r.Duration = "1.2.3", time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC), 2*time.Second
	r.Processes = []profile.Process{
		{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: profile.Runtime{Version: "10.0.9", Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Source: profile.FromProcessors, Samples: 5},
		{Mode: profile.Wall, Rate: 99, Samples: 4},
		{Mode: profile.Alloc, Samples: 4, Broken: 1, Every: 512 << 10},
		{Mode: profile.Exception, Samples: 2, Lost: 3, Seen: 40040, Every: 10},
		{Mode: profile.Contention, Samples: 3, Seen: 17, Every: 1_000_000},
		{Mode: profile.ThreadStart, Samples: 1, Seen: 1},
		{Mode: profile.GC, Samples: 4, Seen: 4},
	}
	r.Cost = profile.Cost{TargetCPU: 90 * time.Millisecond, Processors: 2}
	return r
}

// laterShop is eventShop some time later: other classes, fewer exceptions.
func laterShop() *profile.Recording {
	r := eventShop()
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

func TestEventFormats(t *testing.T) {
	r := eventShop()
	for name, write := range map[string]func(io.Writer, *profile.Recording) error{
		"events.speedscope.json":   Speedscope,
		"events.trace.json":        ChromeTrace,
		"events-alloc.folded":      foldedOf(profile.Alloc, false),
		"events-exception.folded":  foldedOf(profile.Exception, true),
		"events-contention.folded": foldedOf(profile.Contention, false),
	} {
		golden(t, name, written(t, write, r))
	}
	p, err := pprof.ParseData(written(t, Pprof, r))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "events.pprof.txt", []byte(p.String()))
	golden(t, "events.json", inflated(t, written(t, WriteRecording, r)))
	var trace any
	if err := json.Unmarshal(written(t, ChromeTrace, r), &trace); err != nil {
		t.Errorf("the trace is no JSON: %v", err)
	}
}

// TestEventReadBack: what of events can be read back from each format.
func TestEventReadBack(t *testing.T) {
	r := eventShop()
	if got := readBack(t, written(t, WriteRecording, r)); !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v\nwant %+v", got, r)
	}
	for name, write := range map[string]func(io.Writer, *profile.Recording) error{"pprof": Pprof,
		"speedscope": Speedscope} {
		got := readBack(t, written(t, write, r))
		for _, m := range profile.Modes {
			equalMaps(t, name+" "+m.String(), byStack(got, m, seen), byStack(r, m, seen))
		}
		shorts := map[string]bool{}
		for i := range r.Functions {
			shorts[r.Functions[i].Short] = true
		}
		for _, f := range got.Functions {
			if f.Kind == profile.Event && (!shorts[f.Short] || f.Signature != "") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		for _, l := range got.Locations {
			if got.Functions[l.Function].Kind == profile.Event && l.Offset != 0 {
				t.Errorf("%s: an event is at offset %d", name, l.Offset)
			}
		}
	}
	got := readBack(t, written(t, Pprof, r))
	equalMaps(t, "sums", sums(got), sums(r))
	folded := readBack(t, written(t, foldedOf(profile.Alloc, false), r))
	if f := folded.Function(folded.Samples[0].Node); f.Kind != profile.Event || f.Display != "System.Byte[]" {
		t.Errorf("folded: %+v", f)
	}
}

// TestPprofToolEvents: go tool pprof shows what was allocated, and in whose calls.
func TestPprofToolEvents(t *testing.T) {
	file := t.TempDir() + "/x.pb.gz"
	if err := os.WriteFile(file, written(t, Pprof, eventShop()), 0o644); err != nil {
		t.Fatal(err)
	}
	for sample, want := range map[string]string{
		"alloc_space": `3073MB .* System\.Byte\[\]`, "alloc_objects": `1234567893 .* System\.Byte\[\]`,
		"exceptions": `4004 .* Shop\.Program\.Main`,
		"delay":      `50\.60ms .* held by app\.orders-2`, "contentions": `3 .* held by app\.orders-2`,
		"threads": `1 .* orders-3`, "pause": `7250us .* Shop\.Program\.Main`,
		"gcs": `3 .* gen 0, out of budget`, "cpu": `50ms .* Shop\.Orders\.Queue\.Submit`,
	} {
		out := goTool(t, "-top", "-nodefraction=0", "-sample_index="+sample, file)
		if !strings.Contains(string(out), "Type: "+sample) || !regexp.MustCompile(want).Match(out) {
			t.Errorf("%s:\n%s", sample, out)
		}
	}
}

// TestDocumentedExample: the example in docs/recording.md is what is written.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../docs/recording.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(page, []byte("```json\n"))
	example, _, ok := bytes.Cut(rest, []byte("```"))
	if !ok {
		t.Fatal("docs/recording.md has no example")
	}
	if got := inflated(t, written(t, WriteRecording, readBack(t, example))); !bytes.Equal(got, example) {
		t.Errorf("it would be\n%s", got)
	}
}

// TestFirstVersion: files of the first version of the format are read.
func TestFirstVersion(t *testing.T) {
	file, err := os.ReadFile("testdata/recording-1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := recorded()
	for i := range want.Modes {
		want.Modes[i].Source = "" // which it does not know
	}
	if got := readBack(t, file); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestForeignEvents reads files of other tools about allocations and locks.
func TestForeignEvents(t *testing.T) {
	file := func(period *pprof.ValueType, v ...any) []byte {
		f := &pprof.Function{ID: 1, Name: "main.f"}
		l := &pprof.Location{ID: 1, Address: 1, Line: []pprof.Line{{Function: f}}}
		p := &pprof.Profile{
			Function: []*pprof.Function{f}, Location: []*pprof.Location{l},
			Sample: []*pprof.Sample{{Location: []*pprof.Location{l}}}, PeriodType: period, Period: 524288,
		}
		for i := 0; i < len(v); i += 3 {
			p.SampleType = append(p.SampleType, &pprof.ValueType{Type: v[i].(string), Unit: v[i+1].(string)})
			p.Sample[0].Value = append(p.Sample[0].Value, int64(v[i+2].(int)))
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, c := range []struct {
		name           string
		file           []byte
		mode           profile.Mode
		weight, events int64
		every          int64
		note           string
	}{
		{"a heap profile of Go", file(&pprof.ValueType{Type: "space", Unit: "bytes"}, "alloc_objects", "count", 3,
			"alloc_space", "bytes", 4096, "inuse_objects", "count", 1, "inuse_space", "bytes", 8),
			profile.Alloc, 4096, 3, 524288, ""},
		{
			"what is in use", file(nil, "inuse_objects", "count", 1, "inuse_space", "bytes", 8), profile.Alloc, 8, 1, 0,
			"inuse_space in bytes",
		},
		{
			"a mutex profile of Go", file(nil, "contentions", "count", 5, "delay", "nanoseconds", 777),
			profile.Contention, 777, 5, 0, "",
		},
		{"thread creations of Go", file(nil, "threadcreate", "count", 6), profile.ThreadStart, 6, 6, 0, ""},
		{
			"allocations of Pyroscope", file(nil, "timeline", "nanoseconds", 0, "alloc-samples", "count", 2,
				"alloc-size", "bytes", 64), profile.Alloc, 64, 2, 0, "",
		},
		{
			"locks of Pyroscope", file(nil, "lock-count", "count", 2, "lock-time", "nanoseconds", 64),
			profile.Contention, 64, 2, 0, "",
		},
		{"exceptions of Pyroscope", file(nil, "exception", "count", 2), profile.Exception, 2, 2, 0, ""},
		{
			"speedscope, bytes",
			[]byte(`{"shared":{"frames":[{"name":"f"}]},"profiles":[{"type":"sampled","unit":"bytes","samples":[[` +
				`0]],"weights":[99]}]}`), profile.Alloc, 99, 0, 0, "",
		},
	} {
		r := readBack(t, c.file)
		total := r.Totals(c.mode).All
		if all := total.All(); len(r.Samples) != 1 || all.Weight != c.weight || all.Events != c.events ||
			r.Modes[0].Every != c.every || r.Modes[0].Rate != 0 {
			t.Errorf("%s: %+v, modes %+v", c.name, r.Samples, r.Modes)
		}
		if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, c.note) || c.note == "" &&
			strings.Contains(notes, "pprof") {
			t.Errorf("%s: notes %q", c.name, notes)
		}
	}
}

func TestEventTables(t *testing.T) {
	alloc, contention := profile.Alloc, profile.Contention
	for name, o := range map[string]TopOptions{
		"plain": {}, "80": {Width: 80, Rows: 4}, "cum": {Sort: Cum, Rows: 3, Width: 100, Mode: &alloc},
		"color":   {Color: true, Width: 120, Mode: &alloc},
		"threads": {ByThread: true, Width: 100, Mode: &contention},
	} {
		var b bytes.Buffer
		if err := Top(&b, eventShop(), o); err != nil {
			t.Fatal(err)
		}
		golden(t, "top-events-"+name+".txt", b.Bytes())
		checkTerminal(t, b.String(), o.Color)
	}
	for name, o := range map[string]TopOptions{"plain": {}, "120": {Width: 120, Sort: Cum, Rows: 3}} {
		var b bytes.Buffer
		if err := Difference(&b, eventShop(), laterShop(), o); err != nil {
			t.Fatal(err)
		}
		golden(t, "diff-events-"+name+".txt", b.Bytes())
		checkTerminal(t, b.String(), o.Color)
	}
	for name, write := range map[string]func(io.Writer) error{
		"top-events.json": func(w io.Writer) error { return TopJSON(w, eventShop(), TopOptions{Rows: 1}) },
		"diff-events.json": func(w io.Writer) error {
			return DifferenceJSON(w, eventShop(), laterShop(), TopOptions{Rows: 1, Mode: &alloc})
		},
	} {
		var b, indented bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, name, indented.Bytes())
	}
}

// TestManagedKeepsEvents: events stay when frames that are not managed are left out.
func TestManagedKeepsEvents(t *testing.T) {
	r := eventShop().Select(profile.Selection{Managed: true, Modes: []profile.Mode{profile.Alloc}})
	got := byStack(r, profile.Alloc, fullName)
	if w := got[mainName+"|System.Byte[]"]; w != 512<<10 {
		t.Errorf("got %v", got)
	}
}

// TestEventSVG: numbers in pictures are in the unit of the mode.
func TestEventSVG(t *testing.T) {
	for m, want := range map[profile.Mode][]string{
		profile.Alloc: {"Allocated bytes: 3.00 GiB in 1,234,567,900 objects (4 samples) over 2.00 s",
			"System.Byte[]\n3.00 GiB in 1,234,567,890 objects (100.0 %, 1 sample)"},
		profile.Exception:   {"Exceptions thrown: 4,004 exceptions (2 samples)", "4,000 exceptions (99.9 %, 1 sample)"},
		profile.Contention:  {"Lock waiting time: 50.6 ms in 3 waits (2 samples)"},
		profile.ThreadStart: {"Threads started: 1 thread (1 sample)"},
		profile.GC: {"GC pauses: 7.25 ms in 4 GCs (2 samples)",
			"gen 2, induced\n7.00 ms in 1 GC (96.6 %, 1 sample), self 7.00 ms in 1 GC (96.6 %)"},
	} {
		var b bytes.Buffer
		if err := SVG(&b, eventShop(), SVGOptions{Mode: m}); err != nil {
			t.Fatal(err)
		}
		for _, w := range append(want, svgLegend[4].text) {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%v: %q is not in\n%s", m, w, b.Bytes())
			}
		}
	}
}

func TestWeightText(t *testing.T) {
	for _, c := range []struct {
		unit profile.Unit
		w    int64
		want string
	}{
		{profile.Nanoseconds, 0, "0 s"}, {profile.Nanoseconds, 7, "7 ns"}, {profile.Nanoseconds, 1500, "1.50 µs"},
		{profile.Nanoseconds, 45_600_000, "45.6 ms"},
		{profile.Nanoseconds, 999_999_999, "1.00 s"}, {profile.Nanoseconds, 3_600e9, "3600 s"},
		{profile.Bytes, 0, "0 B"}, {profile.Bytes, 1023, "1,023 B"}, {profile.Bytes, 1024, "1.00 KiB"},
		{profile.Bytes, 3 << 29, "1.50 GiB"}, {profile.Bytes, 1<<20 - 1, "1.00 MiB"},
		{profile.Bytes, 1 << 60, "1048576 TiB"},
		{profile.Count, 0, "0"}, {profile.Count, 1234567, "1,234,567"},
	} {
		if got := WeightText(c.unit, c.w); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.w, c.unit, got, c.want)
		}
	}
}
