package export

import (
	"encoding/json"
	"io"
	"time"

	"clrsnap/profile"
)

// TopJSON writes what Top shows as one JSON document and a newline; colours, width
// and ByThread do not matter. The schema is stable and described in docs/json.md.
func TopJSON(w io.Writer, r *profile.Recording, o TopOptions) error {
	out := jsonTop{jsonRecording: jsonRecordingOf(r), Modes: []jsonModeTop{}}
	for _, m := range o.modes(modesOf(r)) {
		out.Modes = append(out.Modes, jsonModeTopOf(r, m, &o))
	}
	return encodeJSON(w, &out)
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // names are full of < and >
	return enc.Encode(v)
}

type jsonTop struct {
	jsonRecording
	Modes []jsonModeTop `json:"modes"`
}

type jsonRecording struct {
	Processes  []jsonProcess `json:"processes"`
	Start      string        `json:"start,omitempty"`
	Duration   float64       `json:"durationSeconds"`
	TargetCPU  float64       `json:"targetCpuSeconds,omitempty"`
	Processors int           `json:"processors,omitempty"`
	Notes      []string      `json:"notes"`
}

type jsonModeTop struct {
	jsonModeTotals
	Functions []jsonFunctionTop `json:"functions"`
	Threads   []jsonThreadTop   `json:"threads"`
}

type jsonModeTotals struct {
	Mode       string                     `json:"mode"`
	Rate       float64                    `json:"rate,omitempty"`
	Got        float64                    `json:"got,omitempty"`
	Lost       int                        `json:"lost,omitempty"`
	Late       int                        `json:"late,omitempty"`
	Total      jsonAmount                 `json:"total"`
	Incomplete float64                    `json:"incompleteSeconds,omitempty"`
	Origins    map[profile.Origin]float64 `json:"originSeconds"`
}

// jsonAmount is a profile.Part.
type jsonAmount struct {
	Share   float64 `json:"share"`
	Seconds float64 `json:"seconds"`
	Running float64 `json:"runningSeconds,omitempty"`
	Waiting float64 `json:"waitingSeconds,omitempty"`
	Samples int     `json:"samples"`
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
	Flat jsonAmount `json:"flat"`
	Cum  jsonAmount `json:"cum"`
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
	return jsonAmount{
		Share: t.Share(all.Weight), Seconds: all.Weight.Seconds(), Samples: all.Samples,
		Running: p[profile.Running].Weight.Seconds(), Waiting: p[profile.Waiting].Weight.Seconds(),
	}
}

func jsonTotalsOf(r *profile.Recording, t *profile.Totals) jsonModeTotals {
	s, _ := r.Mode(t.Mode)
	out := jsonModeTotals{
		Mode: t.Mode.String(), Rate: s.Rate, Got: s.Got, Lost: s.Lost, Late: s.Late,
		Total: jsonAmountOf(t, &t.All), Incomplete: t.Incomplete.Weight.Seconds(), Origins: map[profile.Origin]float64{},
	}
	for o, part := range t.Origins {
		out.Origins[o] = part.All().Weight.Seconds()
	}
	return out
}

func jsonFunctionOf(f *profile.Function) jsonFunction {
	return jsonFunction{Kind: f.Kind, Origin: f.Origin(), Method: f.Method, Display: f.Display, Signature: f.Signature, Module: f.Module}
}

func jsonModeTopOf(r *profile.Recording, m profile.Mode, o *TopOptions) jsonModeTop {
	t := r.Totals(m)
	rows, _ := hottest(t, o)
	out := jsonModeTop{jsonTotalsOf(r, t), make([]jsonFunctionTop, len(rows)), make([]jsonThreadTop, len(t.Threads))}
	for i := range rows {
		out.Functions[i] = jsonFunctionTop{jsonFunctionOf(&r.Functions[rows[i].Function]), jsonAmountOf(t, &rows[i].Self), jsonAmountOf(t, &rows[i].Total)}
	}
	for i := range t.Threads {
		x := &r.Threads[t.Threads[i].Thread]
		out.Threads[i] = jsonThreadTop{int(x.Process), x.OSThreadID, x.ManagedThreadID, x.Name, x.Role, jsonAmountOf(t, &t.Threads[i].Total)}
	}
	return out
}
