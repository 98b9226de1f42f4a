package export

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// recorded is a small recording with at least one sample of each sort: both modes, both states, three
// kinds of function, odd characters, an incomplete sample.
func recorded() *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	at := func(f profile.Function, offset uint64, tier string) int32 {
		return b.Location(profile.Location{Function: b.Function(f), Offset: offset, Tier: tier})
	}
	method := func(module, method, display, short, signature string) profile.Function {
		return profile.Function{
			Kind: snapshot.Managed, Method: method, Display: display, Short: short, Signature: signature,
			Module: module,
		}
	}
	start := at(method(profiletest.CoreLib, "System.Threading.Thread.StartCallback",
		"System.Threading.Thread.StartCallback", "Thread.StartCallback", "()"), 0x22, "ReadyToRun")
	main := at(method("Shop", "Shop.Program.Main", "Shop.Program.Main", "Program.Main", "(string[])"), 0x40, "tier-0")
	scan := method("Shop", "Shop.Index`2+<>c.<Scan>b__4_0",
		"Shop.Index<string, System.Collections.Generic.List<int>>.Scan{lambda 4_0}",
		"Index<string, List<int>>.Scan{lambda 4_0}", "(System.Collections.Generic.KeyValuePair<string, int>, int*)")
	scan0, scan1 := at(scan, 0x10, "tier-0"), at(scan, 0x84, "tier-1")
	evil := at(method("Shop", "Shop.\"</script>\\;evil\n\x1b", "Shop.\"</script>\\;evil\n\x1b", "evil", "(int)"), 1,
		"dynamic")
	wait := at(method(profiletest.CoreLib, "System.Threading.Monitor.Wait", "System.Threading.Monitor.Wait",
		"Monitor.Wait", "(object, int)"), 0x31, "ReadyToRun")
	native := func(module, name, short string, offset uint64) int32 {
		return at(profile.Function{Kind: snapshot.Native, Method: name, Display: name, Short: short, Module: module},
			offset, "")
	}
	clr := native("libcoreclr.so", "", "", 0x5eb1d1)
	doWait := native("libcoreclr.so", "Thread::DoWait(int, void**, bool)", "Thread::DoWait", 0x210)
	memcpy := native("libc.so.6", "memcpy", "memcpy", 0x80)
	kernel := at(profile.Function{Kind: snapshot.Kernel, Method: "do_futex", Display: "do_futex", Short: "do_futex",
		Module: "kernel"}, 0x99, "")

	app := b.Thread(profile.RecordedThread{OSThreadID: 4242, ManagedThreadID: 1, Name: "Shop", Role: "Main"})
	worker := b.Thread(profile.RecordedThread{OSThreadID: 4250, ManagedThreadID: 5, Name: "orders; <1>"})
	ended := b.Thread(profile.RecordedThread{Role: "ended"})
	stack := func(leafLast ...int32) int32 {
		node := int32(0)
		for _, l := range leafLast {
			node = b.Child(node, l)
		}
		return node
	}
	const tick = int64(10 * time.Millisecond)
	add := func(ms int, thread, node int32, mode profile.Mode, state profile.State, incomplete bool) {
		b.Add(profile.Sample{
			At: time.Duration(ms) * time.Millisecond, Weight: tick, Thread: thread, Node: node, Mode: mode,
			State: state, Incomplete: incomplete,
		})
	}
	for i := range 6 {
		add(10*i, app, stack(main, scan1, scan1), profile.CPU, profile.Running, false)
		add(10*i+5, worker, stack(start, clr, doWait, wait, kernel), profile.Wall, profile.Waiting, false)
	}
	add(60, app, stack(main, scan0, memcpy), profile.CPU, profile.Running, false)
	add(61, worker, stack(start, evil), profile.CPU, profile.Running, false)
	add(62, worker, stack(clr), profile.CPU, profile.Running, true)
	add(70, app, stack(main, scan1), profile.Wall, profile.Running, false)
	add(200, ended, stack(start), profile.Wall, profile.Running, false)

	addSources(b, main, scan0, scan1, clr)
	r := b.Recording()
	r.Version, r.Start, r.Duration = "1.2.3", time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC), 250*time.Millisecond
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: snapshot.Runtime{
		Version: "10.0.9", Path: "/usr/share/dotnet/shared/Microsoft.NETCore.App/10.0.9/libcoreclr.so", Shape: "shared",
	}}}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 100, Source: profile.FromProcessors, Samples: 9, Lost: 1, Broken: 1, Repaired: 2},
		{
			Mode: profile.Wall, Rate: 100, Got: 33.5, Samples: 8, Late: 3,
			Pauses: snapshot.Pauses{Count: 4, P50: 14200, P99: 30000, Max: 31000}, Released: 1,
		},
	}
	r.Cost = profile.Cost{
		TargetCPU: 90 * time.Millisecond, OwnCPU: 3 * time.Millisecond, OwnMemory: 12 << 20, Processors: 2,
	}
	r.Notes = []string{"1 sample of 10 was lost."}
	return r
}

