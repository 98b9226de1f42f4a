package export

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/profile"
)

// A tableReader reads one table of a recording: an object with columns as fields. The columns can come
// in any order, but none may be missing.
type tableReader struct {
	d      *documentReader
	rows   int             // of each column; -1: not known yet
	kept   int             // rows taken from the budget
	cost   int             // of a row, in bytes
	what   string          // the name of the rows in errors
	absent map[string]bool // columns still to come; true: they must come
}

// absentBefore marks the name of a column that earlier versions do not write.
const absentBefore = "?"

// columnReader reads the column with a name.
type columnReader func(t *tableReader, name string) error

func (d *documentReader) table(what string, cost int, read columnReader, columns ...string) error {
	t := tableReader{d: d, rows: -1, cost: cost, what: what, absent: map[string]bool{}}
	for _, c := range columns {
		name, may := strings.CutSuffix(c, absentBefore)
		t.absent[name] = !may
	}
	err := d.s.object(func(name string) error {
		if _, known := t.absent[name]; !known {
			return d.s.skip()
		}
		delete(t.absent, name)
		return read(&t, name)
	})
	for name, must := range t.absent {
		if err == nil && must {
			err = fmt.Errorf("column %q is missing", name)
		}
	}
	return err
}

func (d *documentReader) functionTable() error {
	columns := []string{"method", "display", "short", "signature", "module", "fate"} // as documentReader.functions
	return d.table("functions", functionCost, func(t *tableReader, name string) error {
		if name == "kind" {
			return column(t, &d.r.Functions, func(f *profile.Function, v int32) error {
				if !within(v, len(kinds)) {
					return fmt.Errorf("there is no kind %d", v)
				}
				f.Kind = kinds[v]
				return nil
			})
		}
		if name == "owner" {
			return column(t, &d.r.Functions, func(f *profile.Function, v int32) error {
				if !within(v, len(owners)) {
					return fmt.Errorf("there is no owner %d", v)
				}
				f.Owner = owners[v]
				return nil
			})
		}
		at := slices.Index(columns, name)
		d.fates = d.fates || name == "fate"
		return column(t, &d.functions, func(f *[6]int32, v int32) error { f[at] = v; return nil })
	}, "kind", "method", "display", "short", "signature", "module", "fate"+absentBefore, "owner"+absentBefore)
}

func (d *documentReader) locationTable() error {
	return d.table("locations", locationCost, func(t *tableReader, name string) error {
		switch name {
		case "function":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.Function = v; return nil })
		case "tier":
			return column(t, &d.tiers, func(n *int32, v int32) error { *n = v; return nil })
		case "method":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.Method = v; return nil })
		case "il":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.IL = v; return nil })
		case "next":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.Next = v; return nil })
		case "nearest":
			return d.flags(&d.nearest, "locations")
		case "line":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.Line = v; return nil })
		case "inlined":
			return d.flags(&d.inlined, "locations")
		case "library":
			return column(t, &d.r.Locations, func(l *profile.Location, v int32) error { l.Library = v; return nil })
		case "address":
			return rows(t, &d.r.Locations, func(l *profile.Location) (err error) {
				l.Address, err = d.s.unsigned()
				return err
			})
		}
		return rows(t, &d.r.Locations, func(l *profile.Location) (err error) {
			l.Offset, err = d.s.unsigned()
			return err
		})
	}, "function", "offset", "tier",
		"method"+absentBefore, "il"+absentBefore, "next"+absentBefore, "nearest"+absentBefore, "line"+absentBefore,
		"inlined"+absentBefore,
		"library"+absentBefore, "address"+absentBefore)
}

func (d *documentReader) nodeTable() error {
	return d.table("stacks", nodeCost, func(t *tableReader, name string) error {
		return column(t, &d.r.Nodes, func(n *profile.Node, v int32) error {
			if name == "parent" {
				n.Parent = v
			} else {
				n.Location = v
			}
			return nil
		})
	}, "parent", "location")
}

func (d *documentReader) sampleTable() error {
	columns := []string{"at", "weight", "count", "thread", "node", "mode", "state", "incomplete"}
	if d.format > 1 {
		columns = append(columns, "events")
	}
	return d.table("samples", sampleCost, d.sampleColumn, columns...)
}

