package export

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"clrsnap/internal/display"
	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

func foldedOf(mode profile.Mode, byThread bool) func(io.Writer, *profile.Recording) error {
	return func(w io.Writer, r *profile.Recording) error {
		return Folded(w, r, FoldedOptions{Modes: []profile.Mode{mode}, ByThread: byThread})
	}
}

func TestGoldenFormats(t *testing.T) {
	r := recorded()
	for name, write := range map[string]func(io.Writer, *profile.Recording) error{
		"recording.speedscope.json": Speedscope,
		"recording.trace.json":      ChromeTrace,
		"cpu.folded":                foldedOf(profile.CPU, false),
		"wall-by-thread.folded":     foldedOf(profile.Wall, true),
	} {
		profiletest.Golden(t, name, written(t, write, r))
	}
	p, err := pprof.ParseData(written(t, Pprof, r))
	if err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "recording.pprof.txt", []byte(p.String()))
}

// byStack sums up the weights of a mode by stack, as a reader sees it.
func byStack(r *profile.Recording, mode profile.Mode, name func(*profile.Function) string) map[string]int64 {
	out := map[string]int64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Mode != mode {
			continue
		}
		var names []string
		for l := range r.Stack(s.Node) {
			names = append(names, name(&r.Functions[l.Function]))
		}
		if s.Incomplete {
			names = append(names, incompleteFrame)
		}
		slices.Reverse(names)
		out[strings.Join(names, "|")] += s.Weight
	}
	return out
}

// sums returns the weights of a recording by thread, mode, state and so on.
func sums(r *profile.Recording) map[string]int64 {
	out := map[string]int64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		th := &r.Threads[s.Thread]
		out[fmt.Sprint(s.Mode, s.State, s.Incomplete, th.OSThreadID, th.ManagedThreadID, th.Name, th.Role)] += s.Weight
		if s.Mode.OfEvents() {
			out["events "+s.Mode.String()] += s.Events
		} else {
			out["count "+s.Mode.String()] += int64(s.Count)
		}
	}
	return out
}

func equalMaps(t errorfer, what string, got, want map[string]int64) {
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s: %q: got %d, want %d", what, k, got[k], w)
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: %q is too many: %d", what, k, g)
		}
	}
}

type errorfer interface{ Errorf(string, ...any) }

func seen(f *profile.Function) string {
	return string(f.Kind) + " " + f.Module + " " + display.FullName(f)
}

