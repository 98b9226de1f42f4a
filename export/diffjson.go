package export

import (
	"io"

	"clrsnap/profile"
)

// DifferenceJSON writes what Difference shows as one JSON document and a newline.
// The schema is stable and described in docs/json.md.
func DifferenceJSON(w io.Writer, base, now *profile.Recording, o TopOptions) error {
	out := jsonDiff{Base: jsonRecordingOf(base), Now: jsonRecordingOf(now), Modes: []jsonModeDiff{}}
	for _, m := range o.modes(bothModes(base, now)) {
		d := profile.Compare(base, now, m)
		rows := largest(d, o.Sort)
		if o.Rows > 0 {
			rows = rows[:min(len(rows), o.Rows)]
		}
		mode := jsonModeDiff{m.String(), jsonTotalsOf(base, d.Base), jsonTotalsOf(now, d.Now), make([]jsonFunctionDiff, len(rows))}
		for i := range rows {
			mode.Functions[i] = jsonFunctionDiff{jsonFunctionOf(rows[i].Function), jsonShiftOf(d, &rows[i].Self), jsonShiftOf(d, &rows[i].Total)}
		}
		out.Modes = append(out.Modes, mode)
	}
	return encodeJSON(w, &out)
}

type jsonDiff struct {
	Base  jsonRecording  `json:"base"`
	Now   jsonRecording  `json:"now"`
	Modes []jsonModeDiff `json:"modes"`
}

type jsonModeDiff struct {
	Mode      string             `json:"mode"`
	Base      jsonModeTotals     `json:"base"`
	Now       jsonModeTotals     `json:"now"`
	Functions []jsonFunctionDiff `json:"functions"`
}

type jsonFunctionDiff struct {
	jsonFunction
	Flat jsonShift `json:"flat"`
	Cum  jsonShift `json:"cum"`
}

type jsonShift struct {
	Base   jsonAmount `json:"base"`
	Now    jsonAmount `json:"now"`
	Change float64    `json:"change"`
	Noise  bool       `json:"noise"`
}

func jsonShiftOf(d *profile.Diff, s *profile.Shift) jsonShift {
	return jsonShift{jsonAmountOf(d.Base, &s.Base), jsonAmountOf(d.Now, &s.Now), s.Change(), s.Noise}
}
