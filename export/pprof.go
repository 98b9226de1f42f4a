package export

import (
	"io"
	"math"
	"strings"
	"time"

	"clrsnap/profile"

	pprof "github.com/google/pprof/profile"
)

// Pprof writes a recording for go tool pprof, Pyroscope, Parca and whatever else
// reads pprof's profile.proto, packed with gzip as they expect it.
//
// The sample types of CPU time and wall-clock time are the number of samples and
// the time: "samples" and "cpu", or "samples" and "wall"; of a recording with both
// modes "cpu_samples", "cpu", "wall_samples" and "wall", so that no tool adds them
// up. Those of events are "alloc_objects" and "alloc_space", "exceptions",
// "contentions" and "delay", "threads", "gcs" and "pause", as Go has them where it
// has them. Samples with the same stack and the same labels are one: when they were
// taken is not in the file, and neither is the tier of the code.
//
// The labels are thread (its name), role, mode, state, incomplete ("yes") and the
// numbers tid, managed_tid and, where there are several processes, pid. A
// function's name has its parameters, its system name is the exact metadata name,
// its file name the module. Addresses are made up: within the mapping of their
// module each function has a place of its own, and what has no symbol is at its
// offset in the module.
func Pprof(w io.Writer, r *profile.Recording) error {
	recorded := modesOf(r)
	if len(recorded) == 0 {
		recorded = []profile.Mode{profile.CPU} // nothing was sampled: an empty profile
	}
	e := pprofEncoder{
		r: r, columns: pprofColumns(recorded), mappings: map[pprofModule]*pprof.Mapping{},
		entries: map[sampleGroup]*pprof.Sample{}, labels: map[sampleGroup]pprofLabels{},
	}
	return e.encode().Write(w)
}

// pprofComment begins the first comment of our profiles; the version follows.
const pprofComment = "written by clrsnap "

type pprofEncoder struct {
	r        *profile.Recording
	columns  []pprofColumn
	p        pprof.Profile
	mappings map[pprofModule]*pprof.Mapping
	places   []*pprof.Location // by index in Recording.Locations
	stacks   [][]*pprof.Location
	entries  map[sampleGroup]*pprof.Sample
	labels   map[sampleGroup]pprofLabels // by groups whose node is 0: samples share them
}

// pprofColumn is where a mode has its values in each sample of a profile.
type pprofColumn struct {
	mode          profile.Mode
	count, weight int // count is -1 where a mode has none
}

// pprofColumns gives each mode its place.
func pprofColumns(modes []profile.Mode) []pprofColumn {
	var out []pprofColumn
	n := 0
	for _, m := range modes {
		c := pprofColumn{m, n, n + 1}
		if m.Unit() == profile.Count {
			c = pprofColumn{m, -1, n}
		}
		out = append(out, c)
		n = c.weight + 1
	}
	return out
}

// pprofTypes are what the types of a mode's values are called: first by us, then by
// others. Go has alloc_space, delay and threadcreate, Pyroscope and Datadog have the
// names with hyphens.
var pprofTypes = [len(profile.Modes)]struct{ weight, count []string }{
	profile.CPU:         {[]string{"cpu", "cpu-time"}, []string{"cpu_samples", "samples", "cpu-samples"}},
	profile.Wall:        {[]string{"wall", "wall-time", "time"}, []string{"wall_samples", "samples"}},
	profile.Alloc:       {[]string{"alloc_space", "alloc-size"}, []string{"alloc_objects", "alloc-samples"}},
	profile.Exception:   {[]string{"exceptions", "exception", "exception-samples"}, nil},
	profile.Contention:  {[]string{"delay", "lock-time"}, []string{"contentions", "lock-count"}},
	profile.ThreadStart: {[]string{"threads", "threadcreate"}, nil},
	profile.GC:          {[]string{"pause"}, []string{"gcs"}},
}

// samplesOnly is what the number of samples is called where CPU time and wall-clock
// time are not both there.
const samplesOnly = "samples"

type pprofLabels struct {
	text   map[string][]string
	number map[string][]int64
}

type pprofModule struct {
	kind profile.Kind
	name string
}

// sampleGroup is what samples have in common that only differ in when they were
// taken, and what they stand for.
type sampleGroup struct {
	thread, node int32
	mode         profile.Mode
	state        profile.State
	incomplete   bool
}

func groupOf(s *profile.Sample) sampleGroup {
	return sampleGroup{s.Thread, s.Node, s.Mode, s.State, s.Incomplete}
}

