package report

import (
	"io"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// TasksJSON writes what the async methods of a process wait for as one JSON document and a newline. The schema is
// stable and described in docs/json.md. Of the options only Rows has an effect.
func TasksJSON(w io.Writer, t *snapshot.Tasks, o TasksOptions) error {
	c := jsonwriter.New(w)
	c.Open(jsonTasks{
		Process: jsonProcess{
			PID: t.Process.PID, Command: t.Process.Command,
			Runtime: jsonRuntimeOf(&t.Process.Runtime), Core: jsonCoreOf(t.Process.Core),
		},
		CapturedAt: t.CapturedAt.UTC().Format(time.RFC3339Nano), Milliseconds: float64(t.Duration.Microseconds()) / 1e3,
		Methods: t.Methods, Unproven: t.Unproven, Unread: t.Unread, ConsistentShare: t.ConsistentShare,
		Partial: t.Partial, Stop: jsonHeapStopOf(t.Stop),
	})
	chains := firstOf(t.Chains, o.Rows)
	c.Text(",\n\"chains\":")
	c.List(len(chains), func(i int) { c.Text("\n"); c.Value(jsonChainOf(&chains[i])) })
	if t.Pool != nil {
		c.Field("pool", jsonPoolOf(t.Pool))
	}
	timers := firstOf(t.Timers, o.Rows)
	c.Text(",\n\"timers\":")
	c.List(len(timers), func(i int) {
		x := &timers[i]
		c.Text("\n")
		c.Value(jsonTimer{
			Count: x.Count, Callback: x.Callback, Due: milliseconds(x.Due, x.HasDue), Period: x.Period.Milliseconds(),
		})
	})
	if faults := firstOf(t.Faults, o.Rows); len(faults) > 0 {
		var list []jsonFault
		for i := range faults {
			f := &faults[i]
			list = append(list, jsonFault{f.Count, f.Method, f.Service, f.Observed, jsonExceptionOf(f.Exception)})
		}
		c.Field("faults", list)
	}
	if len(t.Ended) > 0 {
		c.Field("endedServices", t.Ended)
	}
	c.Text("}\n")
	return c.Flush()
}

type jsonFault struct {
	Count     int            `json:"count"`
	Method    string         `json:"method,omitempty"`
	Service   string         `json:"service,omitempty"`
	Observed  bool           `json:"observed"`
	Exception *jsonException `json:"exception"`
}

type jsonTasks struct {
	Process         jsonProcess   `json:"process"`
	CapturedAt      string        `json:"capturedAt"`
	Milliseconds    float64       `json:"durationMilliseconds"`
	Methods         int           `json:"methods"`
	Unproven        int           `json:"unproven,omitempty"`
	Unread          int           `json:"unread,omitempty"`
	ConsistentShare float64       `json:"consistentShare"`
	Partial         bool          `json:"partial,omitempty"`
	Stop            *jsonHeapStop `json:"stop,omitempty"`
}

type jsonChain struct {
	Count    int                `json:"count"`
	State    snapshot.TaskState `json:"state"`
	WaitsFor *jsonAwaited       `json:"waitsFor,omitempty"`
	Circular bool               `json:"circular,omitempty"`
	Threads  []jsonOwner        `json:"threads,omitempty"`
	Frames   []*jsonFrame       `json:"frames"`
}

type jsonAwaited struct {
	Kind   snapshot.AwaitedKind `json:"kind"`
	Object string               `json:"object,omitempty"`
	Type   string               `json:"type,omitempty"`
	Target string               `json:"target,omitempty"`
	Due    *int64               `json:"dueMilliseconds,omitempty"`
}

type jsonPool struct {
	Workers int        `json:"workers"`
	Idle    int        `json:"idle"`
	Minimum int        `json:"minimum"`
	Maximum int        `json:"maximum"`
	Target  int        `json:"target"`
	Queued  *int       `json:"queued,omitempty"`
	Work    []jsonWork `json:"work,omitempty"`
}

type jsonWork struct {
	Count int    `json:"count"`
	What  string `json:"what"`
}

type jsonTimer struct {
	Count    int    `json:"count"`
	Callback string `json:"callback"`
	Due      *int64 `json:"dueMilliseconds,omitempty"`
	Period   int64  `json:"periodMilliseconds,omitempty"`
}

func jsonChainOf(c *snapshot.TaskChain) jsonChain {
	out := jsonChain{Count: c.Count, State: c.State, Circular: c.Circular, Frames: []*jsonFrame{}}
	for i := range c.Frames {
		out.Frames = append(out.Frames, jsonFrameOf(&c.Frames[i]))
	}
	out.Threads, out.WaitsFor = jsonOwnersOf(c.Threads), jsonAwaitedOf(c.WaitsFor)
	return out
}

func jsonAwaitedOf(w *snapshot.Awaited) *jsonAwaited {
	if w == nil {
		return nil
	}
	return &jsonAwaited{
		Kind: w.Kind, Object: address(w.Object), Type: w.Type, Target: w.Target, Due: milliseconds(w.Due, w.HasDue),
	}
}

func jsonPoolOf(p *snapshot.Pool) jsonPool {
	out := jsonPool{Workers: p.Workers, Idle: p.Idle, Minimum: p.Minimum, Maximum: p.Maximum, Target: p.Target}
	if p.HasWork {
		out.Queued = &p.Queued
	}
	for _, w := range p.Work {
		out.Work = append(out.Work, jsonWork(w))
	}
	return out
}

// milliseconds is a time in ms; nil: not known.
func milliseconds(d time.Duration, known bool) *int64 {
	if !known {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
