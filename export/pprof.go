package export

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Pprof writes a recording in the format of pprof's profile.proto, compressed with gzip. go tool
// pprof, Pyroscope, Parca and others read it. A file has all modes.
//
// Sample types: CPU time and wall-clock time each have the number of samples and the time. They are
// called "samples" and "cpu", or "samples" and "wall". If the recording has both modes, they are
// called "cpu_samples", "cpu", "wall_samples" and "wall", so that no tool adds the two up. The types
// of the event modes are "alloc_objects" and "alloc_space", "exceptions", "contentions" and "delay",
// "threads", "gcs" and "pause"; the names are Go's where Go has the type.
//
// Samples with the same stack and the same labels are added up. The file has neither times nor the
// tier of the code.
//
// Labels: thread (the name), role, mode, state, incomplete ("yes"), and the numbers tid, managed_tid
// and, if there are several processes, pid.
//
// Functions: the name includes the parameters, the system name is the exact metadata name, and the
// file name is the source file, or the module where the source file is not known. A function with
// lines in several files becomes several functions. Addresses are made up: each function has its own
// range within the mapping of its module. Code without a symbol is at its offset in the module.
func Pprof(w io.Writer, r *profile.Recording) error {
	recorded := r.RecordedModes()
	if len(recorded) == 0 {
		recorded = []profile.Mode{profile.CPU} // nothing was sampled: an empty profile
	}
	z := gzip.NewWriter(w)
	e := pprofEncoder{r: r, columns: pprofColumns(recorded), modules: map[pprofModule]int32{}}
	e.w = pprofWriter{out: bufio.NewWriterSize(z, 1<<16), index: map[string]int64{"": 0}, strings: []string{""}}
	if err := e.encode(); err != nil {
		return err
	}
	return errors.Join(e.w.out.Flush(), z.Close())
}

// pprofComment begins the first comment of clrsnap's profiles; the version follows.
const pprofComment = "written by clrsnap "

type pprofEncoder struct {
	r        *profile.Recording
	w        pprofWriter
	columns  []pprofColumn
	types    [][2]string // names and units of values
	mappings []pprofMapped
	modules  map[pprofModule]int32 // their mappings
	entries  []pprofEntry
	sources  functionSources
}

// pprofMapped is a mapping. Its id is its index + 1.
type pprofMapped struct {
	start, limit uint64
	file         string
}

// pprofEntry is a sample of the profile.
type pprofEntry struct {
	sampleGroup
	weight, count int64
}

// pprofColumn says which values of a profile's sample belong to a mode.
type pprofColumn struct {
	mode          profile.Mode
	count, weight int // indices of values; count is -1 for a mode without a count
}

// pprofColumns assigns values to each mode.
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

// pprofTypes are the names of the sample types of each mode: first clrsnap's name, then the names of
// other tools. alloc_space, inuse_space, delay and threadcreate are Go's, the names with hyphens are
// Pyroscope's and Datadog's.
var pprofTypes = [len(profile.Modes)]struct{ weight, count []string }{
	profile.CPU:         {[]string{"cpu", "cpu-time"}, []string{"cpu_samples", "samples", "cpu-samples"}},
	profile.Wall:        {[]string{"wall", "wall-time", "time"}, []string{"wall_samples", "samples"}},
	profile.Alloc:       {[]string{"alloc_space", "alloc-size"}, []string{"alloc_objects", "alloc-samples"}},
	profile.Exception:   {[]string{"exceptions", "exception", "exception-samples"}, nil},
	profile.Contention:  {[]string{"delay", "lock-time"}, []string{"contentions", "lock-count"}},
	profile.ThreadStart: {[]string{"threads", "threadcreate"}, nil},
	profile.GC:          {[]string{"pause"}, []string{"gcs"}},
	profile.Waits:       {[]string{"waited"}, []string{"waits"}},
	profile.Live:        {[]string{"inuse_space"}, []string{"inuse_objects"}},
}

// samplesOnly is the name of the number of samples in a profile with either CPU time or wall-clock
// time.
const samplesOnly = "samples"

type pprofModule struct {
	kind  snapshot.Kind
	name  string
	owner snapshot.Origin
}

// sampleGroup has the fields that samples must share to be added up.
type sampleGroup struct {
	thread, node int32
	mode         profile.Mode
	state        profile.State
	incomplete   bool
}

