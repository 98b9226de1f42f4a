package report

import (
	"io"
	"strconv"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// JSON writes a snapshot as one JSON document and a newline. The schema is stable and
// described in docs/json.md. JSON encodes one frame at a time, because a snapshot can
// have thousands of threads, and a stack hundreds of thousands of frames.
func JSON(w io.Writer, s *snapshot.Snapshot) error {
	c := jsonwriter.New(w)
	c.Open(jsonSnapshot{
		Process: jsonProcess{
			PID: s.Process.PID, Command: s.Process.Command,
			Runtime: jsonRuntimeOf(&s.Process.Runtime), Core: jsonCoreOf(s.Process.Core),
		},
		CapturedAt: s.CapturedAt.UTC().Format(time.RFC3339Nano),
		Stops:      jsonStopsOf(s),
		Pauses:     jsonPausesOf(s),
		Registers:  jsonRegistersOf(s),
		Unlisted:   s.Unlisted,
		Partial:    s.HoldsPartial,
	})
	c.Text(`,"threads":`)
	var buf []snapshot.Frame
	var f jsonFrame
	c.List(len(s.Threads), func(i int) {
		t := &s.Threads[i]
		c.Open(jsonThreadOf(t))
		c.Text(`,"frames":`)
		frames := t.Stack(&buf)
		c.List(len(frames), func(i int) {
			f.set(&frames[i])
			c.Value(&f)
		})
		c.Text("}")
	})
	c.Text("}\n")
	return c.Flush()
}

// jsonSnapshot has the fields before the threads, jsonThread the fields before the
// frames.
type jsonSnapshot struct {
	Process    jsonProcess `json:"process"`
	CapturedAt string      `json:"capturedAt"`
	Stops      *int        `json:"stops,omitempty"`
	Pauses     *jsonPauses `json:"pauses,omitempty"`

	Registers *jsonRegisters `json:"registers,omitempty"`

	Unlisted int  `json:"unlisted,omitempty"`
	Partial  bool `json:"holdsPartial,omitempty"`
}

type jsonRegisters struct {
	From   string `json:"from"`
	Reason string `json:"reason,omitempty"`
}

func jsonRegistersOf(s *snapshot.Snapshot) *jsonRegisters {
	r := &s.Registers
	if r.From == "" {
		return nil
	}
	return &jsonRegisters{From: r.From, Reason: r.Reason}
}

// jsonStopsOf counts all stops; nil: of a core dump.
func jsonStopsOf(s *snapshot.Snapshot) *int {
	if s.Process.Core != nil {
		return nil
	}
	n := len(s.Stops) + s.Released
	return &n
}

type jsonPauses struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Microseconds"`
	P99   float64 `json:"p99Microseconds"`
	Max   float64 `json:"maxMicroseconds"`

	Released int `json:"released,omitempty"`
}

func jsonPausesOf(s *snapshot.Snapshot) *jsonPauses {
	p := s.Pauses()
	if p.Count == 0 && s.Released == 0 {
		return nil
	}
	return &jsonPauses{
		Released: s.Released, Count: p.Count,
		P50: microseconds(p.P50), P99: microseconds(p.P99), Max: microseconds(p.Max),
	}
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

type jsonProcess struct {
	PID     int          `json:"pid"`
	Command string       `json:"command,omitempty"`
	Runtime *jsonRuntime `json:"runtime,omitempty"`
	Core    *jsonCore    `json:"core,omitempty"`
}

type jsonCore struct {
	Path    string      `json:"path"`
	Writer  string      `json:"writer,omitempty"`
	Signal  *jsonSignal `json:"signal,omitempty"`
	Missing []string    `json:"missing,omitempty"`
}

type jsonSignal struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`
	Reason  string `json:"reason,omitempty"`
	Address string `json:"address,omitempty"`
}

type jsonException struct {
	Type    string           `json:"type"`
	Message string           `json:"message,omitempty"`
	HResult string           `json:"hresult,omitempty"`
	Frames  []jsonTraceFrame `json:"frames,omitempty"`
	More    int              `json:"moreFrames,omitempty"`
	Remote  string           `json:"remote,omitempty"`
	Inner   *jsonException   `json:"inner,omitempty"`
	Others  []*jsonException `json:"others,omitempty"`

	NoMessage bool   `json:"noMessage,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	NoFrames  string `json:"noFrames,omitempty"`
	Uncertain string `json:"uncertain,omitempty"`
}