func readBack(t testing.TB, file []byte) *profile.Recording {
	t.Helper()
	r, err := ReadRecording(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPprofReadBack(t *testing.T) {
	r := recorded()
	packed := written(t, Pprof, r)
	for _, file := range [][]byte{packed, inflated(t, packed)} {
		got := readBack(t, file)
		for _, m := range profile.Modes {
			equalMaps(t, m.String(), byStack(got, m, seen), byStack(r, m, seen))
		}
		equalMaps(t, "sums", sums(got), sums(r))
		if got.Version != r.Version || !got.Start.Equal(r.Start) || got.Duration != r.Duration ||
			!slices.Equal(got.Notes, r.Notes) {
			t.Errorf("got %q %v %v %q", got.Version, got.Start, got.Duration, got.Notes)
		}
		if got.Modes[0].Rate != 100 || got.Modes[0].Samples != 9 || got.Modes[1].Samples != 8 {
			t.Errorf("modes: %+v", got.Modes)
		}
		want := map[profile.Function]bool{}
		for _, f := range r.Functions {
			if f.Display == "" {
				f.Display, f.Short = display.Nameless(f.Module), display.Nameless(f.Module)
			}
			if f.Kind != snapshot.Managed {
				f.Short = f.Display
			}
			want[f] = true
		}
		for _, f := range got.Functions {
			if !want[f] && f.Short != `Shop."</script>\;evil`+"\n\x1b" {
				t.Errorf("function %+v", f)
			}
		}
		for _, l := range got.Locations {
			if !slices.ContainsFunc(r.Locations, func(x profile.Location) bool { return x.Offset == l.Offset }) {
				t.Errorf("offset %#x", l.Offset)
			}
		}
	}
}

// TestPprofTool: go tool pprof reads clrsnap's profiles, and shows the same numbers.
func TestPprofTool(t *testing.T) {
	r := recorded()
	file := filepath.Join(t.TempDir(), "x.pb.gz")
	if err := os.WriteFile(file, written(t, Pprof, r), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mode := range r.RecordedModes() {
		flat, cum := map[string]int64{}, map[string]int64{}
		for i := range r.Samples {
			if s := &r.Samples[i]; s.Mode == mode {
				inStack := map[string]bool{}
				for l := range r.Stack(s.Node) {
					name := pprofShown(&r.Functions[l.Function])
					if len(inStack) == 0 {
						flat[name] += s.Weight
					}
					if !inStack[name] {
						cum[name] += s.Weight
					}
					inStack[name] = true
				}
			}
		}
		gotFlat, gotCum := pprofTop(t, file, mode.String())
		for name, v := range flat {
			if gotFlat[name] != v {
				t.Errorf("%s: flat %q: pprof says %d, we %d", mode, name, gotFlat[name], v)
			}
		}
		equalMaps(t, mode.String()+" cum", gotCum, cum)
	}
	again := readBack(t, goTool(t, "-proto", file))
	for _, m := range profile.Modes {
		equalMaps(t, "after -proto, "+m.String(), byStack(again, m, pprofShown), byStack(r, m, pprofShown))
	}
}

// pprofShown returns the name in pprof for a function: pprof takes native names for C++ and leaves out
// their parameters.
func pprofShown(f *profile.Function) string {
	if f.Kind == snapshot.Native && f.Method != "" {
		return f.Short
	}
	return display.FullName(f)
}

func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "pprof", "-symbolize=local", "-output", "/dev/stdout"},
		args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool pprof %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

func pprofTop(t *testing.T, file, sample string) (flat, cum map[string]int64) {
	t.Helper()
	out := goTool(t, "-top", "-unit=ns", "-nodecount=100000", "-nodefraction=0", "-sample_index="+sample, file)
	if !bytes.Contains(out, []byte("File: Shop.dll\n")) || !bytes.Contains(out, []byte("Type: "+sample+"\n")) {
		t.Errorf("the profile is not named after the program:\n%s", out)
	}
	line := regexp.MustCompile(`(?m)^ *(\d+)(?:ns)? +[\d.]+% +[\d.]+% +(\d+)(?:ns)? +[\d.]+% +((?s:.*?))$`)
	flat, cum = map[string]int64{}, map[string]int64{}
	text := strings.ReplaceAll(string(out), "evil\n", "evil\\n") // a name with a line break
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(strings.ReplaceAll(m[3], "evil\\n", "evil\n"), " (inline)")
		a, _ := strconv.ParseInt(m[1], 10, 64)
		b, _ := strconv.ParseInt(m[2], 10, 64)
		flat[name], cum[name] = a, b
		if a == 0 {
			delete(flat, name)
		}
	}
	return flat, cum
}

func TestSpeedscopeReadBack(t *testing.T) {
	r := recorded()
	got := readBack(t, written(t, Speedscope, r))
	for _, m := range profile.Modes {
		equalMaps(t, m.String(), byStack(got, m, seen), byStack(r, m, seen))
	}
	if len(got.Notes) > 0 || got.Version != "1.2.3" {
		t.Errorf("got %q, %q", got.Version, got.Notes)
	}
	for _, th := range got.Threads {
		if !slices.ContainsFunc(r.Threads, func(x profile.RecordedThread) bool {
			return x.Name == th.Name && x.OSThreadID == th.OSThreadID || x.OSThreadID == 0 && th.Name == "ended"
		}) {
			t.Errorf("thread %+v", th)
		}
	}
}

// TestTimeLine: samples have their right places on the time line, and gaps stay gaps.
func TestTimeLine(t *testing.T) {
	r := recorded()
	var f struct {
		Profiles []struct {
			Name    string
			Samples [][]int32
			Weights []float64
		}
	}
	if err := json.Unmarshal(written(t, Speedscope, r), &f); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Profiles {
		switch p.Name {
		case "ended, wall clock":
			if len(p.Samples) != 2 || len(p.Samples[0]) != 0 || p.Weights[0] != 190e6 || p.Weights[1] != 10e6 {
				t.Errorf("%s: %v %v", p.Name, p.Samples, p.Weights)
			}
		case "Shop (4242), CPU":
			if len(p.Samples) != 2 || p.Weights[0] != 60e6 {
				t.Errorf("equal stacks were not joined: %v %v", p.Samples, p.Weights)
			}
		}
	}
}

func TestFoldedReadBack(t *testing.T) {
	r := recorded()
	for _, m := range r.RecordedModes() {
		got := readBack(t, written(t, foldedOf(m, false), r))
		// The reader takes everything for CPU time, and names are as on a terminal.
		shown := func(f *profile.Function) string { return display.Clean(display.FullName(f)) }
		equalMaps(t, m.String(), byStack(got, profile.CPU, func(f *profile.Function) string {
			return strings.ReplaceAll(display.FullName(f), `\x3b`, ";")
		}), byStack(r, m, shown))
	}
}

// TestFoldedModes: several modes are in one file, each mode below a frame with its name and its unit,
// and each mode is read back with the right mode.
func TestFoldedModes(t *testing.T) {
	for _, r := range []*profile.Recording{recorded(), profiletest.EventShop()} {
		for _, byThread := range []bool{false, true} {
			file := written(t, func(w io.Writer, r *profile.Recording) error {
				return Folded(w, r, FoldedOptions{ByThread: byThread})
			}, r)
			got := readBack(t, file)
			for _, m := range r.SampledModes() {
				if !bytes.Contains(file, []byte("\n"+FoldedRoot(m)+";")) &&
					!bytes.HasPrefix(file, []byte(FoldedRoot(m)+";")) {
					t.Errorf("no stack begins with %s:\n%s", FoldedRoot(m), file)
				}
				name := func(f *profile.Function) string { return strings.ReplaceAll(display.FullName(f), `\x3b`, ";") }
				shown := func(f *profile.Function) string { return display.Clean(display.FullName(f)) }
				if !byThread {
					equalMaps(t, m.String(), byStack(got, m, name), byStack(r, m, shown))
				}
				if got, want := got.Totals(m), r.Totals(m); got.All.All().Weight != want.All.All().Weight ||
					!byThread && got.Incomplete.Weight != want.Incomplete.Weight {
					t.Errorf("%s: %+v, want %+v", m, got.All, want.All)
				}
			}
			if !slices.Equal(got.SampledModes(), r.SampledModes()) || len(got.Notes) != 1 ||
				strings.Contains(got.Notes[0], "CPU time") {
				t.Errorf("modes %v, notes %q", got.SampledModes(), got.Notes)
			}
		}
	}
	// A program with the name of a mode is not a mode.
	got := readBack(t, []byte("wall;main 3\n[wall: microseconds];main 4\n"))
	if got.Weight(profile.CPU) != 3000 || got.Weight(profile.Wall) != 4000 ||
		!strings.Contains(got.Notes[0], "read as microseconds of CPU time") {
		t.Errorf("%d, %d, %q", got.Weight(profile.CPU), got.Weight(profile.Wall), got.Notes)
	}
}

// TestForeign reads files of other tools.
func TestForeign(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"folded, with fractions", "a;b 1.5\na 0.0004\na 2.25\n", "native  a=2.25µs; native  a>native  b=1.5µs"},
		{"perf, folded", "dotnet;[libcoreclr.so];Shop.Program::Main_[j];do_futex_[k] 7\ndotnet 3\n",
			"native  dotnet=3µs; native  dotnet>" +
				"native libcoreclr.so [libcoreclr.so]>managed  Shop.Program::Main>kernel  do_futex=7µs"},
		{"dotnet-trace", `{"exporter":"speedscope@1.2",
			"shared":{"frames":[
				{"name":"Shop!Shop.Program.Main(class System.String[])"},{"name":"UNMANAGED_CODE_TIME"}]},
			"profiles":[{"type":"evented","name":"Thread (7)","unit":"milliseconds","startValue":5,"endValue":9.5,
			"events":[{"type":"O","frame":0,"at":5},{"type":"O","frame":1,"at":6.5},
				{"type":"C","frame":1,"at":7},{"type":"C","frame":0,"at":9.5}]}]}`,
			"wall managed Shop Shop.Program.Main(class System.String[])=4ms; " +
				"wall waiting managed Shop Shop.Program.Main(class System.String[])>" +
				"native  UNMANAGED_CODE_TIME=500µs"},
		{"py-spy",
			`{"shared":{"frames":[{"name":"main"},{"name":"f"}]},"profiles":[{"type":"sampled","unit":"seconds",` +
				`"samples":[[0,1],[0]],"weights":[0.01,0.02]}]}`,
			"native  main=20ms; native  main>native  f=10ms"},
	} {
		var got []string
		r := readBack(t, []byte(c.file))
		for k, v := range byStack(r, profile.CPU, seen) {
			got = append(got, strings.ReplaceAll(k, "|", ">")+"="+time.Duration(v).String())
		}
		for _, state := range []profile.State{profile.Running, profile.Waiting} {
			of := *r
			of.Samples = slices.DeleteFunc(slices.Clone(r.Samples), func(s profile.Sample) bool {
				return s.State != state
			})
			name := map[profile.State]string{profile.Running: "wall ", profile.Waiting: "wall waiting "}[state]
			for k, v := range byStack(&of, profile.Wall, seen) {
				got = append(got, name+strings.ReplaceAll(k, "|", ">")+"="+time.Duration(v).String())
			}
		}
		slices.Sort(got)
		if g := strings.Join(got, "; "); g != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, g, c.want)
		}
	}
}

