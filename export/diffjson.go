package export

import (
	"bufio"
	"io"

	"clrsnap/profile"
)

// DifferenceJSON writes what Difference shows as one JSON document and a newline. Of
// the options, Color, Width and ByThread have no effect. The schema is stable and
// described in docs/json.md.
func DifferenceJSON(w io.Writer, base, now *profile.Recording, o TopOptions) error {
	c := columnWriter{w: bufio.NewWriterSize(w, 1<<16)}
	c.open(jsonDiff{jsonRecordingOf(base), jsonRecordingOf(now)})
	modes := o.modes(bothModes(base, now))
	c.text(`,"modes":`)
	c.list(len(modes), func(i int) {
		d := profile.Compare(base, now, modes[i])
		rows := largest(d, o.Sort)
		if o.Rows > 0 {
			rows = rows[:min(len(rows), o.Rows)]
		}
		c.open(jsonModeDiff{modes[i].String(), jsonTotalsOf(base, d.Base), jsonTotalsOf(now, d.Now)})
		c.text(`,"functions":`)
		c.list(len(rows), func(i int) {
			f := &rows[i]
			c.value(jsonFunctionDiff{jsonFunctionOf(f.Function), jsonShiftOf(d, &f.Self), jsonShiftOf(d, &f.Total)})
		})
		c.text("}")
	})
	c.text("}\n")
	return c.flush()
}

// jsonDiff has the fields before the modes, jsonModeDiff those before the functions.
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
