package churn

import (
	"math"
	"slices"
	"testing"
)

// span is a piece of time, in ns.
type span struct{ from, to int64 }

const never = math.MaxInt64 // the end of an unended span

// times are spans in their order, without overlaps or contacts.
type times []span

func timesOf(spans ...span) times {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.from > s.to })
	slices.SortFunc(spans, func(a, b span) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
	var out times
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// and returns the times that are in both.
func (t times) and(o times) times {
	var out []span
	for _, a := range t {
		for _, b := range o {
			if s := (span{max(a.from, b.from), min(a.to, b.to)}); s.from <= s.to {
				out = append(out, s)
			}
		}
	}
	return timesOf(out...)
}

// but returns the times outside o.
func (t times) but(o times) times {
	for _, b := range o {
		var rest []span
		for _, a := range t {
			if b.to < a.from || b.from > a.to {
				rest = append(rest, a)
				continue
			}
			if a.from < b.from {
				rest = append(rest, span{a.from, b.from - 1})
			}
			if b.to < a.to {
				rest = append(rest, span{b.to + 1, a.to})
			}
		}
		t = timesOf(rest...)
	}
	return t
}

func TestTimes(t *testing.T) {
	a := timesOf(span{10, 20}, span{1, 5}, span{4, 7})
	for name, tt := range map[string]struct{ got, want times }{
		"order and union": {a, times{{1, 7}, {10, 20}}},
		"and":             {a.and(times{{6, 12}}), times{{6, 7}, {10, 12}}},
		"and nothing":     {a.and(times{{8, 9}}), nil},
		"but":             {a.but(times{{2, 3}, {15, never}}), times{{1, 1}, {4, 7}, {10, 14}}},
		"but all":         {a.but(times{{0, never}}), nil},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}