func (e *pprofEncoder) encode() *pprof.Profile {
	r := e.r
	e.p.TimeNanos, e.p.DurationNanos = unixNano(r.Start), int64(r.Duration)
	e.p.Comments = append([]string{strings.TrimSpace(pprofComment + r.Version)}, r.Notes...)
	e.types()
	e.program()
	e.locations()
	e.stacks = make([][]*pprof.Location, len(r.Nodes))
	for i := range r.Samples {
		e.sample(&r.Samples[i])
	}
	return &e.p
}

// types describes the values of samples. The first mode is what tools show first.
func (e *pprofEncoder) types() {
	alone := len(e.columns) < 2 || e.columns[1].mode != profile.Wall
	for _, c := range e.columns {
		names := &pprofTypes[c.mode]
		if c.count >= 0 {
			count := names.count[0]
			if alone && !c.mode.OfEvents() {
				count = samplesOnly
			}
			e.p.SampleType = append(e.p.SampleType, &pprof.ValueType{Type: count, Unit: profile.Count.String()})
		}
		e.p.SampleType = append(e.p.SampleType, &pprof.ValueType{Type: names.weight[0], Unit: c.mode.Unit().String()})
	}
	first := e.columns[0]
	main := *e.p.SampleType[first.weight]
	e.p.DefaultSampleType, e.p.PeriodType = main.Type, &main
	s, _ := e.r.Mode(first.mode)
	switch {
	case first.mode.OfEvents():
		e.p.Period = s.Every
	case s.Rate >= 1e-9:
		e.p.Period = int64(math.Round(1e9 / s.Rate))
	}
}

// unixNano is t since 1970, or 0 for a time that is not known or out of range.
func unixNano(t time.Time) int64 {
	if y := t.Year(); y < 1970 || y > 2200 {
		return 0
	}
	return t.UnixNano()
}

// program makes the mapping that tools name the profile after: the first.
func (e *pprofEncoder) program() {
	if len(e.r.Processes) > 0 {
		if name := e.r.Processes[0].Program(); name != "" {
			e.addMapping(name)
		}
	}
}

func (e *pprofEncoder) addMapping(file string) *pprof.Mapping {
	m := &pprof.Mapping{
		ID: uint64(len(e.p.Mapping) + 1), File: file,
		HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true, // there is nothing to look up
	}
	e.p.Mapping = append(e.p.Mapping, m)
	return m
}

func (e *pprofEncoder) mapping(f *profile.Function) *pprof.Mapping {
	key := pprofModule{f.Kind, f.Module}
	m := e.mappings[key]
	if m == nil {
		m = e.addMapping(mappingFile(key))
		e.mappings[key] = m
	}
	return m
}

// What the mappings of managed code and the kernel are called. Reading a profile
// back, kindOfMapping tells from it what kind of code they hold.
const (
	assemblySuffix = ".dll"
	dynamicMapping = "[dynamic methods]"
	kernelMapping  = "[kernel.kallsyms]" // as perf calls it
	kernelModule   = "[kernel: "         // then a module that the kernel has loaded, and ]
	eventMapping   = "[event]"
	eventModule    = "[event: " // then the assembly of a type, and ]
	unknownMapping = "[unknown]"

	kernelItself = "kernel" // the module of the kernel's own functions
)

func mappingFile(m pprofModule) string {
	switch {
	case m.kind == profile.Event && m.name == "":
		return eventMapping
	case m.kind == profile.Event:
		return eventModule + m.name + "]"
	case m.kind == profile.Kernel && (m.name == "" || m.name == kernelItself):
		return kernelMapping
	case m.kind == profile.Kernel:
		return kernelModule + m.name + "]"
	case m.kind == profile.Managed && m.name == "":
		return dynamicMapping
	case m.kind == profile.Managed:
		return m.name + assemblySuffix
	case m.name == "":
		return unknownMapping
	}
	return m.name
}

// Addresses: each function has slotSize bytes, each mapping begins at a multiple
// of mappingAlign.
const (
	slotSize     = 1 << 20
	mappingAlign = 1 << 24
)

