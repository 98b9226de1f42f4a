package export

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"clrsnap/profile"
)

// importer builds a recording from a format that knows less than ours.
type importer struct {
	b       *profile.Builder
	threads map[profile.RecordedThread]int32
	pids    map[int]int32
	r       profile.Recording // what does not come from samples
	modes   [len(profile.Modes)]profile.ModeStats
}

// maxForeignNodes bounds the tree of a recording in another format: 300 MB with
// its index.
const maxForeignNodes = 1 << 22

func newImporter() *importer {
	return &importer{
		b:       profile.NewBuilder(profile.Limits{Samples: maxSamples, Nodes: maxForeignNodes}),
		threads: map[profile.RecordedThread]int32{}, pids: map[int]int32{},
	}
}

// process returns the index of a process.
func (m *importer) process(pid int) int32 {
	i, ok := m.pids[pid]
	if !ok {
		i = int32(len(m.r.Processes))
		m.pids[pid] = i
		m.r.Processes = append(m.r.Processes, profile.Process{PID: pid})
	}
	return i
}

func (m *importer) thread(t profile.RecordedThread) int32 {
	i, ok := m.threads[t]
	if !ok {
		i = m.b.Thread(t)
		m.threads[t] = i
	}
	return i
}

func (m *importer) add(s profile.Sample) error {
	if s.Weight < 0 || s.Weight > maxWeight || s.At < 0 || s.At > maxTime {
		return errors.New("the values in the file are negative or too large")
	}
	if s.Mode.Unit() == profile.Count {
		s.Events = s.Weight
	}
	m.b.Add(s)
	m.modes[s.Mode].Samples += int(max(s.Count, 1))
	return nil
}

// finish returns the recording.
func (m *importer) finish() (*profile.Recording, error) {
	if m.b.Cut() > 0 {
		return nil, fmt.Errorf("the file has too many different stacks: more than %d frames", maxForeignNodes)
	}
	r := m.b.Recording()
	m.process0()
	r.Version, r.Start, r.Duration, r.Processes, r.Notes = m.r.Version, m.r.Start, m.r.Duration, m.r.Processes, m.r.Notes
	for _, mode := range profile.Modes {
		if stats := m.modes[mode]; stats.Samples > 0 {
			stats.Mode = mode
			r.Modes = append(r.Modes, stats)
		}
	}
	if err := checkRecording(r); err != nil {
		return nil, fmt.Errorf("the file cannot be a recording: %w", err)
	}
	return r, nil
}

// process0 makes sure that there is a process.
func (m *importer) process0() {
	if len(m.r.Processes) == 0 {
		m.process(0)
	}
}

// function returns the index of a function that is known by what tools show: its
// name, and the file of the module that it is in, if that is known.
func (m *importer) function(name, file string) int32 {
	module := baseName(file)
	if assembly, rest, ok := strings.Cut(name, "!"); ok && module == "" && !strings.ContainsAny(assembly, " (<:") {
		name, module = rest, assembly+assemblySuffix // as dotnet-trace has it
	}
	kind := kindOf(name, module)
	return m.b.Function(functionOf(kind, "", name, moduleOfMapping(kind, module)))
}

// functionOf takes the name of a function apart. Without exact the exact name is
// taken to be the same, but for the parameters.
func functionOf(kind profile.Kind, exact, name, module string) profile.Function {
	f := profile.Function{Kind: kind, Method: exact, Display: name, Short: name, Module: module}
	if kind == profile.Event {
		if module != "" { // the event has a type
			f.Short = namespaces.ReplaceAllString(name, "")
		}
		return f
	}
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") && exact == "" {
		if kind == profile.Native && module == "" && name != unknownMapping {
			f.Module = name[1 : len(name)-1]
		}
		return f // stands for a module
	}
	if kind == profile.Managed {
		f.Display, f.Signature = splitSignature(name)
		f.Short = shorten(f.Display)
	}
	if exact == "" {
		f.Method = f.Display
	}
	return f
}

// kindOf guesses the kind of a function; a module tells it if there is one.
func kindOf(name, module string) profile.Kind {
	switch {
	case isEventMapping(module):
		return profile.Event
	case strings.HasPrefix(module, "[kernel") || module == "vmlinux":
		return profile.Kernel
	case strings.HasSuffix(module, assemblySuffix), strings.HasSuffix(module, ".exe"), module == dynamicMapping,
		strings.HasPrefix(module, "perf-") && strings.HasSuffix(module, ".map"):
		return profile.Managed
	case module != "", strings.HasPrefix(name, "["), strings.Contains(name, "::"):
		return profile.Native
	case strings.Contains(strings.TrimPrefix(name, "."), "."):
		return profile.Managed // Namespace.Type.Method
	}
	return profile.Native
}

func isEventMapping(file string) bool {
	return file == eventMapping || strings.HasPrefix(file, eventModule) && strings.HasSuffix(file, "]")
}

// moduleOfMapping is a module by the file of its mapping.
func moduleOfMapping(kind profile.Kind, file string) string {
	switch {
	case file == dynamicMapping || file == unknownMapping || file == eventMapping:
		return ""
	case kind == profile.Event:
		return strings.TrimSuffix(strings.TrimPrefix(file, eventModule), "]")
	case kind == profile.Kernel && strings.HasPrefix(file, kernelModule):
		return strings.TrimSuffix(strings.TrimPrefix(file, kernelModule), "]")
	case kind == profile.Kernel:
		return kernelItself
	case kind == profile.Managed && strings.HasSuffix(file, assemblySuffix):
		return strings.TrimSuffix(file, assemblySuffix)
	}
	return file
}

// stack splits off what our formats put below a stack whose beginning is missing.
func withoutMark(names []string) (rest []string, incomplete bool) {
	if len(names) > 0 && names[0] == incompleteFrame {
		return names[1:], true
	}
	return names, false
}

// timeUnit is what a number with a unit stands for; false: it is no time.
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

// scaled is a number, each of which is so much, as a weight. What does not fit is
// negative, which importer.add refuses.
func scaled(v float64, unit int64) int64 {
	if v *= float64(unit); !(v >= 0 && v <= maxWeight) {
		return -1
	}
	return int64(math.Round(v))
}