func groupOf(s *profile.Sample) sampleGroup {
	return sampleGroup{s.Thread, s.Node, s.Mode, s.State, s.Incomplete}
}

// encode writes the profile in pprof's own order: the samples, then the tables for the samples, the
// strings last.
func (e *pprofEncoder) encode() error {
	first, period := e.describe()
	for _, t := range e.types {
		e.w.message(1, e.w.valueType(nil, t))
	}
	e.sum()
	if err := e.samples(); err != nil {
		return err
	}
	e.program()
	e.locations()
	e.writeFunctions()
	tail := appendNumber(nil, 9, uint64(unixNano(e.r.Start)))
	tail = appendNumber(tail, 10, uint64(e.r.Duration))
	tail = protowire.AppendBytes(protowire.AppendTag(tail, 11, protowire.BytesType), e.w.valueType(nil, first))
	tail = appendNumber(tail, 12, uint64(period))
	for _, c := range append([]string{strings.TrimSpace(pprofComment + e.r.Version)}, e.r.Notes...) {
		tail = e.w.text(tail, 13, c)
	}
	tail = e.w.text(tail, 14, first[0])
	for _, s := range e.w.strings {
		e.w.message(6, []byte(s))
	}
	e.w.write(tail)
	return e.w.err
}

// describe sets the sample types. It returns the type that tools show first, and the type's sampling
// period.
func (e *pprofEncoder) describe() (first [2]string, period int64) {
	alone := len(e.columns) < 2 || e.columns[1].mode != profile.Wall
	for _, c := range e.columns {
		names := &pprofTypes[c.mode]
		if c.count >= 0 {
			count := names.count[0]
			if alone && !c.mode.OfEvents() {
				count = samplesOnly
			}
			e.types = append(e.types, [2]string{count, profile.Count.String()})
		}
		e.types = append(e.types, [2]string{names.weight[0], c.mode.Unit().String()})
	}
	c := e.columns[0]
	s, _ := e.r.Mode(c.mode)
	switch {
	case c.mode.OfEvents():
		period = s.Every
	case s.Rate >= 1e-9:
		period = int64(math.Round(1e9 / s.Rate))
	}
	return e.types[c.weight], period
}

// unixNano returns t as nanoseconds since 1970, or 0 if t is not known or out of range.
func unixNano(t time.Time) int64 {
	if y := t.Year(); y < 1970 || y > 2200 {
		return 0
	}
	return t.UnixNano()
}

// sum adds up samples that differ only in time.
func (e *pprofEncoder) sum() {
	index := map[sampleGroup]int32{}
	for i := range e.r.Samples {
		s := &e.r.Samples[i]
		key := groupOf(s)
		at, ok := index[key]
		if !ok {
			at = int32(len(e.entries))
			index[key] = at
			e.entries = append(e.entries, pprofEntry{sampleGroup: key})
		}
		entry := &e.entries[at]
		entry.weight += s.Weight
		if s.Mode.OfEvents() {
			entry.count += s.Events
		} else {
			entry.count += int64(s.Count)
		}
	}
}

// samples writes the samples.
func (e *pprofEncoder) samples() error {
	frames := newSpelled(e.r)
	for i := range e.entries {
		if err := frames.add(e.entries[i].node); err != nil {
			return err
		}
	}
	var packed, b []byte
	values := make([]int64, len(e.types))
	for i := range e.entries {
		entry := &e.entries[i]
		packed = packed[:0]
		for n := entry.node; n > 0; n = e.r.Nodes[n].Parent {
			packed = protowire.AppendVarint(packed, uint64(e.r.Nodes[n].Location)+1)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b[:0], 1, protowire.BytesType), packed)
		clear(values)
		for _, c := range e.columns {
			if c.mode == entry.mode {
				values[c.weight] = entry.weight
				if c.count >= 0 {
					values[c.count] = entry.count
				}
			}
		}
		packed = packed[:0]
		for _, v := range values {
			packed = protowire.AppendVarint(packed, uint64(v))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), packed)
		e.w.message(2, e.labels(b, entry))
	}
	return nil
}

// program adds the first mapping. Tools name the profile after the first mapping.
func (e *pprofEncoder) program() {
	if len(e.r.Processes) > 0 {
		if name := e.r.Processes[0].Program(); name != "" {
			e.mappings = append(e.mappings, pprofMapped{file: name})
		}
	}
}

