package export

import (
	"io"
	"strconv"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
)

// speedscopeSchema names the format: speedscope does not recognise files without it.
const speedscopeSchema = "https://www.speedscope.app/file-format-schema.json"

// Speedscope writes a recording in the format of speedscope. A file has one profile for each thread
// and mode, the busiest thread first.
//
// The samples of a profile are in the order of time. Their weights are nanoseconds, bytes, or counts,
// which have no unit. Empty stacks fill the times without samples, so that speedscope's time line is
// to scale. Consecutive equal stacks are one sample.
//
// A frame's file and line are the source file and line of the function, if they are known. Else the
// file is the module, with .dll for assemblies; a frame with a source file has the module as "module",
// which speedscope does not show. A stack without its frames near the base begins with the frame
// "[incomplete stack]". The file does not say whether a thread was running or waiting.
func Speedscope(w io.Writer, r *profile.Recording) error {
	if err := newSpelled(r).addAll(r); err != nil {
		return err
	}
	c := jsonwriter.New(w)
	c.Text(`{"$schema":"` + speedscopeSchema + `"`)
	c.Field("name", recordingName(r))
	c.Field("exporter", creator(r))
	c.Field("activeProfileIndex", 0)
	c.Text(",\n\"shared\":{\"frames\":")
	frames := speedscopeFrames(r)
	c.List(len(frames), func(i int) { c.Value(frames[i]) })
	c.Text("},\n\"profiles\":")
	all := tracks(r)
	e := speedscopeEncoder{c: c, r: r, incomplete: int32(len(r.Functions))}
	c.List(len(all), func(i int) { e.profile(all[i]) })
	c.Text("}\n")
	return c.Flush()
}

type speedscopeFrame struct {
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int32  `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
}

// speedscopeFrames returns a frame for each function, and incompleteFrame.
func speedscopeFrames(r *profile.Recording) []speedscopeFrame {
	out := make([]speedscopeFrame, 0, len(r.Functions)+1)
	for i, s := range newFunctionSources(r).list[:len(r.Functions)] {
		f := &r.Functions[i]
		frame := speedscopeFrame{Name: display.FullName(f),
			File: mappingFile(pprofModule{mappedKind(f.Kind), f.Module, ""})}
		if s.file > 0 {
			frame.File, frame.Line, frame.Module = r.Files[s.file].Title(), s.start, frame.File
		}
		out = append(out, frame)
	}
	return append(out, speedscopeFrame{Name: incompleteFrame})
}

type speedscopeEncoder struct {
	c          *jsonwriter.Writer
	r          *profile.Recording
	incomplete int32 // the index of incompleteFrame
	stack      []int32
	buf        []byte
}

// speedscopeEntry is one element of samples and of weights.
type speedscopeEntry struct {
	node       int32
	incomplete bool
	weight     int64
}

func (e *speedscopeEncoder) profile(t *track) {
	var entries []speedscopeEntry
	now := int64(0)
	add := func(x speedscopeEntry) {
		if n := len(entries); n > 0 && entries[n-1].node == x.node && entries[n-1].incomplete == x.incomplete {
			entries[n-1].weight += x.weight
			return
		}
		entries = append(entries, x)
	}
	if t.lasts() {
		for s := range t.spans() {
			if start := int64(s.start); start > now {
				add(speedscopeEntry{weight: start - now})
			}
			add(speedscopeEntry{s.Node, s.Incomplete, s.Weight})
			now = int64(s.end)
		}
	} else {
		for _, s := range t.samples {
			if s.Weight > 0 {
				add(speedscopeEntry{s.Node, s.Incomplete, s.Weight})
			}
			now += s.Weight
		}
	}
	c := e.c
	c.Text("{\"type\":\"sampled\"")
	c.Field("unit", speedscopeUnits[t.mode.Unit()])
	c.Field("startValue", 0)
	c.Field("endValue", now)
	c.Field("name", display.Thread(&e.r.Threads[t.thread])+modeSuffix(t.mode))
	c.Text(",\n\"samples\":")
	c.List(len(entries), func(i int) { e.sample(&entries[i]) })
	c.Text(",\n\"weights\":")
	c.List(len(entries), func(i int) { c.Uint(uint64(entries[i].weight)) })
	c.Text("}")
}

func (e *speedscopeEncoder) sample(x *speedscopeEntry) {
	e.stack = path(e.r, x.node, e.stack)
	b := append(e.buf[:0], '[')
	if x.incomplete {
		b = append(strconv.AppendInt(b, int64(e.incomplete), 10), ',')
	}
	for _, f := range e.stack {
		b = append(strconv.AppendInt(b, int64(f), 10), ',')
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	e.buf = append(b, ']')
	e.c.Bytes(e.buf)
}

// modeSuffix returns the suffix of the names of a mode's profiles.
func modeSuffix(m profile.Mode) string {
	return [...]string{
		profile.CPU: ", CPU", profile.Wall: ", wall clock", profile.Alloc: ", allocations",
		profile.Exception: ", exceptions", profile.Contention: ", waits for locks",
		profile.ThreadStart: ", thread starts", profile.GC: ", GC pauses",
		profile.Waits: ", waits", profile.Live: ", live objects",
	}[m]
}

// speedscopeNoUnit is the unit of counts.
const speedscopeNoUnit = "none"

var speedscopeUnits = [...]string{
	profile.Nanoseconds: "nanoseconds", profile.Bytes: "bytes", profile.Count: speedscopeNoUnit,
}

func creator(r *profile.Recording) string {
	if r.Version == "" {
		return creatorName
	}
	return creatorName + " " + r.Version
}

// recordingName returns the title for tools: program, process and time.
func recordingName(r *profile.Recording) string {
	name := "recording"
	if len(r.Processes) > 0 {
		p := &r.Processes[0]
		if n := p.Program(); n != "" {
			name = n
		}
		if p.PID != 0 {
			name += " (" + strconv.Itoa(p.PID) + ")"
		}
	}
	if !r.Start.IsZero() {
		name += ", " + r.Start.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return name
}
