package export

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// ChromeTrace writes a recording in the Trace Event Format (JSON), for Perfetto and Chromium: a time
// line for each thread and mode. Times count from the start of the recording.
//
// A function has a slice as long as consecutive samples have the function on their stacks. There is no
// slice while a thread did not run or was not sampled. In mode wall, a slice "[waiting]" below the
// leaf shows when a thread was waiting. Stacks without their frames near the base are below a slice
// "[incomplete stack]".
//
// An event without a duration, for example an allocation, is an instant. Its name is the class or
// exception; its arguments are the bytes, the number of events, the source line nearest to the leaf,
// and the stack, leaf first. The arguments of a slice are the file and the first line of its function,
// where they are known.
//
// Each mode of a process is shown as a separate process, the busiest threads first. A slice's
// categories are the kind of its function and the module.
func ChromeTrace(w io.Writer, r *profile.Recording) error {
	c := jsonwriter.New(w)
	e := traceEncoder{c: c, r: r, names: make([]traceName, len(r.Functions), len(r.Functions)+3)}
	for i, s := range newFunctionSources(r).list[:len(r.Functions)] {
		f := &r.Functions[i]
		e.names[i] = traceNameOf(display.FullName(f), string(f.Kind), f.Module)
		if s.file > 0 {
			e.names[i].place = fmt.Sprintf(`"file":%s,"line":%d`, jsonwriter.String(r.Files[s.file].Title()), s.start)
		}
	}
	n := int32(len(e.names))
	e.waiting, e.incomplete, e.empty = n, n+1, n+2
	e.names = append(e.names, traceNameOf(waitingFrame, "waiting", ""),
		traceNameOf(incompleteFrame, "incomplete", ""), traceNameOf(display.NoStack, "incomplete", ""))

	if err := newSpelled(r).addAll(r); err != nil {
		return err
	}
	all := tracks(r)
	for _, t := range all { // only counts
		e.slices(t)
	}
	switch {
	case e.events > maxTraceEvents:
		return fmt.Errorf("the trace would have %d million events, which no viewer can open: "+
			"choose one mode, fewer threads, a shorter time, or another format", e.events/1e6)
	case e.size > MaxOutput:
		return ErrTooLarge
	}
	e.events, e.writing = 0, true
	c.Text(`{"displayTimeUnit":"ms"`)
	c.Field("otherData", map[string]string{
		"creator": creator(r), "recording": recordingName(r), "start": r.Start.UTC().Format(time.RFC3339Nano),
	})
	c.Text(",\n\"traceEvents\":[")
	e.processes(all)
	for i, t := range all {
		e.track(t, i)
	}
	c.Text("\n]}\n")
	return c.Flush()
}

// maxTraceEvents is how many events a trace may have, about a gigabyte.
const maxTraceEvents = 8 << 20

// waitingFrame is the innermost slice of a thread that waits.
const waitingFrame = "[waiting]"

type traceEncoder struct {
	c       *jsonwriter.Writer
	r       *profile.Recording
	names   []traceName
	buf     []byte // of a number
	writing bool   // else events are only counted
	events  int
	size    int // bytes of names and stacks

	waiting, incomplete, empty int32 // indices of names

	begin, end, instant string // how the events of the current track begin, up to the time
}

// traceName is the JSON of a slice for its function. Events at the end of a slice repeat the name,
// because speedscope, which reads traces too, needs the name.
type traceName struct {
	text, rest string
	place      string // arguments with the function's place in its source; empty: not known
}

func (n *traceName) name() string { return `"name":` + n.text }

// begin is the text after the name at the start of a slice.
func (n *traceName) begin() string {
	if n.place == "" {
		return n.rest
	}
	return n.rest + `,"args":{` + n.place + "}"
}

func traceNameOf(name, category, module string) traceName {
	if module != "" {
		category += "," + strings.ReplaceAll(module, ",", "_")
	}
	out := traceName{text: jsonwriter.String(name), rest: `,"cat":` + jsonwriter.String(category)}
	if name == waitingFrame {
		out.rest += `,"cname":"thread_state_sleeping"` // grey
	}
	return out
}

// modeOffset makes the process and thread ids of the modes differ. Real ids are less
// (PID_MAX_LIMIT in the kernel's include/linux/threads.h).
const modeOffset = 1 << 22

func (e *traceEncoder) pid(process int32, m profile.Mode) int {
	return e.r.Processes[process].PID + int(m)*modeOffset
}

// tid returns the thread's id in the trace. A thread without an id gets a unique one.
func (e *traceEncoder) tid(t *track) int {
	id := e.r.Threads[t.thread].OSThreadID
	if id == 0 {
		id = len(profile.Modes)*modeOffset + int(t.thread)
	}
	return id + int(t.mode)*modeOffset
}

// metadata writes an event that describes a process or thread.
func (e *traceEncoder) metadata(name, ids, args string) {
	e.next()
	e.c.Text(`{"ph":"M","name":"` + name + `",` + ids + `,"args":{` + args + `}}`)
}

// next begins the next event.
func (e *traceEncoder) next() {
	if e.events++; e.events > 1 {
		e.c.Text(",")
	}
	e.c.Text("\n")
}