func (d *documentReader) sampleColumn(t *tableReader, name string) error {
	type sample = profile.Sample
	numbers := func(set func(*sample, int32) error) error { return column(t, &d.r.Samples, set) }
	switch name {
	case "at":
		at := time.Duration(0) // clamped, so that no delta causes an overflow; checkSamples refuses negative times
		return d.numbers(t, func(s *sample, delta int64) {
			at = min(max(at+time.Duration(delta), -1), maxTime)
			s.At = at
		})
	case "weight":
		return d.numbers(t, func(s *sample, w int64) { s.Weight = w })
	case "events":
		return d.numbers(t, func(s *sample, n int64) { s.Events = n })
	case "count":
		return numbers(func(s *sample, v int32) error { s.Count = v; return nil })
	case "thread":
		return numbers(func(s *sample, v int32) error { s.Thread = v; return nil })
	case "node":
		return numbers(func(s *sample, v int32) error { s.Node = v; return nil })
	case "mode":
		return numbers(func(s *sample, v int32) error {
			s.Mode = profile.Mode(v)
			return isOf(v, len(profile.Modes), name)
		})
	case "state":
		return numbers(func(s *sample, v int32) error {
			s.State = profile.State(v)
			return isOf(v, int(profile.Waiting)+1, name)
		})
	}
	return d.flags(&d.incomplete, "samples")
}

// flags reads a column with the indices of some rows, not with an element for each row.
func (d *documentReader) flags(into *[]int32, what string) error {
	t := &tableReader{d: d, rows: -1, cost: 4, what: what}
	return column(t, into, func(i *int32, v int32) error { *i = v; return nil })
}

// holdTable reads the looks at holders of locks. Recordings of other modes have no looks.
func (d *documentReader) holdTable() error {
	columns := []string{"at", "waited", "incomplete"}
	for _, c := range holdIndices {
		columns = append(columns, c.name)
	}
	return d.table("holds", holdCost, func(t *tableReader, name string) error {
		switch name {
		case "at":
			return durations(t, &d.r.Holds, func(h *profile.Hold, v time.Duration) { h.At = v })
		case "waited":
			return durations(t, &d.r.Holds, func(h *profile.Hold, v time.Duration) { h.Waited = v })
		case "incomplete":
			return column(t, &d.r.Holds, func(h *profile.Hold, v int32) error { h.Incomplete = v != 0; return nil })
		}
		at := slices.IndexFunc(holdIndices[:], func(c holdIndex) bool { return c.name == name })
		return column(t, &d.r.Holds, func(h *profile.Hold, v int32) error { *holdIndices[at].of(h) = v; return nil })
	}, columns...)
}

// durations reads a column of times.
func durations[T any](t *tableReader, table *[]T, set func(*T, time.Duration)) error {
	return rows(t, table, func(row *T) error {
		v, err := t.d.s.integer()
		set(row, time.Duration(v))
		return err
	})
}

// numbers reads a column of samples with numbers of more than 32 bits.
func (d *documentReader) numbers(t *tableReader, set func(*profile.Sample, int64)) error {
	return rows(t, &d.r.Samples, func(s *profile.Sample) error {
		v, err := d.s.integer()
		if err == nil && v > maxWeight {
			err = errTooLarge
		}
		set(s, v)
		return err
	})
}

// isOf returns an error unless v is less than n, the number of modes or states.
func isOf(v int32, n int, what string) error {
	if !within(v, n) {
		return fmt.Errorf("there is no %s %d", what, v)
	}
	return nil
}

// column reads a column of 32-bit numbers into the rows of a table.
func column[T any](t *tableReader, table *[]T, set func(*T, int32) error) error {
	return rows(t, table, func(row *T) error {
		v, err := t.d.s.integer()
		if err == nil && int64(int32(v)) != v {
			err = errTooLarge
		}
		if err != nil {
			return err
		}
		return set(row, int32(v))
	})
}

// rows reads a column into the rows of a table. The first column adds the rows.
func rows[T any](t *tableReader, table *[]T, read func(*T) error) error {
	n := 0
	err := t.d.s.array(func(i int) error {
		if n = i + 1; n > t.kept {
			t.kept = n
			if err := t.d.budget.take(t.cost, t.what); err != nil {
				return err
			}
		}
		if i == len(*table) {
			var row T
			*table = append(*table, row)
		}
		return read(&(*table)[i])
	})
	if err == nil && t.rows >= 0 && n != t.rows {
		err = fmt.Errorf("%d rows, another column has %d", n, t.rows)
	}
	t.rows = n
	return err
}