// mapping returns the index of the mapping of a function.
func (e *pprofEncoder) mapping(f *profile.Function) int32 {
	key := pprofModule{mappedKind(f.Kind), f.Module, f.Owner}
	i, ok := e.modules[key]
	if !ok {
		i = int32(len(e.mappings))
		e.modules[key] = i
		e.mappings = append(e.mappings, pprofMapped{file: mappingFile(key)})
	}
	return i
}

// The file names of mappings other than native modules. When a profile is read back, kindOf and
// moduleOfMapping recognise the kind of a mapping's code by these names.
const (
	assemblySuffix = ".dll"
	dynamicMapping = "[dynamic methods]"
	kernelMapping  = "[kernel.kallsyms]" // as perf calls it
	kernelModule   = "[kernel: "         // followed by a kernel module and ]
	eventMapping   = "[event]"
	eventModule    = "[event: " // followed by the assembly of a type and ]
	unknownMapping = "[unknown]"

	kernelItself = "kernel" // the module of the kernel's own functions
)

// ownerFolder is the folder of the mapping of assemblies with a known Owner: tools show a mapping
// without its folder.
func ownerFolder(of snapshot.Origin) string {
	if of == "" {
		return ""
	}
	return "[" + string(of) + "]/"
}

// ownerOf returns the origin of a mapping's assembly.
func ownerOf(file string) snapshot.Origin {
	for _, o := range owners[1:] {
		if strings.HasPrefix(file, ownerFolder(o)) {
			return o
		}
	}
	return ""
}

// mappedKind is a kind known to other tools: the awaiting method of a method looks like its caller.
func mappedKind(k snapshot.Kind) snapshot.Kind {
	if k == snapshot.Async {
		return snapshot.Managed
	}
	return k
}

func mappingFile(m pprofModule) string {
	switch {
	case m.kind == snapshot.Event && m.name == "":
		return eventMapping
	case m.kind == snapshot.Event:
		return eventModule + m.name + "]"
	case m.kind == snapshot.Kernel && (m.name == "" || m.name == kernelItself):
		return kernelMapping
	case m.kind == snapshot.Kernel:
		return kernelModule + m.name + "]"
	case m.kind == snapshot.Managed && m.name == "":
		return dynamicMapping
	case m.kind == snapshot.Managed:
		return ownerFolder(m.owner) + m.name + assemblySuffix
	case m.name == "":
		return unknownMapping
	}
	return m.name
}

// Made-up addresses: each function has slotSize bytes, and each mapping begins at a
// multiple of mappingAlign.
const (
	slotSize     = 1 << 20
	mappingAlign = 1 << 24
)

// locations assigns addresses, and writes mappings and locations. The first part of a mapping is for
// code without symbols, at the code's offset in the module.
func (e *pprofEncoder) locations() {
	functions := e.r.Functions
	e.sources = newFunctionSources(e.r)
	owner := make([]int32, len(functions))
	for i := range functions {
		owner[i] = e.mapping(&functions[i])
	}
	size := make([]uint64, len(e.mappings)) // the used part
	for _, l := range e.r.Locations {
		if !hasSlot(&functions[l.Function]) {
			size[owner[l.Function]] = max(size[owner[l.Function]], alignUp(boundedOffset(l.Offset)+1, slotSize))
		}
	}
	base := make([]uint64, len(functions)) // offsets in the mapping
	for i := range functions {
		if hasSlot(&functions[i]) {
			base[i] = size[owner[i]]
			size[owner[i]] += slotSize
		}
	}
	next := uint64(mappingAlign)
	for i := range e.mappings {
		m := &e.mappings[i]
		m.start = next
		m.limit = next + max(size[i], slotSize)
		next = alignUp(m.limit, mappingAlign)
		e.writeMapping(uint64(i+1), m)
	}
	for i, l := range e.r.Locations {
		offset := boundedOffset(l.Offset)
		if hasSlot(&functions[l.Function]) {
			offset = base[l.Function] + min(offset, slotSize-1)
		}
		b := appendNumber(nil, 1, uint64(i+1))
		b = appendNumber(b, 2, uint64(owner[l.Function]+1))
		b = appendNumber(b, 3, e.mappings[owner[l.Function]].start+offset)
		line := appendNumber(nil, 1, e.sources.id(e.r, &e.r.Locations[i]))
		if l.Line > 0 {
			line = appendNumber(line, 2, uint64(e.r.Lines[l.Line].Line))
			line = appendNumber(line, 3, uint64(e.r.Lines[l.Line].Column))
		}
		e.w.message(4, protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), line))
	}
}