// slice writes an event that begins or ends a slice.
func (e *traceEncoder) slice(start string, at time.Duration, name, rest string) {
	if !e.writing {
		e.events++
		e.size += len(name) + len(rest)
		return
	}
	e.next()
	e.c.Text(start)
	us, ns := int64(at/time.Microsecond), int64(at%time.Microsecond)
	e.buf = append(strconv.AppendInt(e.buf[:0], us, 10),
		'.', byte('0'+ns/100), byte('0'+ns/10%10), byte('0'+ns%10), ',')
	e.c.Bytes(e.buf)
	e.c.Text(name)
	e.c.Text(rest)
	e.c.Text("}")
}

// processes writes the names of the shown processes.
func (e *traceEncoder) processes(all []*track) {
	named := map[int]bool{}
	for _, t := range all {
		p := e.r.Threads[t.thread].Process
		pid := e.pid(p, t.mode)
		if named[pid] {
			continue
		}
		named[pid] = true
		name := e.r.Processes[p].Program()
		if name == "" {
			name = "process"
		}
		name += " (" + strconv.Itoa(e.r.Processes[p].PID) + ")" + modeSuffix(t.mode)
		ids := `"pid":` + strconv.Itoa(pid)
		e.metadata("process_name", ids, `"name":`+jsonwriter.String(name))
		e.metadata("process_sort_index", ids, `"sort_index":`+strconv.Itoa(len(named)))
	}
}

// track writes all events of a track.
func (e *traceEncoder) track(t *track, order int) {
	ids := fmt.Sprintf(`"pid":%d,"tid":%d`, e.pid(e.r.Threads[t.thread].Process, t.mode), e.tid(t))
	e.metadata("thread_name", ids, `"name":`+jsonwriter.String(display.Thread(&e.r.Threads[t.thread])))
	e.metadata("thread_sort_index", ids, `"sort_index":`+strconv.Itoa(order))
	e.begin, e.end = `{"ph":"B",`+ids+`,"ts":`, `{"ph":"E",`+ids+`,"ts":`
	e.instant = `{"ph":"i","s":"t",` + ids + `,"ts":`
	e.slices(t)
}

// slices writes the slices of a track as pairs of events: begin and end.
func (e *traceEncoder) slices(t *track) {
	if !t.lasts() {
		e.instants(t)
		return
	}
	var open, next []int32
	end := time.Duration(0)
	for s := range t.spans() {
		if s.start > end {
			e.close(open, 0, end)
			open = open[:0]
		}
		next = e.frames(&s, next)
		same := 0
		for same < len(open) && same < len(next) && open[same] == next[same] {
			same++
		}
		e.close(open, same, s.start)
		for _, f := range next[same:] {
			e.slice(e.begin, s.start, e.names[f].name(), e.names[f].begin())
		}
		open, next = next, open
		end = s.end
	}
	e.close(open, 0, end)
}

// instants writes the samples of a track as instants: events without a duration.
func (e *traceEncoder) instants(t *track) {
	var stack []int32
	for _, s := range t.samples {
		stack = path(e.r, s.Node, stack)
		if s.Incomplete {
			stack = slices.Insert(stack, 0, e.incomplete)
		}
		if !e.writing {
			e.events += 1 + len(stack)/2 // they take as many bytes as the instant
			for _, f := range stack {
				e.size += len(e.names[f].text)
			}
			continue
		}
		name := e.names[e.empty]
		if n := len(stack); n > 0 {
			name = e.names[stack[n-1]]
		}
		e.slice(e.instant, s.At, name.name(), name.rest+e.arguments(s, stack))
	}
}

// arguments returns the arguments of an instant as JSON, after a comma.
func (e *traceEncoder) arguments(s *profile.Sample, stack []int32) string {
	var b strings.Builder
	b.WriteString(`,"args":{`)
	if s.Mode.Unit() == profile.Bytes {
		fmt.Fprintf(&b, `"bytes":%d,`, s.Weight)
	}
	if l := e.lineOf(s.Node); l != nil {
		fmt.Fprintf(&b, `"file":%s,"line":%d,`, jsonwriter.String(l.File), l.Line)
	}
	fmt.Fprintf(&b, `"%s":%d,"stack":[`, display.EventNames[s.Mode][1], s.Events)
	for i, f := range slices.Backward(stack) {
		b.WriteString(e.names[f].text)
		if i > 0 {
			b.WriteByte(',')
		}
	}
	b.WriteString("]}")
	return b.String()
}

// lineOf returns the line of the frame nearest to the leaf with a line; nil: there is none.
func (e *traceEncoder) lineOf(node int32) *snapshot.SourceLine {
	for l := range e.r.Stack(node) {
		if line := e.r.SourceLine(l); line != nil {
			return line
		}
	}
	return nil
}

// close ends all open slices but the first keep, the innermost first.
func (e *traceEncoder) close(open []int32, keep int, at time.Duration) {
	for _, f := range slices.Backward(open[keep:]) {
		e.slice(e.end, at, e.names[f].name(), "")
	}
}

// frames returns the slices of a sample, the outermost first.
func (e *traceEncoder) frames(s *span, buf []int32) []int32 {
	buf = path(e.r, s.Node, buf)
	if s.Incomplete {
		buf = slices.Insert(buf, 0, e.incomplete)
	}
	if s.Mode == profile.Wall && s.State == profile.Waiting {
		buf = append(buf, e.waiting)
	}
	return buf
}