// TestNoRecording: an unreadable file is described in one sentence.
func TestNoRecording(t *testing.T) {
	const sampled = `{"shared":{"frames":[]},"profiles":[{"type":"sampled",`
	for file, want := range map[string]string{
		"":             "the file is empty",
		"\x1f\x8b":     "the file is truncated",
		"\x1f\x8b\x01": "the file is truncated",
		"\x1f\x8b\x01\x00\x00\x00\x00\x00\x00\x00\x00": "the file is damaged",
		"hello world\n":                   "this is not a recording: clrsnap reads",
		"\x7fELF\x02\x01\x01":             "this is not a recording",
		`{"traceEvents":[]}`:              "this is a Chrome trace, which cannot be read back",
		`[{"ph":"B"}]`:                    "this is a Chrome trace",
		`<svg xmlns="x"></svg>`:           "this is a picture or other XML, which cannot be read back",
		"<?xml version=\"1.0\"?>\n<svg/>": "this is a picture",
		"<!doctype html><title>x</title>": "this page is not a flame graph of clrsnap",
		"PERFILE2\x00\x00":                "this is a file of perf record",
		"Nettrace\x14":                    "this is a file of dotnet-trace",
		`{"process":{"pid":1},"capturedAt":"x","threads":[]}`: "this is a snapshot of clrsnap stack --json",
		`{"a":1}`:                     "this JSON is not a recording",
		`{"a":`:                       "this looks like JSON, but is damaged",
		"a;b 1\nc\n":                  "line 2 has no number after its stack",
		"a;b 1\nc 1.\n":               "line 2 has no number after its stack",
		"a;b 1\nc 1.5e3\n":            "line 2 has no number after its stack",
		sampled + `"unit":"hertz"}]}`: "its numbers are hertz, neither times nor bytes nor counts",
		sampled + `"unit":"seconds","samples":[[0]],"weights":[1]}]}`: "frame index 0 is out of range [0, 0)",
		sampled + `"unit":"seconds","samples":[[0]]}]}`:               "the numbers of samples and weights differ",
		sampled + `"unit":"seconds","samples":[[]],"weights":[-1]}]}`: "negative or too large",
		`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"evented","unit":"seconds",` +
			`"events":[{"type":"C","frame":0,"at":1}]}]}`: "a frame is closed",
	} {
		if _, err := ReadRecording(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: got %v, want %q", file, err, want)
		}
	}
}