type jsonTraceFrame struct {
	*jsonFrame
	Hidden    bool `json:"hidden,omitempty"`
	EndsTrace bool `json:"endsTrace,omitempty"`
}

type jsonFailFast struct {
	Message   string         `json:"message,omitempty"`
	NoMessage bool           `json:"noMessage,omitempty"`
	Exception *jsonException `json:"exception,omitempty"`
}

func jsonFailFastOf(f *snapshot.FailFast) *jsonFailFast {
	if f == nil {
		return nil
	}
	return &jsonFailFast{Message: f.Message, NoMessage: f.Unknown, Exception: jsonExceptionOf(f.Exception)}
}

func jsonCoreOf(c *snapshot.Core) *jsonCore {
	if c == nil {
		return nil
	}
	out := &jsonCore{Path: c.Path, Writer: c.Writer, Missing: c.Missing}
	if s := c.Signal; s != nil {
		out.Signal = &jsonSignal{Number: s.Number, Name: s.Name, Reason: s.Reason}
		if s.HasAddress {
			out.Signal.Address = hex(s.Address)
		}
	}
	return out
}

func jsonExceptionOf(e *snapshot.ExceptionInfo) *jsonException {
	if e == nil {
		return nil
	}
	return &jsonException{
		Type: e.Type, Message: e.Message, NoMessage: e.NoMessage, HResult: hex(uint64(uint32(e.HResult))),
		Frames: jsonTraceOf(e.Frames), More: e.More, Remote: e.Remote,
		Inner: jsonExceptionOf(e.Inner), Others: jsonExceptionsOf(e.Others),
		Truncated: e.LeftOut || e.CutMessage, NoFrames: e.NoFrames, Uncertain: e.Uncertain,
	}
}

func jsonExceptionsOf(all []*snapshot.ExceptionInfo) (out []*jsonException) {
	for _, e := range all {
		out = append(out, jsonExceptionOf(e))
	}
	return out
}

func jsonTraceOf(frames []snapshot.TraceFrame) (out []jsonTraceFrame) {
	for i := range frames {
		f := &frames[i]
		j := jsonFrameOf(&f.Frame)
		j.IP, j.SP = address(f.IP), address(f.SP)
		if f.IP == 0 {
			j.Offset = nil
		}
		out = append(out, jsonTraceFrame{j, f.Hidden, f.EndsTrace})
	}
	return out
}

type jsonRuntime struct {
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Shape   string `json:"shape,omitempty"`
}

type jsonThread struct {
	OSThreadID      int              `json:"osThreadId"`
	ManagedThreadID int              `json:"managedThreadId,omitempty"`
	ThreadID        string           `json:"threadId,omitempty"`
	Name            string           `json:"name,omitempty"`
	Role            string           `json:"role,omitempty"`
	State           string           `json:"state,omitempty"`
	Kernel          string           `json:"kernel,omitempty"`
	Mode            string           `json:"mode,omitempty"`
	Idle            snapshot.Idle    `json:"idle,omitempty"`
	Wait            *jsonWait        `json:"wait,omitempty"`
	Holds           []*jsonWait      `json:"holds,omitempty"`
	Pause           float64          `json:"pauseMicroseconds,omitempty"`
	Crashed         bool             `json:"crashed,omitempty"`
	Exception       *jsonException   `json:"exception,omitempty"`
	Handling        []*jsonException `json:"handling,omitempty"`
	FailFast        *jsonFailFast    `json:"failFast,omitempty"`
	Complete        bool             `json:"complete"`
	Error           string           `json:"error,omitempty"`
}

