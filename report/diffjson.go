package report

import (
	"io"

	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
)

// DiffJSON writes what Diff shows as one JSON document and a newline. Of the options,
// Color, Width and ByThread have no effect. The schema is stable and described in
// docs/json.md.
func DiffJSON(w io.Writer, base, now *profile.Recording, o TopOptions) error {
	c := jsonwriter.New(w)
	c.Open(jsonDiff{jsonRecordingOf(base), jsonRecordingOf(now)})
	modes := bothModes(base, now)
	c.Text(`,"modes":`)
	c.List(len(modes), func(i int) {
		d := profile.Compare(base, now, modes[i])
		rows := largest(d, o.Sort)
		if o.Rows > 0 {
			rows = rows[:min(len(rows), o.Rows)]
		}
		c.Open(jsonModeDiff{modes[i].String(), jsonTotalsOf(base, d.Base), jsonTotalsOf(now, d.Now)})
		c.Text(`,"functions":`)
		c.List(len(rows), func(i int) {
			f := &rows[i]
			c.Value(jsonFunctionDiff{jsonFunctionOf(f.Function), jsonShiftOf(d, &f.Self), jsonShiftOf(d, &f.Total)})
		})
		c.Text("}")
	})
	c.Text("}\n")
	return c.Flush()
}

// jsonDiff has the fields before the modes, jsonModeDiff the fields before the
// functions.
type jsonDiff struct {
	Base jsonRecording `json:"base"`
	Now  jsonRecording `json:"now"`
}

type jsonModeDiff struct {
	Mode string         `json:"mode"`
	Base jsonModeTotals `json:"base"`
	Now  jsonModeTotals `json:"now"`
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
