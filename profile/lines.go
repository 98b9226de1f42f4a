package profile

import (
	"cmp"
	"slices"

	"clrsnap/snapshot"
)

// LineTotal is the sums of one source line of a function.
type LineTotal struct {
	File        int32 // index in Recording.Files
	Line        int32 // counted from 1
	Approximate bool  // for some of the samples the line is not certain

	// As in FunctionTotal. The Total of a line counts the samples whose stacks have the function at this
	// line.
	Self, Direct, Total                         Part
	SelfVariance, DirectVariance, TotalVariance Variance
}

// LineTotals sums up the samples of a mode by source line. The result has the lines of each function, by
// FunctionTotal.Function, the lines with the largest Self first. Functions without known lines have none.
func (r *Recording) LineTotals(m Mode) map[int32][]LineTotal {
	if len(r.Lines) == 0 {
		return nil
	}
	t := &Totals{Mode: m, Origins: map[snapshot.Origin]*Part{}, estimation: r.estimation(m)}
	self, variances := t.samples(r)
	g := groupLines(r)
	sums := sumUp(r, self, variances, len(g.keys), func(n int32) int32 { return g.of[r.Nodes[n].Location] })
	out := map[int32][]LineTotal{}
	for i := range sums {
		s, key := &sums[i], g.keys[i]
		if s.Total.All().Samples == 0 {
			continue
		}
		out[key.function] = append(out[key.function], LineTotal{
			File: key.file, Line: key.line, Approximate: g.approximate[i],
			Self: s.Self, Direct: s.Direct, Total: s.Total,
			SelfVariance: s.SelfVariance, DirectVariance: s.DirectVariance, TotalVariance: s.TotalVariance,
		})
	}
	for _, lines := range out {
		slices.SortFunc(lines, func(a, b LineTotal) int {
			return cmp.Or(
				cmp.Compare(b.Self.All().Weight, a.Self.All().Weight),
				cmp.Compare(b.Total.All().Weight, a.Total.All().Weight),
				cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			)
		})
	}
	return out
}

// lineGroups are the source lines of functions. Locations that differ only in their offset, column or tier,
// or in how certain the line is, are one line.
type lineGroups struct {
	of          []int32 // by location; -1: the line is not known
	keys        []lineKey
	approximate []bool
}

type lineKey struct{ function, file, line int32 }

func groupLines(r *Recording) lineGroups {
	g := lineGroups{of: make([]int32, len(r.Locations))}
	same, index := sameNames(r), map[lineKey]int32{}
	for i := range r.Locations {
		l := &r.Locations[i]
		if g.of[i] = -1; l.Line <= 0 {
			continue
		}
		line := &r.Lines[l.Line]
		at := intern(index, &g.keys, lineKey{same[l.Function], line.File, line.Line})
		if int(at) == len(g.approximate) {
			g.approximate = append(g.approximate, false)
		}
		g.of[i], g.approximate[at] = at, g.approximate[at] || line.Approximate
	}
	return g
}