type jsonFrame struct {
	Kind       snapshot.Kind   `json:"kind"`
	FunctionID string          `json:"functionId,omitempty"`
	IP         string          `json:"ip,omitempty"` // omitted in traces only: elsewhere IP and SP are always known
	SP         string          `json:"sp,omitempty"`
	Method     string          `json:"method,omitempty"`
	Display    string          `json:"display,omitempty"`
	Signature  string          `json:"signature,omitempty"`
	Module     string          `json:"module,omitempty"`
	Origin     snapshot.Origin `json:"origin,omitempty"`
	Offset     *uint64         `json:"offset,omitempty"`
	Inlined    bool            `json:"inlined,omitempty"`
	Tier       string          `json:"tier,omitempty"`
	Nearest    string          `json:"nearest,omitempty"`
	Unproved   bool            `json:"unproved,omitempty"`

	Generics snapshot.Generics `json:"generics,omitempty"`
	Waiter   *jsonOwner        `json:"waiter,omitempty"`

	File        string `json:"file,omitempty"`
	Line        int    `json:"line,omitempty"`
	Column      int    `json:"column,omitempty"`
	URL         string `json:"url,omitempty"`
	Approximate bool   `json:"approximate,omitempty"`
}

func jsonRuntimeOf(r *snapshot.Runtime) *jsonRuntime {
	if *r == (snapshot.Runtime{}) {
		return nil
	}
	return &jsonRuntime{Version: r.Version, Path: r.Path, Shape: r.Shape}
}

func jsonThreadOf(t *snapshot.Thread) jsonThread {
	return jsonThread{
		OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, ThreadID: address(t.ThreadID),
		Name: t.Name, Role: t.Role, State: t.State, Kernel: t.Kernel, Mode: t.Mode, Idle: t.Idle(),
		Wait: jsonWaitOf(t.Wait), Holds: jsonHoldsOf(t.Holds), Pause: microseconds(t.Pause),
		Crashed: t.Crashed, Exception: jsonExceptionOf(t.Exception),
		Handling: jsonExceptionsOf(t.Handling), FailFast: jsonFailFastOf(t.FailFast),
		Complete: t.Complete, Error: t.Error,
	}
}

func jsonFrameOf(f *snapshot.Frame) *jsonFrame {
	out := new(jsonFrame)
	out.set(f)
	return out
}

// set makes j the frame f.
func (j *jsonFrame) set(f *snapshot.Frame) {
	*j = jsonFrame{
		Kind: f.Kind, FunctionID: address(f.FunctionID), IP: hex(f.IP), SP: hex(f.SP),
		Method: f.Method, Display: f.Display, Signature: f.Signature, Module: f.Module, Tier: f.Tier,
		Nearest: f.Nearest, Generics: f.Generics, Inlined: f.Inlined, Unproved: f.Unproved,
	}
	if f.Kind == snapshot.Managed || f.Kind == snapshot.Async {
		j.Origin = f.Origin()
	}
	if w := f.Waiter; w != nil {
		j.Waiter = jsonOwnerOf(w)
	}
	if l := f.Line; l != nil {
		j.File, j.Line, j.Column, j.URL, j.Approximate = l.File, l.Line, l.Column, l.URL, l.Approximate
	}
	if f.Kind == snapshot.Async {
		j.IP, j.SP = "", ""
	} else if !f.Inlined && (f.Module != "" || f.Display != "") { // otherwise the offset has no start
		j.Offset = &f.Offset
	}
}

// address returns v as hex does, or "" for 0, which is no address.
func address(v uint64) string {
	if v == 0 {
		return ""
	}
	return hex(v)
}

func hex(v uint64) string {
	var b [18]byte
	return string(strconv.AppendUint(append(b[:0], "0x"...), v, 16))
}