func TestForeignPprof(t *testing.T) {
	goProfile := func(types ...*pprof.ValueType) *pprof.Profile {
		m := &pprof.Mapping{ID: 1, Start: 0x400000, Limit: 0x500000, File: "/usr/bin/prog"}
		f, g := &pprof.Function{ID: 1, Name: "main.f", Filename: "/src/main.go"}, &pprof.Function{ID: 2,
			Name: "main.inlined", Filename: "/src/main.go"}
		inlined := &pprof.Location{
			ID: 1, Mapping: m, Address: 0x400010, Line: []pprof.Line{{Function: g}, {Function: f}},
		}
		bare := &pprof.Location{ID: 2, Mapping: m, Address: 0x400020}
		s := &pprof.Sample{Location: []*pprof.Location{bare, inlined}}
		for range types {
			s.Value = append(s.Value, 20)
		}
		return &pprof.Profile{
			SampleType: types, Mapping: []*pprof.Mapping{m}, Function: []*pprof.Function{f, g},
			Location: []*pprof.Location{inlined, bare}, Sample: []*pprof.Sample{s},
		}
	}
	read := func(p *pprof.Profile) (*profile.Recording, error) {
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		return ReadRecording(&b)
	}
	const stack = "native prog main.f|native prog main.inlined|native prog [prog]"
	for _, c := range []struct {
		types []*pprof.ValueType
		mode  profile.Mode
		want  int64
	}{
		{[]*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, profile.CPU, 20},
		{
			[]*pprof.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "microseconds"}},
			profile.Contention, 20_000,
		},
		{[]*pprof.ValueType{{Type: "cycles", Unit: "count"}}, profile.CPU, 20_000},
	} {
		r, err := read(goProfile(c.types...))
		if err != nil {
			t.Errorf("%v: %v", c.types, err)
			continue
		}
		equalMaps(t, c.types[0].Type, byStack(r, c.mode, seen), map[string]int64{stack: c.want})
	}
	if _, err := read(goProfile(&pprof.ValueType{Type: "pitch", Unit: "hertz"})); err == nil ||
		!strings.Contains(err.Error(), "no times, bytes or counts, only pitch in hertz") {
		t.Errorf("another unit: %v", err)
	}
	p := goProfile(&pprof.ValueType{Type: "cpu", Unit: "nanoseconds"})
	p.Sample[0].Value[0] = -1
	if _, err := read(p); err == nil || !strings.Contains(err.Error(), "negative values") {
		t.Errorf("a difference: %v", err)
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{
		"a.html": FormatHTML, "a.clrsnap": FormatRecording, "a.pb.gz": FormatPprof, "/x/A.PPROF": FormatPprof,
		"a.speedscope.json": FormatSpeedscope,
		"a.folded":          FormatFolded, "a.collapsed": FormatFolded, "a.trace.json": FormatTrace, "a.svg": FormatSVG,
		"a.json": "", "a": "", "html": "", "a.gz": "", "": "",
	} {
		if got, ok := FormatOf(name); got != want || ok != (want != "") {
			t.Errorf("FormatOf(%q) = %q, %v", name, got, ok)
		}
	}
	for _, f := range Formats() {
		if got, ok := FormatOf("x" + f.Extension()); !ok || got != f || f.Description() == "" {
			t.Errorf("%s: its extension %q is that of %q", f, f.Extension(), got)
		}
	}
	if err := Encode(io.Discard, recorded(), "xls", Options{}); err == nil {
		t.Error("there is no format xls")
	}
	if err := Encode(io.Discard, recorded(), FormatPprof, Options{Base: recorded()}); err == nil ||
		!strings.Contains(err.Error(), "cannot show a difference") {
		t.Errorf("a difference in pprof: %v", err)
	}
	if err := Encode(profiletest.Full{}, recorded(), FormatFolded, Options{}); err == nil {
		t.Error("a full disk was not noticed")
	}
}

