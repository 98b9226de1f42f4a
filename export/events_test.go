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

	pprof "github.com/google/pprof/profile"

	"clrsnap/internal/display"
	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

func TestEventFormats(t *testing.T) {
	r := profiletest.EventShop()
	for name, write := range map[string]func(io.Writer, *profile.Recording) error{
		"events.speedscope.json":   Speedscope,
		"events.trace.json":        ChromeTrace,
		"events-alloc.folded":      foldedOf(profile.Alloc, false),
		"events-exception.folded":  foldedOf(profile.Exception, true),
		"events-contention.folded": foldedOf(profile.Contention, false),
	} {
		profiletest.Golden(t, name, written(t, write, r))
	}
	p, err := pprof.ParseData(written(t, Pprof, r))
	if err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "events.pprof.txt", []byte(p.String()))
	profiletest.Golden(t, "events.json", inflated(t, written(t, WriteRecording, r)))
	var trace any
	if err := json.Unmarshal(written(t, ChromeTrace, r), &trace); err != nil {
		t.Errorf("the trace is no JSON: %v", err)
	}
}

// TestEventReadBack: which parts of events can be read back from each format.
func TestEventReadBack(t *testing.T) {
	r := profiletest.EventShop()
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
			if f.Kind == snapshot.Event && (!shorts[f.Short] || f.Signature != "") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		for _, l := range got.Locations {
			if got.Functions[l.Function].Kind == snapshot.Event && l.Offset != 0 {
				t.Errorf("%s: an event is at offset %d", name, l.Offset)
			}
		}
	}
	got := readBack(t, written(t, Pprof, r))
	equalMaps(t, "sums", sums(got), sums(r))
	folded := readBack(t, written(t, foldedOf(profile.Alloc, false), r))
	if f := folded.Function(folded.Samples[0].Node); f.Kind != snapshot.Event || f.Display != "System.Byte[]" {
		t.Errorf("folded: %+v", f)
	}
}

// TestPprofToolEvents: go tool pprof shows the allocated classes, and the allocating calls.
func TestPprofToolEvents(t *testing.T) {
	file := t.TempDir() + "/x.pb.gz"
	if err := os.WriteFile(file, written(t, Pprof, profiletest.EventShop()), 0o644); err != nil {
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

// TestDocumentedExample: the example in docs/recording.md is the output of WriteRecording.
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
	want := recorded().WithoutLines()
	for i := range want.Modes {
		want.Modes[i].Source = "" // unknown to the first version
	}
	for i := range want.Locations {
		want.Locations[i].Inlined = false // unknown to the first version
	}
	if got := readBack(t, file); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestEarlierEvents: clrsnap reads files from its versions before rethrows and messages.
func TestEarlierEvents(t *testing.T) {
	file, err := os.ReadFile("testdata/recording-2.json")
	if err != nil {
		t.Fatal(err)
	}
	want := profiletest.EventShop()
	want.Messages = profile.Messages{}
	// Nor did those versions know the two waits, or the live heap. Waits and live heap come last.
	want.Functions, want.Locations = want.Functions[:len(want.Functions)-3], want.Locations[:len(want.Locations)-3]
	want.Nodes, want.Samples = want.Nodes[:len(want.Nodes)-3], want.Samples[:len(want.Samples)-5]
	want.Modes = want.Modes[:len(want.Modes)-2]
	for i := range want.Functions {
		want.Functions[i].Fate = ""
	}
	for i := range want.Modes {
		want.Modes[i].Rethrown = 0
	}
	if got := readBack(t, file); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestBadMessages: impossible counts of messages are refused.
func TestBadMessages(t *testing.T) {
	for name, spoil := range map[string]func(*profile.Messages){
		"negative":  func(m *profile.Messages) { m.Counts[0].Count = -1 },
		"others":    func(m *profile.Messages) { m.Others = -1 },
		"too many":  func(m *profile.Messages) { m.Counts, m.Others = m.Counts[:1], maxWeight },
		"overflow":  func(m *profile.Messages) { m.Counts[0].Count, m.Counts[1].Count = maxWeight, maxWeight },
		"too large": func(m *profile.Messages) { m.Counts = make([]profile.MessageCount, maxMessages+1) },
	} {
		r := profiletest.EventShop()
		spoil(&r.Messages)
		if err := WriteRecording(io.Discard, r); err == nil || !strings.Contains(err.Error(), "messages") {
			t.Errorf("%s: %v", name, err)
		}
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
		{"the same, of what is in use",
			file(&pprof.ValueType{Type: "space", Unit: "bytes"}, "alloc_objects", "count", 3,
				"alloc_space", "bytes", 4096, "inuse_objects", "count", 1, "inuse_space", "bytes", 8),
			profile.Live, 8, 1, 524288, ""},
		{
			"what is in use", file(nil, "inuse_objects", "count", 1, "inuse_space", "bytes", 8), profile.Live, 8, 1, 0,
			"",
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
		if all := total.All(); all.Samples != 1 || all.Weight != c.weight || all.Events != c.events ||
			r.Modes[0].Every != c.every || r.Modes[0].Rate != 0 {
			t.Errorf("%s: %+v, modes %+v", c.name, r.Samples, r.Modes)
		}
		if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, c.note) || c.note == "" &&
			strings.Contains(notes, "pprof") {
			t.Errorf("%s: notes %q", c.name, notes)
		}
	}
}

// TestManagedKeepsEvents: events stay when all frames except managed frames are left out.
func TestManagedKeepsEvents(t *testing.T) {
	r := profiletest.EventShop().Select(profile.Selection{Managed: true, Modes: []profile.Mode{profile.Alloc}})
	got := byStack(r, profile.Alloc, display.FullName)
	if w := got[profiletest.MainName+"|System.Byte[]"]; w != 512<<10 {
		t.Errorf("got %v", got)
	}
}

// TestEventSVG: numbers in pictures are in the unit of the mode.
func TestEventSVG(t *testing.T) {
	for m, want := range map[profile.Mode][]string{
		profile.Alloc: {"Allocated bytes: 3 ± 3 GiB in 1,000,000,000 ± 1,000,000,000 objects (4 samples) over 2.00 s",
			"System.Byte[]\n3 ± 3 GiB in 1,000,000,000 ± 1,000,000,000 objects (100.0 %, 1 sample)"},
		profile.Exception: {"Exceptions thrown: 4,000 ± 4,000 exceptions (2 samples)",
			"4,000 ± 4,000 exceptions (99.9 %, 1 sample)"},
		profile.Contention:  {"Lock waiting time: 50.6 ms in 3 waits (2 samples)"},
		profile.ThreadStart: {"Threads started: 1 thread (1 sample)"},
		profile.GC: {"GC pauses: 7.25 ms in 4 GCs (2 samples)",
			"gen 2, induced\n7.00 ms in 1 GC (96.6 %, 1 sample), self 7.00 ms in 1 GC (96.6 %)"},
	} {
		var b bytes.Buffer
		if err := SVG(&b, profiletest.EventShop(), SVGOptions{Mode: m}); err != nil {
			t.Fatal(err)
		}
		for _, w := range append(want, svgLegend[5].text) {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%v: %q is not in\n%s", m, w, b.Bytes())
			}
		}
	}
}