// locations gives every location its place. Of a mapping the first part is that of
// code without symbols, by its offset in the module.
func (e *pprofEncoder) locations() {
	functions := e.functions()
	e.places = make([]*pprof.Location, len(e.r.Locations))
	size := map[*pprof.Mapping]uint64{} // what is in use
	owner := make([]*pprof.Mapping, len(functions))
	for i := range e.r.Functions {
		owner[i] = e.mapping(&e.r.Functions[i])
	}
	for _, l := range e.r.Locations {
		if !hasSlot(&e.r.Functions[l.Function]) {
			size[owner[l.Function]] = max(size[owner[l.Function]], alignUp(boundedOffset(l.Offset)+1, slotSize))
		}
	}
	base := make([]uint64, len(functions)) // within the mapping
	for i := range e.r.Functions {
		if hasSlot(&e.r.Functions[i]) {
			base[i] = size[owner[i]]
			size[owner[i]] += slotSize
		}
	}
	next := uint64(mappingAlign)
	for _, m := range e.p.Mapping {
		m.Start = next
		m.Limit = next + max(size[m], slotSize)
		next = alignUp(m.Limit, mappingAlign)
	}
	for i, l := range e.r.Locations {
		m, offset := owner[l.Function], boundedOffset(l.Offset)
		if hasSlot(&e.r.Functions[l.Function]) {
			offset = base[l.Function] + min(offset, slotSize-1)
		}
		e.places[i] = &pprof.Location{
			ID: uint64(i + 1), Mapping: m, Address: m.Start + offset, Line: []pprof.Line{{Function: functions[l.Function]}},
		}
	}
	e.p.Location = e.places
}

// hasSlot reports whether a function has addresses of its own.
func hasSlot(f *profile.Function) bool { return f.Method != "" || f.Kind == profile.Event }

// boundedOffset keeps made-up addresses from overflowing.
func boundedOffset(offset uint64) uint64 { return min(offset, 1<<40) }

func alignUp(v, align uint64) uint64 { return (v + align - 1) &^ (align - 1) }

func (e *pprofEncoder) functions() []*pprof.Function {
	out := make([]*pprof.Function, len(e.r.Functions))
	for i := range e.r.Functions {
		f := &e.r.Functions[i]
		out[i] = &pprof.Function{ID: uint64(i + 1), Name: fullName(f), SystemName: f.Method, Filename: f.Module}
	}
	e.p.Function = out
	return out
}

// stack is shared by all samples of a node.
func (e *pprofEncoder) stack(node int32) []*pprof.Location {
	if e.stacks[node] == nil {
		var s []*pprof.Location
		for n := node; n > 0; n = e.r.Nodes[n].Parent {
			s = append(s, e.places[e.r.Nodes[n].Location])
		}
		e.stacks[node] = s
	}
	return e.stacks[node]
}

func (e *pprofEncoder) sample(s *profile.Sample) {
	key := groupOf(s)
	out := e.entries[key]
	if out == nil {
		labels := e.label(s)
		out = &pprof.Sample{Location: e.stack(s.Node), Value: make([]int64, len(e.p.SampleType)), Label: labels.text, NumLabel: labels.number}
		e.entries[key] = out
		e.p.Sample = append(e.p.Sample, out)
	}
	for _, c := range e.columns {
		if c.mode != s.Mode {
			continue
		}
		out.Value[c.weight] += s.Weight
		switch {
		case c.count < 0:
		case c.mode.OfEvents():
			out.Value[c.count] += s.Events
		default:
			out.Value[c.count] += int64(s.Count)
		}
	}
}

// The names of labels.
const (
	labelThread, labelRole, labelMode, labelState, labelIncomplete = "thread", "role", "mode", "state", "incomplete"
	labelTID, labelManagedTID, labelPID                            = "tid", "managed_tid", "pid"

	yes = "yes" // the value of labelIncomplete
)

func (e *pprofEncoder) label(s *profile.Sample) pprofLabels {
	key := groupOf(s)
	key.node = 0
	out, ok := e.labels[key]
	if ok {
		return out
	}
	t := &e.r.Threads[s.Thread]
	out.text = map[string][]string{labelMode: {s.Mode.String()}, labelState: {s.State.String()}}
	if s.Incomplete {
		out.text[labelIncomplete] = []string{yes}
	}
	for name, v := range map[string]string{labelThread: t.Name, labelRole: t.Role} {
		if v != "" {
			out.text[name] = []string{v}
		}
	}
	out.number = map[string][]int64{}
	numbers := map[string]int{labelTID: t.OSThreadID, labelManagedTID: t.ManagedThreadID}
	if len(e.r.Processes) > 1 {
		numbers[labelPID] = e.r.Processes[t.Process].PID
	}
	for name, v := range numbers {
		if v != 0 {
			out.number[name] = []int64{int64(v)}
		}
	}
	e.labels[key] = out
	return out
}