// addSources puts locations on lines of source files.
func addSources(b *profile.Builder, main, scan0, scan1, clr int32) {
	assembly := b.Assembly(profile.Assembly{
		Name: "Shop", Path: "/app/Shop.dll", PDB: "Shop.pdb", ID: [20]byte{1, 2, 3, 19: 0xff},
		Checksums: []profile.Checksum{{Algorithm: "SHA256", Sum: []byte{0xab, 0xcd}}},
	})
	program := b.Sources().File(profile.SourceFile{
		Name: "/src/Shop/Program.cs", URL: "https://example.org/raw/abc/Shop/Program.cs",
		Checksum: profile.Checksum{Algorithm: "SHA256", Sum: []byte{0x12}},
		Text: []profile.Excerpt{
			{First: 9, Lines: []string{"\t{", "\t\tvar index = new Index<string, List<int>>(args[0]); // </script>"}},
			{First: 30, Lines: []string{"\t}"}},
		},
	})
	index := b.Sources().File(profile.SourceFile{Name: `C:\src\Shop\Index.cs`, Path: "/home/me/Shop/Index.cs"})
	r := b.Recording()
	at := func(location, file, line, column int32, approximate bool, m profile.Method, il int32) {
		l := &r.Locations[location]
		l.Method, l.IL, l.Next, l.Nearest = b.Method(m), il, max(0, il+5), approximate
		l.Line = b.Sources().Line(profile.Line{File: file, Line: line, Column: column, Approximate: approximate})
	}
	at(main, program, 10, 5, false, profile.Method{Assembly: assembly, Row: 1, File: program, First: 9, Last: 12}, 7)
	scan := profile.Method{Assembly: assembly, Row: 17, File: index, First: 40, Last: 44}
	at(scan0, index, 41, 13, true, scan, 0)
	r.Locations[scan0].Inlined = true
	at(scan1, index, 43, 0, false, scan, -1)
	b.Sites([]profile.CallSite{{Method: 1, IL: 3, Callee: "Next"}, {Method: 1, IL: 7},
		{Method: 1, IL: 9, Callee: "Scan"}})
	shop := b.Library(profile.Library{Name: "libshop.so", Path: "/app/libshop.so", BuildID: []byte{0xc0, 0xde}})
	r.Locations[clr].Library, r.Locations[clr].Address = shop, 0x1f3f
	b.Sites([]profile.CallSite{{Method: 2, IL: 4, Callee: "Next"}})
	b.Recording()
}

func written(t testing.TB, write func(io.Writer, *profile.Recording) error, r *profile.Recording) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func inflated(t testing.TB, packed []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRecordingFile(t *testing.T) {
	r := recorded()
	packed := written(t, WriteRecording, r)
	plain := inflated(t, packed)
	profiletest.Golden(t, "recording.json", plain)
	for name, file := range map[string][]byte{
		"packed": packed,
		"plain":  plain,
		"page": []byte("<!DOCTYPE html>\n<script type=\"application/octet-stream\" id=\"recording\">" +
			base64.StdEncoding.EncodeToString(packed) + "</script>"),
		"later": bytes.Replace(plain, []byte(`"tier":`), []byte(`"unknown":[{"a":["\"}",1.5,null]}],"tier":`), 1),
	} {
		got, err := ReadRecording(bytes.NewReader(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got %+v\nwant %+v", name, got, r)
		}
	}
}

func TestEmptyRecording(t *testing.T) {
	for _, r := range []*profile.Recording{
		profile.NewBuilder(profile.Limits{}).Recording(),
		{Nodes: []profile.Node{{Parent: -1, Location: -1}}, Start: time.Unix(0, 1).UTC()},
	} {
		if got, err := ReadRecording(bytes.NewReader(written(t, WriteRecording, r))); err != nil ||
			!reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, r)
		}
	}
}

