package record_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/export"
	"clrsnap/internal/lines"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

const hotFile = "/testdata/apps/hotlines/Program.cs"

// hotLines asks the program hotlines for the numbers of its lines.
func hotLines(t *testing.T, a *testenv.App) map[string]int32 {
	t.Helper()
	out := map[string]int32{}
	for _, l := range a.Ask("lines") {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "LINE" {
			n, err := strconv.Atoi(f[2])
			if err != nil {
				t.Fatal(err)
			}
			out[f[1]] = int32(n)
		}
	}
	if len(out) < 5 {
		t.Fatalf("the program names only %v", out)
	}
	return out
}

// part is the share of a line, and of its function, in a mode.
func part(r *profile.Recording, m profile.Mode, method string,
	line int32) (found profile.LineTotal, of profile.FunctionTotal) {
	lines := r.LineTotals(m)
	for _, f := range r.Totals(m).Functions {
		if !strings.HasPrefix(r.Functions[f.Function].Display, method) {
			continue
		}
		of = f
		for _, l := range lines[f.Function] {
			if l.Line == line && r.Files[l.File].Name == hotFile {
				return l, f
			}
		}
	}
	return profile.LineTotal{}, of
}

// checkHotLines compares the shares of lines with the program's work.
func checkHotLines(t *testing.T, r *profile.Recording, want map[string]int32) {
	t.Helper()
	share := func(part, of profile.Part) float64 { return float64(part.All().Weight) / float64(of.All().Weight) }
	heavy, work := part(r, profile.CPU, "HotLines.Program.Work", want["heavy"])
	light, _ := part(r, profile.CPU, "HotLines.Program.Work", want["light"])
	// Beside other programs there are few samples: the more samples, the closer the shares.
	h, l := share(heavy.Total, work.Total), share(light.Total, work.Total)
	deviation := math.Sqrt(0.75 * 0.25 / float64(max(work.Total.All().Samples, 1)))
	if most := max(0.1, 4.5*deviation); math.Abs(h-0.75) > most || math.Abs(l-0.25) > most {
		t.Errorf("the heavy line has %.2f of Work, the light one %.2f: want 0.75 and 0.25\n%s", h, l,
			livetest.Top(t, r))
	}
	burn, all := part(r, profile.CPU, "HotLines.Program.Burn", want["burn"])
	if s := share(burn.Self, all.Self); s < 0.95 {
		t.Errorf("the line of the loop has %.2f of Burn\n%s", s, livetest.Top(t, r))
	}
	if later, _ := part(r, profile.CPU, "HotLines.Program.Later", want["later"]); later.Total.All().Samples == 0 {
		t.Error("the line of an async method has no samples")
	}
	for i := range r.Locations {
		l := &r.Locations[i]
		if l.Line == 0 || r.Files[r.Lines[l.Line].File].Name != hotFile {
			continue
		}
		m, line := &r.Methods[l.Method], r.Lines[l.Line].Line
		if m.First == 0 || line < m.First || line > m.Last {
			t.Errorf("%s is at line %d, the method at %d to %d", r.Functions[l.Function].Display, line, m.First, m.Last)
		}
	}
}

// checkText requires that the recording has the text of the heavy line, and says where its file is.
func checkText(t *testing.T, r *profile.Recording, line int32, path string) {
	t.Helper()
	for i := range r.Files {
		f := &r.Files[i]
		if f.Name != hotFile {
			continue
		}
		if f.Path != path {
			t.Errorf("the file is at %s, not at %s", f.Path, path)
		}
		if text, _ := f.Line(line); !strings.Contains(text, "3 * Unit") {
			t.Errorf("the text of the heavy line is %q", text)
		}
	}
}

// TestRecordedLines: samples have the lines on which the program spends its time, in debug builds and
// in optimised builds, with the text around the lines if the PDB has the text; and so has code that
// can be unloaded. The text is from the compiled file.
func TestRecordedLines(t *testing.T) {
	apps, err := filepath.Abs("../testdata/apps")
	if err != nil {
		t.Fatal(err)
	}
	roots := []clrsnap.SourceRoot{{From: "/testdata/apps", To: apps}}
	for name, compile := range map[string][]string{
		"release": nil, "debug": {"-o-"}, "embedded": {"-debug:embedded"},
	} {
		t.Run(name, func(t *testing.T) {
			a := testenv.Start(t, "hotlines", testenv.Options{Args: []string{"--plugin"}, Compile: compile})
			want := hotLines(t, a)
			p := livetest.Open(t, a, clrsnap.Options{Lines: true, SourceRoots: roots})
			r := livetest.Recorded(t, p, record.Options{
				Modes: both, Rate: 499, Duration: 2 * time.Second, SourceText: true,
			})
			checkHotLines(t, r, want)
			plugin := r.Select(profile.Selection{
				Threads: func(th *profile.RecordedThread) bool { return th.Name == "plugin" },
			})
			if heavy, work := part(
				plugin, profile.CPU, "HotLines.Program.Work", want["heavy"],
			); heavy.Total.All().Weight*2 < work.Total.All().Weight {
				t.Errorf("code that can be unloaded: %+v of %+v", heavy.Total, work.Total)
			}
			checkText(t, r, want["heavy"], filepath.Join(apps, "hotlines/Program.cs"))
			livetest.EndsWell(t, a)
		})
	}
}

