package export

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// importer builds a recording from a format that stores less than clrsnap's own. Its memory comes from
// a budget.
type importer struct {
	b       *profile.Builder
	threads map[profile.RecordedThread]int32
	pids    map[int]int32
	r       profile.Recording // the fields without samples
	modes   [len(profile.Modes)]profile.ModeStats

	budget                      budget
	functions, locations, nodes int32 // how many have been taken from the budget
	files, lines                int32 // the same, without the entries for none
	entered                     int   // frames of all samples
}

// maxEntered bounds the number of frames in all samples of a file together, for formats in which few
// bytes can stand for many frames.
const maxEntered = 1 << 27

func newImporter() *importer {
	const most = recordingBudget / sampleCost // more objects of any kind than the budget has room for
	return &importer{
		b:       profile.NewBuilder(profile.Limits{Samples: most, Nodes: most, Functions: most}),
		threads: map[profile.RecordedThread]int32{}, pids: map[int]int32{}, nodes: 1,
		budget: budget{recordingBudget},
	}
}

// process returns the index of a process.
func (m *importer) process(pid int) (int32, error) {
	i, ok := m.pids[pid]
	if ok {
		return i, nil
	}
	i = int32(len(m.r.Processes))
	p := snapshot.Process{PID: pid}
	m.pids[pid] = i
	m.r.Processes = append(m.r.Processes, p)
	return i, m.budget.takeProcess(&p)
}

func (m *importer) thread(t profile.RecordedThread) (int32, error) {
	i, ok := m.threads[t]
	if ok {
		return i, nil
	}
	if err := m.budget.takeThread(&t); err != nil {
		return 0, err
	}
	i = m.b.Thread(t)
	m.threads[t] = i
	return i, nil
}

// put returns the index of a function.
func (m *importer) put(f profile.Function) (int32, error) {
	i := m.b.Function(f)
	if i < m.functions {
		return i, nil
	}
	m.functions++
	return i, cmp.Or(m.budget.take(functionCost, "functions"), m.budget.takeNames(&f))
}

func (m *importer) location(l profile.Location) (int32, error) {
	i := m.b.Location(l)
	if i < m.locations {
		return i, nil
	}
	m.locations++
	cost := locationCost
	if l.Line > 0 {
		cost += placedCost
	}
	return i, m.budget.take(cost, "places in functions")
}

// sourceLine returns the index of a line in a named file.
func (m *importer) sourceLine(file string, l profile.Line) (int32, error) {
	var err error
	if l.File = m.b.Sources().File(profile.SourceFile{Name: file}); l.File > m.files {
		m.files = l.File
		err = m.budget.takeAll(sourceCost, "source files", file)
	}
	at := m.b.Sources().Line(l)
	if at > m.lines {
		m.lines = at
		err = cmp.Or(err, m.budget.take(lineCost, "lines of source files"))
	}
	return at, err
}

// enter makes a location the leaf of a sample's stack.
func (m *importer) enter(s *profile.Sample, location int32) error {
	if m.entered++; m.entered > maxEntered {
		return tooLarge(fmt.Sprintf("has more than %d million frames in all samples together", maxEntered>>20))
	}
	s.Node = m.b.Child(s.Node, location)
	if s.Node < m.nodes {
		return nil
	}
	m.nodes++
	return m.budget.take(nodeCost, "different stacks")
}

func (m *importer) add(s profile.Sample) error {
	if s.Weight < 0 || s.Weight > maxWeight || s.At < 0 || s.At > maxTime {
		return errors.New("the values in the file are negative or too large")
	}
	if s.Mode.Unit() == profile.Count {
		s.Events = s.Weight
	}
	m.modes[s.Mode].Samples += int(max(s.Count, 1))
	if err := m.budget.take(sampleCost, "samples"); err != nil {
		return err
	}
	m.b.Add(s)
	return nil
}

// note adds a sentence to the recording's notes, unless the sentence is among the latest notes.
func (m *importer) note(text string) error {
	if slices.Contains(m.r.Notes[max(0, len(m.r.Notes)-4):], text) {
		return nil
	}
	m.r.Notes = append(m.r.Notes, text)
	return m.budget.takeAll(noteCost, "notes", text)
}

// finish returns the recording.
func (m *importer) finish() (*profile.Recording, error) {
	if _, err := m.process0(); err != nil {
		return nil, err
	}
	r := *m.b.Recording() // a copy: the Builder's indices can be freed
	r.Version, r.Start, r.Duration = m.r.Version, m.r.Start, m.r.Duration
	r.Processes, r.Notes = m.r.Processes, m.r.Notes
	for _, mode := range profile.Modes {
		if stats := m.modes[mode]; stats.Samples > 0 {
			stats.Mode = mode
			r.Modes = append(r.Modes, stats)
		}
	}
	if err := checkRecording(&r); err != nil {
		return nil, fmt.Errorf("the file is damaged: %w", err)
	}
	return &r, nil
}

