package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// recordings draws sound recordings of any shape.
var recordings = rapid.Custom(func(t *rapid.T) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	text := rapid.SampledFrom([]string{
		"", "a", "Shop.Order`1+<>c.<Run>b__0", "List<int, Dictionary<string, T>>.Add", "x;y z",
		"\"\\\n\x00\u2028</script>", "é漢", "[lib]",
	})
	for range rapid.IntRange(1, 8).Draw(t, "functions") {
		b.Function(profile.Function{
			Kind: rapid.SampledFrom(kinds[:]).Draw(t, "kind"), Method: text.Draw(t, "method"),
			Display: text.Draw(t, "display"), Short: text.Draw(t, "short"),
			Signature: text.Draw(t, "signature"), Module: text.Draw(t, "module"),
		})
	}
	r := b.Recording()
	locations := rapid.IntRange(1, 12).Draw(t, "locations")
	for range locations {
		b.Location(profile.Location{
			Function: rapid.Int32Range(0, int32(len(r.Functions)-1)).Draw(t, "function"),
			Offset:   rapid.Uint64().Draw(t, "offset"), Tier: text.Draw(t, "tier"),
		})
	}
	for range rapid.IntRange(0, 30).Draw(t, "nodes") {
		b.Child(rapid.Int32Range(0, int32(len(r.Nodes)-1)).Draw(t, "parent"),
			rapid.Int32Range(0, int32(len(r.Locations)-1)).Draw(t, "location"))
	}
	r.Processes = []snapshot.Process{{PID: rapid.IntRange(1, 9).Draw(t, "pid"), Command: text.Draw(t, "command")}}
	for i := range rapid.IntRange(1, 4).Draw(t, "threads") {
		b.Thread(profile.RecordedThread{
			OSThreadID: 100 + i, ManagedThreadID: rapid.IntRange(0, 3).Draw(t, "managed"), Name: text.Draw(t, "name"),
			Role: text.Draw(t, "role"),
		})
	}
	for range rapid.IntRange(0, 40).Draw(t, "samples") {
		mode := profile.Modes[rapid.IntRange(0, len(profile.Modes)-1).Draw(t, "mode")]
		weight, events := rapid.Int64Range(0, 1<<33).Draw(t, "weight"), int64(0)
		switch {
		case mode.Unit() == profile.Count:
			events = weight
		case mode.OfEvents():
			events = rapid.Int64Range(0, 1<<33).Draw(t, "events")
		}
		b.Add(profile.Sample{
			At: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "at")), Weight: weight, Events: events,
			Count:  rapid.Int32Range(1, 1<<20).Draw(t, "count"),
			Thread: rapid.Int32Range(0, int32(len(r.Threads)-1)).Draw(t, "thread"),
			Node:   rapid.Int32Range(0, int32(len(r.Nodes)-1)).Draw(t, "node"), Mode: mode,
			State:      profile.State(rapid.Int32Range(0, 1).Draw(t, "state")),
			Incomplete: rapid.Bool().Draw(t, "incomplete"),
		})
	}
	for range rapid.IntRange(0, 5).Draw(t, "holds") {
		index := func(n int, label string) int32 { return rapid.Int32Range(0, int32(n-1)).Draw(t, label) }
		b.Hold(profile.Hold{
			At:     time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "at")),
			Waited: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "waited")),
			Lock:   index(len(r.Functions), "lock"), Holder: index(len(r.Functions), "holder"),
			Waiter: index(len(r.Threads), "waiter"), Thread: index(len(r.Threads), "thread"),
			Node: index(len(r.Nodes), "node"), Incomplete: rapid.Bool().Draw(t, "incomplete"),
		})
	}
	r = b.Recording()
	r.Version = rapid.SampledFrom([]string{"", "1.0", "a b"}).Draw(t, "version")
	r.Start = time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "start"),
		rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	r.Duration = time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "duration"))
	for _, m := range profile.Modes {
		if rapid.Bool().Draw(t, "stats") {
			r.Modes = append(r.Modes, profile.ModeStats{
				Mode: m, Rate: rapid.Float64Range(0, 1e6).Draw(t, "rate"), Samples: len(r.Samples),
				Pauses: snapshot.Pauses{Count: 1, Max: 3}, Seen: int64(m), Every: 5,
			})
		}
	}
	r.Cost = profile.Cost{TargetCPU: 1, OwnCPU: 2, OwnMemory: 3, Processors: 4}
	r.Notes = rapid.SliceOfN(text, 0, 3).Draw(t, "notes")
	if len(r.Notes) == 0 {
		r.Notes = nil
	}
	return r
})

func encoded(t *rapid.T, write func(io.Writer, *profile.Recording) error, r *profile.Recording) []byte {
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decoded(t *rapid.T, file []byte) *profile.Recording {
	r, err := ReadRecording(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := recordings.Draw(t, "recording")
		if got := decoded(t, encoded(t, WriteRecording, r)); !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v\nwant %+v", got, r)
		}
	})
}

func TestPprofRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := recordings.Draw(t, "recording")
		got := decoded(t, encoded(t, Pprof, r))
		for _, m := range profile.Modes {
			equalMaps(t, m.String(), byStack(got, m, display.FullName), byStack(r, m, display.FullName))
		}
		equalMaps(t, "sums", sums(got), sums(r))
	})
}

// TestSpeedscopeRoundTrip: a speedscope file keeps the weight of each mode and stack.
func TestSpeedscopeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := recordings.Draw(t, "recording")
		got := decoded(t, encoded(t, Speedscope, r))
		for _, m := range profile.Modes {
			want := byStack(r, m, display.FullName)
			for _, stack := range []string{"", incompleteFrame} {
				delete(want, stack) // empty stacks are gaps to speedscope
			}
			have := byStack(got, m, display.FullName)
			delete(have, incompleteFrame)
			for s, w := range want {
				if w == 0 {
					delete(want, s) // has no length
				}
			}
			equalMaps(t, m.String(), have, want)
		}
	})
}

// TestFoldedSums: the numbers of a mode's lines add up to its weight, but for rounding.
func TestFoldedSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := recordings.Draw(t, "recording")
		for _, m := range r.SampledModes() {
			file := encoded(t, foldedOf(m, rapid.Bool().Draw(t, "by thread")), r)
			if len(file) == 0 {
				continue
			}
			got := decoded(t, file)
			lines := bytes.Count(file, []byte("\n"))
			// The reader takes the numbers for CPU time in µs.
			number, want := got.Weight(profile.CPU)/1000, foldedNumber(m, r.Weight(m))
			if d := number - want; d > int64(lines) || -d > int64(len(r.Samples)) {
				t.Fatalf("%s: %d in %d lines, want %d", m, number, lines, want)
			}
		}
	})
}

type traceEvent struct {
	Phase string  `json:"ph"`
	Name  string  `json:"name"`
	PID   int     `json:"pid"`
	TID   int     `json:"tid"`
	At    float64 `json:"ts"`
	Args  struct {
		Name string `json:"name"`
	} `json:"args"`
}

// TestTraceNests: slices are well nested, time does not run backwards, and every track and
// process has a name. The innermost slices add up to the samples, and each sample without a
// duration is an instant.
func TestTraceNests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := recordings.Draw(t, "recording")
		var file struct {
			TraceEvents []traceEvent `json:"traceEvents"`
		}
		if err := json.Unmarshal(encoded(t, ChromeTrace, r), &file); err != nil {
			t.Fatal(err)
		}
		type lane struct{ pid, tid int }
		open, at, named := map[lane][]string{}, map[lane]float64{}, map[lane]bool{}
		var inside float64
		instants := 0
		for i, e := range file.TraceEvents {
			l := lane{e.PID, e.TID}
			switch e.Phase {
			case "M":
				named[l] = true
				continue
			case "i":
				instants++
			case "B", "E":
			default:
				t.Fatalf("event %d is a %q", i, e.Phase)
			}
			if e.At < at[l] || !named[l] || !named[lane{e.PID, 0}] {
				t.Fatalf("event %d: at %v after %v, or on a track without a name", i, e.At, at[l])
			}
			if e.Phase == "i" {
				continue
			}
			if len(open[l]) > 0 {
				inside += e.At - at[l]
			}
			at[l] = e.At
			if e.Phase == "B" {
				open[l] = append(open[l], e.Name)
				continue
			}
			if n := len(open[l]); n == 0 || open[l][n-1] != e.Name {
				t.Fatalf("event %d ends %q, open are %q", i, e.Name, open[l])
			}
			open[l] = open[l][:len(open[l])-1]
		}
		for l, names := range open {
			if len(names) > 0 {
				t.Fatalf("%v: %q are never left", l, names)
			}
		}
		var want float64
		for i := range r.Samples {
			switch s := &r.Samples[i]; {
			case s.Mode.Unit() != profile.Nanoseconds:
				instants--
			case s.Node != 0 || s.Incomplete || s.Mode == profile.Wall && s.State == profile.Waiting:
				want += float64(s.Weight) / 1e3
			}
		}
		if d := inside - want; d > 1e-3*want+1 || d < -1e-3*want-1 {
			t.Fatalf("slices last %v µs, samples %v µs", inside, want)
		}
		if instants != 0 {
			t.Fatalf("%d instants more than samples", instants)
		}
	})
}

func TestSpans(t *testing.T) {
	tr := track{samples: []*profile.Sample{
		{At: 10, Weight: 10}, {At: 22, Weight: 10}, {At: 31, Weight: 10}, {At: 51, Weight: 10}, {At: 51, Weight: 10},
	}}
	var got []string
	for s := range tr.spans() {
		got = append(got, fmt.Sprintf("%d-%d", s.start, s.end))
	}
	if want := []string{"0-10", "10-20", "20-30", "41-51", "51-61"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