// writeMapping writes a mapping, with flags that say that tools need not look up symbols.
func (e *pprofEncoder) writeMapping(id uint64, m *pprofMapped) {
	b := appendNumber(nil, 1, id)
	b = appendNumber(b, 2, m.start)
	b = appendNumber(b, 3, m.limit)
	b = e.w.text(b, 5, m.file)
	for has := protowire.Number(7); has <= 10; has++ { // has_functions … has_inline_frames
		b = appendNumber(b, has, 1)
	}
	e.w.message(3, b)
}

// hasSlot reports whether a function has its own range of addresses.
func hasSlot(f *profile.Function) bool { return f.Method != "" || f.Kind == snapshot.Event }

// boundedOffset keeps made-up addresses from overflowing.
func boundedOffset(offset uint64) uint64 { return min(offset, 1<<40) }

func alignUp(v, align uint64) uint64 { return (v + align - 1) &^ (align - 1) }

// The names of labels.
const (
	labelThread, labelRole, labelMode, labelState, labelIncomplete = "thread", "role", "mode", "state", "incomplete"
	labelTID, labelManagedTID, labelPID                            = "tid", "managed_tid", "pid"
	labelOrigin                                                    = "origin" // origin of the running or waiting code

	yes = "yes" // the value of labelIncomplete
)

// origin is the origin of the code at the end of a stack.
func (e *pprofEncoder) origin(node int32) snapshot.Origin {
	for ; node > 0; node = e.r.Nodes[node].Parent {
		if f := e.r.Function(node); f.Kind != snapshot.Event {
			return f.Origin()
		}
	}
	return ""
}

// labels appends the labels of a sample.
func (e *pprofEncoder) labels(b []byte, entry *pprofEntry) []byte {
	label := func(content []byte) {
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), content)
	}
	text := func(name, value string) {
		if value != "" {
			label(e.w.text(e.w.text(nil, 1, name), 2, value))
		}
	}
	number := func(name string, v int) {
		if v != 0 {
			label(appendNumber(e.w.text(nil, 1, name), 3, uint64(v)))
		}
	}
	t := &e.r.Threads[entry.thread]
	if entry.incomplete {
		text(labelIncomplete, yes)
	}
	text(labelMode, entry.mode.String())
	text(labelOrigin, string(e.origin(entry.node)))
	text(labelRole, t.Role)
	text(labelState, entry.state.String())
	text(labelThread, t.Name)
	number(labelManagedTID, t.ManagedThreadID)
	if len(e.r.Processes) > 1 {
		number(labelPID, e.r.Processes[t.Process].PID)
	}
	number(labelTID, t.OSThreadID)
	return b
}

// pprofWriter writes the fields of a profile one by one, and assigns indices to its strings. It keeps
// the first error.
type pprofWriter struct {
	out     *bufio.Writer
	buf     []byte
	strings []string
	index   map[string]int64
	err     error
}

func (w *pprofWriter) write(b []byte) {
	if _, err := w.out.Write(b); err != nil && w.err == nil {
		w.err = err
	}
}

// message writes a field that is a message or a string.
func (w *pprofWriter) message(field protowire.Number, content []byte) {
	w.buf = protowire.AppendTag(w.buf[:0], field, protowire.BytesType)
	w.buf = protowire.AppendVarint(w.buf, uint64(len(content)))
	w.write(w.buf)
	w.write(content)
}

// text appends a field with the index of a string.
func (w *pprofWriter) text(b []byte, field protowire.Number, s string) []byte {
	i, ok := w.index[s]
	if !ok {
		i = int64(len(w.strings))
		w.index[s] = i
		w.strings = append(w.strings, s)
	}
	return appendNumber(b, field, uint64(i))
}

func (w *pprofWriter) valueType(b []byte, t [2]string) []byte {
	return w.text(w.text(b, 1, t[0]), 2, t[1])
}

// appendNumber appends a field, unless the number is 0, the default of a missing field.
func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