// TestDamagedRecording: every error is one sentence.
func TestDamagedRecording(t *testing.T) {
	plain := string(inflated(t, written(t, WriteRecording, recorded())))
	for _, c := range []struct{ name, old, new, want string }{
		{
			"newer", `"version":2,`, `"version":3,"strange":{},`,
			"the recording has version 3 of its format, this clrsnap knows version 2: use a newer clrsnap",
		},
		{"older", `"version":2,`, `"version":0,`, "there is no version 0"},
		{"no version", `"version":2,`, ``, "it comes before the version of the format"},
		{
			"parent", `"parent":[-1,0,`, `"parent":[-1,1,`,
			"node 1 has the parent 1: a parent must come before its children",
		},
		{"root", `"parent":[-1,0,`, `"parent":[0,0,`, "node 0 is not the root"},
		{"index", `"thread":[0,`, `"thread":[7,`, "sample 0: thread index 7 is out of range [0, 3)"},
		{"negative index", `"node":[`, `"node":[-`, "node index -3 is out of range [0, "},
		{"32 bits", `"thread":[0,`, `"thread":[4294967296,`, "samples: thread: a number is too large"},
		{"64 bits", `"weight":[1`, `"weight":[99999999999999999999`, "samples: weight: a number is too large"},
		{"sum of times", `"weight":[1`, `"weight":[4611686018427387903,1`, "another column has 17"},
		{
			"weights", `"weight":[10000000,10000000,10000000,`, `"weight":[4611686018427387903,0,4611686018427387903,`,
			"of all cpu samples is more than",
		},
		{
			"events", `"events":[0,0,0,`, `"events":[4611686018427387903,0,4611686018427387903,`,
			"of all cpu samples is more than",
		},
		{
			"negative events", `"events":[0,`, `"events":[-1,`,
			"sample 0: the weight 10000000 or the number of events, -1, is negative or too large",
		},
		{"no events", `"events":`, `"event":`, `samples: column "events" is missing`},
		{"unit", `"unit":"nanoseconds"`, `"unit":"bytes"`, "the unit of mode cpu is nanoseconds, not bytes"},
		{"seen", `"seen":0`, `"seen":-3`, "the number of events, -3, "},
		{"time", `"at":[0,`, `"at":[-5,`, "sample 0: the time -1 ns is negative"},
		{"fraction", `"count":[1,`, `"count":[1.5,`, "samples: count: a number is not an integer"},
		{"no count", `"count":[1,`, `"count":[0,`, "sample 0: a count of 0 is less than 1"},
		{"mode", `"mode":[0,`, `"mode":[256,`, "there is no mode 256"},
		{"mode's name", `{"mode":"cpu"`, `{"mode":"heap"`, `there is no mode heap`},
		{"twice", `{"mode":"cpu"`, `{"mode":"wall"`, "mode 1 is unknown, or listed twice"},
		{"kind", `{"kind":[0,`, `{"kind":[9,`, "there is no kind 9"},
		{"string", `"method":[1,`, `"method":[1000,`, "string index 1000 is out of range"},
		{"rows", `"state":[0,`, `"state":[0,0,`, "18 rows, another column has 17"},
		{"column", `"state":`, `"statue":`, `samples: column "state" is missing`},
		{"process", `{"process":0`, `{"process":1`, "thread 0: process index 1 is out of range [0, 1)"},
		{"incomplete", `"incomplete":[`, `"incomplete":[9`, "incomplete: sample index 9"},
		{"nearest", `"nearest":[`, `"nearest":[9`, "nearest: location index 92 is out of range"},
		{"approximate", `"approximate":[`, `"approximate":[-`, "approximate: line index -2 is out of range"},
		{"method", "\"method\":[0,1,2,2,", "\"method\":[0,1,3,2,", "location 2: method index 3 is out of range [0, 3)"},
		{"line", "\"line\":[0,1,2,3,", "\"line\":[0,1,2,4,", "location 3: line index 4 is out of range [0, 4)"},
		{"IL", `"il":[0,7,`, `"il":[0,-7,`, "location 1: there is no IL offset -7"},
		{"next IL", `"next":[0,12,`, `"next":[0,-12,`, "location 1: there is no IL offset 7, or -12"},
		{"assembly", `"assembly":[0,1,1]`, `"assembly":[0,1,-1]`, "method 2: assembly index -1 is out of range"},
		{"row", `"row":[0,1,`, `"row":[0,-1,`, "methods: row: a row is negative"},
		{"site's method", `"method":[1,1,1,2]`, `"method":[0,1,1,2]`, "site 0: method index 0 is out of range [0, 3)"},
		{"order of sites", `"method":[1,1,1,2]`, `"method":[2,1,1,2]`, "site 1: the sites are not in order"},
		{"order of a method's sites", `"il":[3,4,2,4]`, `"il":[3,0,2,4]`, "site 1: the sites are not in order"},
		{"site's IL", `"il":[3,4,2,4]`, `"il":[3,-1,2,4]`, "sites: il: the sites of a method are not in order"},
		{"far site", `"il":[3,4,2,4]`, `"il":[2147483647,2147483647,2147483647,4]`,
			"site 2: the sites are not in order"},
		{"callee", `"callee":[`, `"callee":[1000`, "string index 1000"},
		{"no callees", `"callee":`, `"call":`, `sites: column "callee" is missing`},
		{"file of a method", `"file":[0,1,2]`, `"file":[0,1,3]`, "method 2: file index 3 is out of range [0, 3)"},
		{"first", `"first":[0,9,`, `"first":[0,19,`, "method 1: lines 19 to 12"},
		{"last", `"last":[0,12,`, `"last":[0,-12,`, "method 1: lines 9 to -12"},
		{"no method", `"row":[0,`, `"row":[5,`, "although number 0 means none"},
		{"file of a line", `"file":[0,1,2,2]`, `"file":[0,1,2,3]`, "line 3: file index 3 is out of range [0, 3)"},
		{"no file", `"file":[0,1,2,2]`, `"file":[0,1,2,0]`, "line 3: there is no line 43, or no column 0"},
		{"line 0", `"line":[0,10,`, `"line":[0,0,`, "line 1: there is no line 0"},
		{"column number", `"column":[0,5,`, `"column":[0,-5,`, "there is no line 10, or no column -5"},
		{"lines", `"column":[0,5,13,0]`, `"column":[0,5,13]`, "3 rows, another column has 4"},
		{"no lines", `"approximate":`, `"approximately":`, `lines: column "approximate" is missing`},
		{"inlined", `"inlined":[`, `"inlined":[9`, "inlined: location index 92 is out of range"},
		{"library", `"library":[0,`, `"library":[7,`, "location 0: library index 7 is out of range [0, 2)"},
		{"build id", `"buildId":"c0de"`, `"buildId":"c0d"`, "libraries: the build id c0d is not hexadecimal"},
		{"no library", `"libraries":[{"name":""`, `"libraries":[{"name":"x"`, "although number 0 means none"},
		{"address", `"address":[0,`, `"address":[-1,`, "locations: address: "},
		{"id", `"id":"0102`, `"id":"01xx`, "assemblies: the id 01xx0300"},
		{"short id", `"id":"0102`, `"id":"01`, "is not one of a PDB"},
		{"checksum", `"sum":"12"`, `"sum":"1"`, "files: checksum: the checksum 1 is not hexadecimal"},
		{"text", `{"first":30,`, `{"first":10,`, "file 1: line 10 of its text comes after line 10"},
		{"first line", `{"first":9,`, `{"first":0,`, "file 1: line 0 of its text comes after line 0"},
		{"far line", `{"first":9,`, `{"first":4294967305,`, "a number is too large"},
		{
			"start", `"start":"2026`, `"start":"x` + strings.Repeat("\xff", 1000),
			"is not a time in the format of RFC 3339",
		},
		{
			"year", `"start":"2026-03-04T05:06:07.123456789Z`, `"start":"9999-12-31T23:59:59-02:00`,
			"it begins in the year 10000",
		},
		{"rubbish", "}\n", "}x", `found 'x' after the end of the document`},
		{"brackets", `"notes":[`, `"notes":[` + strings.Repeat("[", 100), "a value is too large"},
		{"nothing", `"duration":250000000`, `"later":,"duration":1`, "found ',' where a value should be"},
	} {
		changed := strings.Replace(plain, c.old, c.new, 1)
		if c.name == "rubbish" {
			changed = strings.TrimSuffix(plain, c.old) + c.new
		}
		if changed == plain {
			t.Errorf("%s: nothing was changed", c.name)
		}
		if _, err := ReadRecording(strings.NewReader(changed)); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestCutRecording: a file with an early end is an error, wherever the file ends.
func TestCutRecording(t *testing.T) {
	packed := written(t, WriteRecording, recorded())
	plain := inflated(t, packed)
	for name, file := range map[string][]byte{"packed": packed, "plain": bytes.TrimSpace(plain)} {
		for n := range len(file) {
			if _, err := ReadRecording(bytes.NewReader(file[:n])); err == nil {
				t.Fatalf("%s: the first %d bytes of %d are read as a recording", name, n, len(file))
			}
		}
	}
}

// TestWriteRefuses: a recording that could not be read back is not written.
func TestWriteRefuses(t *testing.T) {
	r := recorded()
	r.Samples[0].Node = int32(len(r.Nodes))
	if err := WriteRecording(io.Discard, r); err == nil || !strings.Contains(err.Error(), "sample 0: node index ") {
		t.Errorf("got %v", err)
	}
	if err := WriteRecording(profiletest.Full{}, recorded()); !errors.Is(err, profiletest.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
}

// TestUnpackedSize: a small file that decompresses to more than any recording is refused, without
// having been in memory.
func TestUnpackedSize(t *testing.T) {
	start := `{"format":"clrsnap recording","version":2,"later":"`
	endless := io.MultiReader(strings.NewReader(start), zeros{})
	if _, err := readDocument(newBounded(endless, 8<<20)); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestOwner: the origin of an assembly survives in recordings, pages and pprof files; recordings of
// older versions have no origins.
func TestOwner(t *testing.T) {
	r := recorded()
	for i := range r.Functions {
		if f := &r.Functions[i]; f.Kind == snapshot.Managed && f.Module == "Shop" {
			f.Owner = snapshot.OfPackage
		}
	}
	origins := func(r *profile.Recording) map[string]snapshot.Origin {
		out := map[string]snapshot.Origin{}
		for i := range r.Functions {
			if f := &r.Functions[i]; f.Kind == snapshot.Managed {
				out[f.Display] = f.Origin()
			}
		}
		return out
	}
	want := origins(r)
	if !slices.Contains(slices.Collect(maps.Values(want)), snapshot.OfPackage) {
		t.Fatal("there is no function to test with")
	}
	page := func(w io.Writer, r *profile.Recording) error { return FlameGraph(w, r, FlameOptions{}) }
	for name, file := range map[string][]byte{
		"recording": written(t, WriteRecording, r),
		"pprof":     written(t, Pprof, r),
		"page":      written(t, page, r),
	} {
		got, err := ReadRecording(bytes.NewReader(file))
		if err != nil || !maps.Equal(origins(got), want) {
			t.Errorf("%s: %v\nwant %v", name, err, want)
		}
	}
	older := regexp.MustCompile(`,\s*"owner":\[[0-9,]*\]`).ReplaceAll(inflated(t, written(t, WriteRecording, r)), nil)
	got, err := ReadRecording(bytes.NewReader(older))
	if err != nil || slices.Contains(slices.Collect(maps.Values(origins(got))), snapshot.OfPackage) {
		t.Errorf("an older recording: %v", err)
	}
	bad := bytes.Replace(inflated(t, written(t, WriteRecording, r)), []byte(`"owner":[`), []byte(`"owner":[9`), 1)
	_, err = ReadRecording(bytes.NewReader(bad))
	if err == nil || !strings.Contains(err.Error(), "there is no owner 9") {
		t.Errorf("a damaged recording: %v", err)
	}
}
