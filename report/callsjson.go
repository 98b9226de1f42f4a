package report

import (
	"io"

	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
)

// CallsJSON writes what Calls shows, idle threads included, as one JSON document and a newline. The schema
// is stable and described in docs/json.md.
func CallsJSON(w io.Writer, r *profile.Recording, o CallsOptions) error {
	trees, err := o.trees(r)
	if err != nil {
		return err
	}
	c := jsonwriter.New(w)
	c.Open(jsonRecordingOf(r))
	switch o.Kind {
	case Callers:
		c.Text(`,"callersOf":`)
		c.Value(o.Pattern)
	case Callees:
		c.Text(`,"calleesOf":`)
		c.Value(o.Pattern)
	}
	c.Text(`,"modes":`)
	c.List(len(trees), func(i int) {
		t := r.Totals(trees[i].Mode)
		list := trees[i].List
		c.Open(jsonTotalsOf(r, t))
		if o.Kind == Path {
			c.Text(`,"path":`)
			c.List(len(list), func(k int) { c.Value(jsonCallOf(r, t, &list[k], true)) })
		} else {
			c.Text(`,"matched":`)
			c.Value(jsonAmountOf(t, &trees[i].Matched))
			if trees[i].Cut {
				c.Text(`,"cut":true`)
			}
			j := callsJSON{c, r, t, list, shownCalls(trees[i], o.Rows), o.Kind}
			c.Text(`,"calls":`)
			j.write(0, int32(len(list)), 0)
		}
		c.Text("}")
	})
	c.Text("}\n")
	return c.Flush()
}

// maxJSONDepth bounds how deep the calls of a document are nested.
const maxJSONDepth = 250

type jsonCall struct {
	jsonFunction
	Flat *jsonAmount `json:"flat,omitempty"`
	Cum  jsonAmount  `json:"cum"`
	More int         `json:"more,omitempty"`
}

func jsonCallOf(r *profile.Recording, t *profile.Totals, call *profile.Call, flat bool) jsonCall {
	out := jsonCall{jsonFunction: jsonFunctionOf(&r.Functions[call.Function]), Cum: jsonAmountOf(t, &call.Total)}
	if flat {
		self := jsonAmountOf(t, &call.Self)
		out.Flat = &self
	}
	return out
}

type callsJSON struct {
	*jsonwriter.Writer
	r     *profile.Recording
	t     *profile.Totals
	list  []profile.Call
	shown []bool
	kind  CallsKind
}

// write writes the calls from begin to end that have one parent, each with its own subtree.
func (j *callsJSON) write(begin, end int32, depth int) {
	var shown []int32
	for i := begin; i < end; i = j.list[i].End {
		if j.shown[i] {
			shown = append(shown, i)
		}
	}
	j.List(len(shown), func(k int) {
		call := &j.list[shown[k]]
		value := jsonCallOf(j.r, j.t, call, j.kind == Callees)
		deeper := depth < maxJSONDepth
		for i := shown[k] + 1; i < call.End; i = j.list[i].End {
			if !deeper || !j.shown[i] {
				value.More++
			}
		}
		j.Open(value)
		j.Text(`,"calls":`)
		if deeper {
			j.write(shown[k]+1, call.End, depth+1)
		} else {
			j.Text("[]")
		}
		j.Text("}")
	})
}
