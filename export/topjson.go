package export

import (
	"bufio"
	"io"
	"time"

	"clrsnap/profile"
)

// TopJSON writes what Top shows as one JSON document and a newline. Of the options,
// Color, Width and ByThread have no effect. The schema is stable and described in
// docs/json.md.
func TopJSON(w io.Writer, r *profile.Recording, o TopOptions) error {
	c := columnWriter{w: bufio.NewWriterSize(w, 1<<16)}
	c.open(jsonRecordingOf(r))
	modes := o.modes(modesOf(r))
	c.text(`,"modes":`)
	c.list(len(modes), func(i int) { c.modeTop(r, modes[i], &o) })
	c.text("}\n")
	return c.flush()
}

// modeTop writes one mode: its totals, its functions and its threads.
func (c *columnWriter) modeTop(r *profile.Recording, m profile.Mode, o *TopOptions) {
	t := r.Totals(m)
	rows, _ := hottest(t.Functions, o)
	c.open(jsonTotalsOf(r, t))
	c.text(`,"functions":`)
	c.list(len(rows), func(i int) {
		f := jsonFunctionTop{
			jsonFunction: jsonFunctionOf(&r.Functions[rows[i].Function]),
			Flat:         jsonAmountOf(t, &rows[i].Self), Cum: jsonAmountOf(t, &rows[i].Total),
		}
		if m.OfEvents() {
			direct := jsonAmountOf(t, &rows[i].Direct)
			f.Direct = &direct
		}
		c.value(f)
	})
	c.text(`,"threads":`)
	c.list(len(t.Threads), func(i int) {
		x := &r.Threads[t.Threads[i].Thread]
		total := jsonAmountOf(t, &t.Threads[i].Total)
		c.value(jsonThreadTop{int(x.Process), x.OSThreadID, x.ManagedThreadID, x.Name, x.Role, total})
	})
	c.text("}")
}

type jsonRecording struct {
	Processes  []jsonProcess `json:"processes"`
	Start      string        `json:"start,omitempty"`
	Duration   float64       `json:"durationSeconds"`
	TargetCPU  float64       `json:"targetCpuSeconds,omitempty"`
	Processors int           `json:"processors,omitempty"`
	Notes      []string      `json:"notes"`
}

type jsonModeTotals struct {
	Mode   string         `json:"mode"`
	Unit   string         `json:"unit"`
	Rate   float64        `json:"rate,omitempty"`
	Got    float64        `json:"got,omitempty"`
	Source profile.Source `json:"source,omitempty"`
	Lost   int            `json:"lost,omitempty"`
	Late   int            `json:"late,omitempty"`
	Seen   int64          `json:"seen,omitempty"`
	Every  float64        `json:"every,omitempty"`
	Total  jsonAmount     `json:"total"`

	// Of each of these, only the field that is named after the unit is set.
	IncompleteSeconds float64                    `json:"incompleteSeconds,omitempty"`
	IncompleteBytes   int64                      `json:"incompleteBytes,omitempty"`
	IncompleteCount   int64                      `json:"incompleteCount,omitempty"`
	OriginSeconds     map[profile.Origin]float64 `json:"originSeconds,omitzero"`
	OriginBytes       map[profile.Origin]int64   `json:"originBytes,omitzero"`
	OriginCount       map[profile.Origin]int64   `json:"originCount,omitzero"`
}

// jsonAmount is a profile.Part. One of Seconds, Bytes and Count is set, depending on the unit.
type jsonAmount struct {
	Share   float64  `json:"share"`
	Seconds *float64 `json:"seconds,omitempty"`
	Running float64  `json:"runningSeconds,omitempty"`
	Waiting float64  `json:"waitingSeconds,omitempty"`
	Bytes   *int64   `json:"bytes,omitempty"`
	Count   *int64   `json:"count,omitempty"`
	Events  int64    `json:"events,omitempty"`
	Samples int      `json:"samples"`
}

