package report

import (
	"io"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TopJSON writes what Top shows as one JSON document and a newline. Of the options,
// Color, Width and ByThread have no effect. The schema is stable and described in
// docs/json.md.
func TopJSON(w io.Writer, r *profile.Recording, o TopOptions) error {
	c := jsonwriter.New(w)
	c.Open(jsonRecordingOf(r))
	modes := r.RecordedModes()
	c.Text(`,"modes":`)
	c.List(len(modes), func(i int) { modeTop(c, r, modes[i], &o) })
	c.Text("}\n")
	return c.Flush()
}

// modeTop writes one mode: its totals, its functions and its threads.
func modeTop(c *jsonwriter.Writer, r *profile.Recording, m profile.Mode, o *TopOptions) {
	t := r.Totals(m)
	rows, _ := hottest(t.Functions, o)
	c.Open(jsonTotalsOf(r, t))
	if idle := r.IdleTotals(m); len(idle) > 0 {
		c.Text(`,"idle":`)
		c.List(len(idle), func(i int) { c.Value(jsonIdle{idle[i].Idle, jsonAmountOf(t, &idle[i].Total)}) })
	}
	lines := r.LineTotals(m)
	c.Text(`,"functions":`)
	c.List(len(rows), func(i int) {
		f := jsonFunctionTop{
			jsonFunction: jsonFunctionOf(&r.Functions[rows[i].Function]),
			Lines:        jsonLinesOf(r, t, lines[rows[i].Function]),
			Flat:         jsonAmountOf(t, &rows[i].Self, rows[i].SelfVariance),
			Cum:          jsonAmountOf(t, &rows[i].Total, rows[i].TotalVariance),
		}
		if m.OfEvents() {
			direct := jsonAmountOf(t, &rows[i].Direct, rows[i].DirectVariance)
			f.Direct = &direct
		}
		c.Value(f)
	})
	if m == profile.Exception && (len(r.Messages.Counts) > 0 || r.Messages.Others > 0) {
		c.Text(`,"messages":`)
		c.List(len(r.Messages.Counts), func(i int) { c.Value(jsonMessage(r.Messages.Counts[i])) })
		c.Field("otherMessages", r.Messages.Others)
	}
	c.Text(`,"threads":`)
	idle := idleByThread(r, m)
	c.List(len(t.Threads), func(i int) {
		x := &r.Threads[t.Threads[i].Thread]
		out := jsonThreadTop{
			Process: int(x.Process), OSThreadID: x.OSThreadID, ManagedThreadID: x.ManagedThreadID,
			Name: x.Name, Role: x.Role,
			Total: jsonAmountOf(t, &t.Threads[i].Total, t.Threads[i].Variance),
		}
		if part := idle[t.Threads[i].Thread]; part != nil {
			amount := jsonAmountOf(t, part)
			out.Idle = &amount
		}
		c.Value(out)
	})
	if m == profile.Wall || m.OfWaits() {
		waitList(c, r, t, o)
	}
	if m == profile.Contention {
		lockList(c, r, t, o)
	}
	c.Text("}")
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
	Mode     string         `json:"mode"`
	Unit     string         `json:"unit"`
	Rate     float64        `json:"rate,omitempty"`
	Got      float64        `json:"got,omitempty"`
	Source   profile.Source `json:"source,omitempty"`
	Lost     int            `json:"lost,omitempty"`
	Missed   int            `json:"missed,omitempty"`
	Late     int            `json:"late,omitempty"`
	Seen     int64          `json:"seen,omitempty"`
	Rethrown int64          `json:"rethrown,omitempty"`
	Every    float64        `json:"every,omitempty"`
	Total    jsonAmount     `json:"total"`

	// Of each of these, only the field for the unit is set.
	IncompleteSeconds float64                     `json:"incompleteSeconds,omitempty"`
	IncompleteBytes   int64                       `json:"incompleteBytes,omitempty"`
	IncompleteCount   int64                       `json:"incompleteCount,omitempty"`
	OriginSeconds     map[snapshot.Origin]float64 `json:"originSeconds,omitzero"`
	OriginBytes       map[snapshot.Origin]int64   `json:"originBytes,omitzero"`
	OriginCount       map[snapshot.Origin]int64   `json:"originCount,omitzero"`
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

	// Standard errors; 0: the number is exact.
	ShareError  float64 `json:"shareError,omitempty"`
	BytesError  float64 `json:"bytesError,omitempty"`
	CountError  float64 `json:"countError,omitempty"`
	EventsError float64 `json:"eventsError,omitempty"`
}

type jsonFunction struct {
	Kind      snapshot.Kind   `json:"kind"`
	Origin    snapshot.Origin `json:"origin"`
	Method    string          `json:"method,omitempty"`
	Display   string          `json:"display,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Module    string          `json:"module,omitempty"`
	Fate      string          `json:"fate,omitempty"`
}

type jsonFunctionTop struct {
	jsonFunction
	Flat   jsonAmount  `json:"flat"`
	Direct *jsonAmount `json:"direct,omitempty"`
	Cum    jsonAmount  `json:"cum"`

	Lines []jsonLineTop `json:"lines,omitempty"`
}

type jsonThreadTop struct {
	Process         int         `json:"process"`
	OSThreadID      int         `json:"osThreadId,omitempty"`
	ManagedThreadID int         `json:"managedThreadId,omitempty"`
	Name            string      `json:"name,omitempty"`
	Role            string      `json:"role,omitempty"`
	Total           jsonAmount  `json:"total"`
	Idle            *jsonAmount `json:"idle,omitempty"` // of Total
}

// jsonIdle is a profile.IdleTotal.
type jsonIdle struct {
	Kind  snapshot.Idle `json:"kind"`
	Total jsonAmount    `json:"total"`
}

// idleByThread sums up a mode's samples of idle threads by thread, as an index in Recording.Threads.
func idleByThread(r *profile.Recording, m profile.Mode) map[int32]*profile.Part {
	out := map[int32]*profile.Part{}
	for _, samples := range r.IdleSamples() {
		for _, i := range samples {
			x := &r.Samples[i]
			if x.Mode != m {
				continue
			}
			if out[x.Thread] == nil {
				out[x.Thread] = &profile.Part{}
			}
			out[x.Thread][x.State].Add(profile.Amount{Weight: x.Weight, Events: x.Events, Samples: int(x.Count)})
		}
	}
	return out
}

// jsonMessage is a profile.MessageCount.
type jsonMessage struct {
	Type   string `json:"type"`
	Module string `json:"module,omitempty"`
	Text   string `json:"text"`
	Cut    bool   `json:"cut,omitempty"`
	Count  int64  `json:"count"`
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

// jsonAmountOf is an amount with its standard errors. of is the amount's variance; without a
// variance see profile.Totals.Error.
func jsonAmountOf(t *profile.Totals, p *profile.Part, of ...profile.Variance) jsonAmount {
	all := p.All()
	e := t.Error(all, of...)
	out := jsonAmount{
		Share: t.Share(all.Weight), Events: all.Events, Samples: all.Samples,
		ShareError: e.Share, EventsError: e.Events,
	}
	switch t.Mode.Unit() {
	case profile.Nanoseconds:
		seconds := secondsOf(all.Weight)
		out.Seconds = &seconds
		out.Running, out.Waiting = secondsOf(p[profile.Running].Weight), secondsOf(p[profile.Waiting].Weight)
	case profile.Bytes:
		out.Bytes, out.BytesError = &all.Weight, e.Weight
	case profile.Count:
		out.Count, out.CountError = &all.Weight, e.Weight
	}
	return out
}

func jsonTotalsOf(r *profile.Recording, t *profile.Totals) jsonModeTotals {
	s, _ := r.Mode(t.Mode)
	out := jsonModeTotals{
		Mode: t.Mode.String(), Rate: s.Rate, Got: s.Got, Source: s.Source, Lost: s.Lost, Missed: s.Missed, Late: s.Late,
		Seen: s.Seen, Rethrown: s.Rethrown,
		Total: jsonAmountOf(t, &t.All, t.Variance),
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

func originWeights[T any](t *profile.Totals, as func(int64) T) map[snapshot.Origin]T {
	out := map[snapshot.Origin]T{}
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
		Fate: f.Fate,
	}
}

func secondsOf(w int64) float64 { return time.Duration(w).Seconds() }