// TestLocalText: the text can also come from the file named by the compiler.
func TestLocalText(t *testing.T) {
	if err := clrsnap.MayBlock(os.Getpid()); err != nil {
		t.Skip(err)
	}
	apps, err := filepath.Abs("../testdata/apps")
	if err != nil {
		t.Fatal(err)
	}
	a := testenv.Start(t, "hotlines", testenv.Options{Compile: []string{"-pathmap:" + apps + "=" + apps}})
	want := hotLines(t, a)
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{Rate: 499, Duration: time.Second, SourceText: true})
		for i := range r.Files {
			if f := &r.Files[i]; strings.HasSuffix(f.Name, "hotlines/Program.cs") {
				if text, _ := f.Line(want["heavy"]); strings.Contains(text, "3 * Unit") {
					return ""
				}
			}
		}
		return "the text of a line that is hot"
	})
}

// TestRecordedLinesOfEvents: allocations have the lines that allocate.
func TestRecordedLinesOfEvents(t *testing.T) {
	a := testenv.Start(t, "hotlines", testenv.Options{})
	want := hotLines(t, a)
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	r := livetest.Recorded(t, p, record.Options{
		Events:   events.Options{Monitor: events.MonitorAllocations, AllocationBytes: 64 << 10},
		Duration: time.Second,
	})
	l, f := part(r, profile.Alloc, "HotLines.Program.Allocate", want["garbage"])
	if l.Direct.All().Weight == 0 || l.Direct.All().Weight*100 < 99*f.Direct.All().Weight {
		t.Errorf("the line that allocates has %+v of %+v", l.Direct, f.Direct)
	}
	livetest.EndsWell(t, a)
}

// TestLinesOfEnded: a program that has ended has lines, too.
func TestLinesOfEnded(t *testing.T) {
	for name, compile := range map[string][]string{"beside": nil, "embedded": {"-debug:embedded"}} {
		dll := testenv.BuildWith(t, "hotlines", testenv.DefaultRuntime, compile...)
		s := livetest.RecordCommand(t, []string{testenv.Kit(t).Host(testenv.DefaultRuntime), dll, "--seconds", "2"},
			clrsnap.Options{Lines: true}, record.Options{Rate: 499})
		r := s.Good(t)
		found := false
		for i := range r.Lines {
			found = found || r.Files[r.Lines[i].File].Name == hotFile
		}
		if !found {
			t.Errorf("%s: no line\n%s", name, livetest.Top(t, r))
		}
	}
}

// written is a recording that was written to a file and read again.
func written(t *testing.T, r *profile.Recording) *profile.Recording {
	t.Helper()
	var b bytes.Buffer
	if err := export.WriteRecording(&b, r); err != nil {
		t.Fatal(err)
	}
	out, err := export.ReadRecording(&b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLinesLater: a recording without lines, copied elsewhere, gets lines from PDBs: the lines that it
// would have got at once, and no lines from the PDB of another build.
func TestLinesLater(t *testing.T) {
	dll := testenv.Build(t, "hotlines")
	symbols := t.TempDir()
	pdb, err := os.ReadFile(strings.TrimSuffix(dll, ".dll") + ".pdb")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(symbols, "hotlines.pdb"), pdb, 0o666); err != nil {
		t.Fatal(err)
	}
	a := testenv.Start(t, "hotlines", testenv.Options{})
	want := hotLines(t, a)
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	atOnce := livetest.Recorded(t, p, record.Options{Rate: 499, Duration: 2 * time.Second})
	livetest.EndsWell(t, a)
	checkHotLines(t, atOnce, want)

	bare := written(t, atOnce)
	bare.Files, bare.Lines = nil, nil
	for i := range bare.Locations {
		bare.Locations[i].Line = 0
	}
	for i := range bare.Methods {
		m := &bare.Methods[i]
		m.File, m.First, m.Last = 0, 0, 0
	}
	later := written(t, bare)
	from := lines.From{Assembly: lines.Find(later, []string{t.TempDir(), symbols})}
	lines.Add(t.Context(), later, from, lines.Options{})
	checkHotLines(t, later, want)
	for i := range later.Locations {
		if later.Locations[i].Library > 0 {
			continue // native: debug files can be on this machine
		}
		if got, want := later.SourceLine(&later.Locations[i]), atOnce.SourceLine(&atOnce.Locations[i]); (got == nil) !=
			(want == nil) || got != nil && *got != *want {
			t.Errorf("location %d is at %+v, at once it was at %+v", i, got, want)
		}
	}

	other := testenv.BuildWith(t, "hotlines", testenv.DefaultRuntime, "-o-")
	stranger := written(t, bare)
	from = lines.From{Assembly: lines.Find(stranger, []string{filepath.Dir(other)})}
	missing := lines.Add(t.Context(), stranger, from, lines.Options{})
	if len(stranger.Lines) > 0 || len(missing) == 0 {
		t.Errorf("%d lines from the PDB of another build", len(stranger.Lines))
	}
	for _, m := range missing {
		if stranger.Assemblies[m.Assembly].Name == "hotlines" && !strings.Contains(m.Why.Error(), "does not belong") {
			t.Errorf("hotlines has no lines: %v", m.Why)
		}
	}
}