type jsonFunction struct {
	Kind      profile.Kind   `json:"kind"`
	Origin    profile.Origin `json:"origin"`
	Method    string         `json:"method,omitempty"`
	Display   string         `json:"display,omitempty"`
	Signature string         `json:"signature,omitempty"`
	Module    string         `json:"module,omitempty"`
}

type jsonFunctionTop struct {
	jsonFunction
	Flat   jsonAmount  `json:"flat"`
	Direct *jsonAmount `json:"direct,omitempty"`
	Cum    jsonAmount  `json:"cum"`
}

type jsonThreadTop struct {
	Process         int        `json:"process"`
	OSThreadID      int        `json:"osThreadId,omitempty"`
	ManagedThreadID int        `json:"managedThreadId,omitempty"`
	Name            string     `json:"name,omitempty"`
	Role            string     `json:"role,omitempty"`
	Total           jsonAmount `json:"total"`
}

func jsonRecordingOf(r *profile.Recording) jsonRecording {
	out := jsonRecording{
		Processes: make([]jsonProcess, len(r.Processes)), Duration: r.Duration.Seconds(),
		TargetCPU: r.Cost.TargetCPU.Seconds(), Processors: r.Cost.Processors, Notes: append([]string{}, r.Notes...),
	}
	if !r.Start.IsZero() {
		out.Start = r.Start.UTC().Format(time.RFC3339Nano)
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		out.Processes[i] = jsonProcess{PID: p.PID, Command: p.Command, Runtime: jsonRuntimeOf(&p.Runtime)}
	}
	return out
}

func jsonAmountOf(t *profile.Totals, p *profile.Part) jsonAmount {
	all := p.All()
	out := jsonAmount{Share: t.Share(all.Weight), Events: all.Events, Samples: all.Samples}
	switch t.Mode.Unit() {
	case profile.Nanoseconds:
		seconds := secondsOf(all.Weight)
		out.Seconds = &seconds
		out.Running, out.Waiting = secondsOf(p[profile.Running].Weight), secondsOf(p[profile.Waiting].Weight)
	case profile.Bytes:
		out.Bytes = &all.Weight
	case profile.Count:
		out.Count = &all.Weight
	}
	return out
}

func jsonTotalsOf(r *profile.Recording, t *profile.Totals) jsonModeTotals {
	s, _ := r.Mode(t.Mode)
	out := jsonModeTotals{
		Mode: t.Mode.String(), Rate: s.Rate, Got: s.Got, Source: s.Source, Lost: s.Lost, Late: s.Late, Seen: s.Seen,
		Total: jsonAmountOf(t, &t.All),
	}
	switch t.Mode.Unit() {
	case profile.Nanoseconds:
		out.Unit, out.Every, out.IncompleteSeconds = "seconds", secondsOf(s.Every), secondsOf(t.Incomplete.Weight)
		out.OriginSeconds = originWeights(t, secondsOf)
	case profile.Bytes:
		out.Unit, out.Every, out.IncompleteBytes = "bytes", float64(s.Every), t.Incomplete.Weight
		out.OriginBytes = originWeights(t, asItIs)
	case profile.Count:
		out.Unit, out.Every, out.IncompleteCount = "count", float64(s.Every), t.Incomplete.Weight
		out.OriginCount = originWeights(t, asItIs)
	}
	return out
}

func originWeights[T any](t *profile.Totals, as func(int64) T) map[profile.Origin]T {
	out := map[profile.Origin]T{}
	for o, part := range t.Origins {
		out[o] = as(part.All().Weight)
	}
	return out
}

func asItIs(w int64) int64 { return w }

func jsonFunctionOf(f *profile.Function) jsonFunction {
	return jsonFunction{
		Kind: f.Kind, Origin: f.Origin(),
		Method: f.Method, Display: f.Display, Signature: f.Signature, Module: f.Module,
	}
}

func secondsOf(w int64) float64 { return time.Duration(w).Seconds() }