// process0 adds a process if there is none, and returns the index of the first.
func (m *importer) process0() (int32, error) {
	if len(m.r.Processes) > 0 {
		return 0, nil
	}
	return m.process(0)
}

// function returns the index of a function by its name in tools, and by the file of its module, which
// may be empty.
func (m *importer) function(name, file string) (int32, error) {
	module := baseName(file)
	if assembly, rest, ok := strings.Cut(name, "!"); ok && module == "" && !strings.ContainsAny(assembly, " (<:") {
		name, module = rest, assembly+assemblySuffix // as dotnet-trace writes it
	}
	kind := kindOf(name, module)
	return m.put(functionOf(kind, "", name, moduleOfMapping(kind, module)))
}

// functionOf makes a function from its name in tools. If the exact name is empty, it becomes the name
// without the parameters.
func functionOf(kind snapshot.Kind, exact, name, module string) profile.Function {
	f := profile.Function{Kind: kind, Method: exact, Display: name, Short: name, Module: module}
	if kind == snapshot.Event {
		if module != "" { // the event has a type
			f.Display, f.Fate = display.SplitFate(name)
			f.Short = display.WithoutNamespaces(f.Display)
			if w, ok := profile.WaitEventOf(f.Display); ok {
				f.Short = w.WaitEvent(display.WithoutNamespaces(w.Type)).Short
			}
		}
		return f
	}
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") && exact == "" {
		if kind == snapshot.Native && module == "" && name != unknownMapping {
			f.Module = name[1 : len(name)-1]
		}
		return f // the function stands for a module
	}
	if kind == snapshot.Managed {
		f.Display, f.Signature = display.SplitSignature(name)
		f.Short = display.Shorten(f.Display)
	}
	if exact == "" {
		f.Method = f.Display
	}
	return f
}

// kindOf returns the kind of a function: from its module, or else a guess from its name.
func kindOf(name, module string) snapshot.Kind {
	switch {
	case isEventMapping(module):
		return snapshot.Event
	case strings.HasPrefix(module, "[kernel") || module == "vmlinux":
		return snapshot.Kernel
	case strings.HasSuffix(module, assemblySuffix), strings.HasSuffix(module, ".exe"), module == dynamicMapping,
		strings.HasPrefix(module, "perf-") && strings.HasSuffix(module, ".map"):
		return snapshot.Managed
	case module != "", strings.HasPrefix(name, "["), strings.Contains(name, "::"):
		return snapshot.Native
	case strings.Contains(strings.TrimPrefix(name, "."), "."):
		return snapshot.Managed // Namespace.Type.Method
	}
	return snapshot.Native
}

func isEventMapping(file string) bool {
	return file == eventMapping || strings.HasPrefix(file, eventModule) && strings.HasSuffix(file, "]")
}

// moduleOfMapping returns the module for a mapping's file.
func moduleOfMapping(kind snapshot.Kind, file string) string {
	switch {
	case file == dynamicMapping || file == unknownMapping || file == eventMapping:
		return ""
	case kind == snapshot.Event:
		return strings.TrimSuffix(strings.TrimPrefix(file, eventModule), "]")
	case kind == snapshot.Kernel && strings.HasPrefix(file, kernelModule):
		return strings.TrimSuffix(strings.TrimPrefix(file, kernelModule), "]")
	case kind == snapshot.Kernel:
		return kernelItself
	case kind == snapshot.Managed && strings.HasSuffix(file, assemblySuffix):
		return strings.TrimSuffix(file, assemblySuffix)
	}
	return file
}

// timeUnit returns the duration of a unit; false: the unit is not a unit of time.
func timeUnit(name string) (time.Duration, bool) {
	switch strings.TrimSuffix(name, "s") {
	case "nanosecond", "n":
		return time.Nanosecond, true
	case "microsecond", "u", "µ":
		return time.Microsecond, true
	case "millisecond", "m":
		return time.Millisecond, true
	case "second", "":
		return time.Second, name != ""
	}
	return 0, false
}

// scaled returns v times unit as a weight. A weight that does not fit becomes -1, and importer.add
// refuses -1.
func scaled(v float64, unit int64) int64 {
	if v *= float64(unit); !(v >= 0 && v <= maxWeight) {
		return -1
	}
	return int64(math.Round(v))
}