// TestEncode: every format is written, and readable formats are read back.
func TestEncode(t *testing.T) {
	r, base := recorded(), recorded()
	base.Version = "0.9"
	for _, f := range Formats() {
		o := Options{Title: "a title"}
		if f == FormatHTML {
			o.Base = base
		}
		var b bytes.Buffer
		if err := Encode(&b, r, f, o); err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		got, err := ReadRecording(bytes.NewReader(b.Bytes()))
		switch f {
		case FormatTrace, FormatSVG:
			if err == nil || !strings.Contains(err.Error(), "cannot be read back") {
				t.Errorf("%s: %v", f, err)
			}
		case FormatHTML, FormatRecording:
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("%s: got %+v, %v", f, got, err)
			}
		default:
			if err != nil || got.Weight(profile.CPU) != r.Weight(profile.CPU) {
				t.Errorf("%s: got %v of CPU time, %v", f, got.Weight(profile.CPU), err)
			}
		}
	}
}

// TestModeOfFormat: without a mode, formats of one mode take the first sampled mode.
func TestModeOfFormat(t *testing.T) {
	wall := recorded().Select(profile.Selection{Modes: []profile.Mode{profile.Wall}, Native: true})
	for _, c := range []struct {
		name       string
		r          *profile.Recording
		mode, want profile.Mode
	}{
		{"wall only", wall, 0, profile.Wall},
		{"statistics only", &profile.Recording{Modes: wall.Modes}, 0, profile.Wall},
		{"nothing", &profile.Recording{}, 0, profile.CPU},
		{"all", recorded(), 0, profile.CPU},
		{"all, chosen", recorded(), profile.Wall, profile.Wall},
	} {
		if got := modeOrFirst(c.r, c.mode); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
	for _, f := range []Format{FormatFolded, FormatSVG} {
		var chosen, first bytes.Buffer
		err1 := Encode(&first, wall, f, Options{})
		err2 := Encode(&chosen, wall, f, Options{Mode: profile.Wall})
		if err := cmp.Or(err1, err2); err != nil || first.Len() == 0 || !bytes.Equal(first.Bytes(), chosen.Bytes()) {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", f, err, &first, &chosen)
		}
	}
}

// TestTraceTooLarge: a trace too large for any viewer is refused before its first byte is written.
func TestTraceTooLarge(t *testing.T) {
	b := profile.NewBuilder(profile.Limits{Samples: 1 << 18, Nodes: 1 << 10})
	b.Thread(profile.RecordedThread{OSThreadID: 1})
	var leaf [2]int32
	for i := range 60 { // two stacks, 60 deep, with nothing in common
		l := b.Location(profile.Location{
			Function: b.Function(profile.Function{Kind: snapshot.Native, Method: strconv.Itoa(i)}),
		})
		leaf[i%2] = b.Child(leaf[i%2], l)
	}
	for i := range 150_000 {
		b.Add(profile.Sample{At: time.Duration(i), Weight: 1, Node: leaf[i%2]})
	}
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 1}}
	var size countingWriter
	err := ChromeTrace(&size, r)
	if err == nil || !strings.Contains(err.Error(), "9 million events") || size > 0 {
		t.Errorf("got %v after %d bytes", err, size)
	}
}
