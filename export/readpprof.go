package export

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"clrsnap/profile"

	pprof "github.com/google/pprof/profile"
)

// readPprof reads a profile of any program: ours, and best effort those of others.
func readPprof(all []byte) (*profile.Recording, error) {
	p, err := pprof.ParseUncompressed(all)
	if err != nil || len(p.SampleType) == 0 {
		return nil, errors.New("this is no recording: " + readable)
	}
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("the pprof profile is damaged: %s", clip(err.Error()))
	}
	in := pprofReader{importer: newImporter(), p: p, known: map[*pprof.Location][]int32{}}
	if err := in.read(); err != nil {
		return nil, err
	}
	return in.finish(in.rates())
}

type pprofReader struct {
	*importer
	p       *pprof.Profile
	ours    bool
	columns []pprofColumn
	shared  bool                        // both modes have one column of counts: what has no time is of the other mode
	known   map[*pprof.Location][]int32 // by location: ours, leaf first, as inlining makes several of one
}

// pprofColumn is where a mode's values are in each sample.
type pprofColumn struct {
	mode  profile.Mode
	value int
	unit  time.Duration // of one
	count int           // -1: there is none
}

func (in *pprofReader) read() error {
	p := in.p
	if len(p.Comments) > 0 {
		in.r.Version, in.ours = strings.CutPrefix(p.Comments[0]+" ", pprofComment)
		in.r.Version = strings.TrimSpace(in.r.Version)
	}
	if in.ours {
		in.r.Notes = slices.Clone(p.Comments[1:])
	} else {
		in.r.Version, in.r.Notes = "", slices.Clone(p.Comments[:min(len(p.Comments), maxNotes/2)])
	}
	if p.TimeNanos > 0 {
		in.r.Start = time.Unix(0, p.TimeNanos).UTC()
	}
	in.r.Duration = time.Duration(min(max(p.DurationNanos, 0), int64(maxTime)))
	if err := in.chooseColumns(); err != nil {
		return err
	}
	for _, s := range p.Sample {
		if err := in.sample(s); err != nil {
			return err
		}
	}
	in.process0()
	if len(p.Mapping) > 0 && len(in.r.Processes) > 0 {
		in.r.Processes[0].Command = baseName(p.Mapping[0].File)
	}
	return nil
}

// rates are known of the mode that the period is of.
func (in *pprofReader) rates() (rates [len(modes)]float64) {
	if t := in.p.PeriodType; t != nil && in.p.Period > 0 {
		if unit, ok := unitOf(t.Unit); ok {
			mode := modeOfType(t.Type)
			rates[mode] = float64(time.Second) / (float64(in.p.Period) * float64(unit))
		}
	}
	return rates
}

// chooseColumns finds the times; else counts, each of which stands for a period.
func (in *pprofReader) chooseColumns() error {
	var seen [len(modes)]bool
	for i, t := range in.p.SampleType {
		if unit, ok := unitOf(t.Unit); ok && !seen[modeOfType(t.Type)] {
			mode := modeOfType(t.Type)
			seen[mode] = true
			in.columns = append(in.columns, pprofColumn{mode, i, unit, in.typeNamed("samples", mode.String()+"_samples", "contentions")})
		}
	}
	if n := len(in.columns); n > 0 {
		in.shared = n > 1 && in.columns[0].count == in.columns[1].count
		return nil
	}
	at := slices.IndexFunc(in.p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" })
	if at < 0 || slices.ContainsFunc(in.p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "bytes" }) {
		var names []string
		for _, t := range in.p.SampleType[:min(len(in.p.SampleType), 8)] {
			names = append(names, clip(t.Type)+" in "+clip(t.Unit))
		}
		return fmt.Errorf("the pprof profile is not about time: it has %s", strings.Join(names, ", "))
	}
	unit := time.Microsecond
	if t := in.p.PeriodType; t != nil && in.p.Period > 0 && t.Unit == "nanoseconds" {
		unit = time.Duration(in.p.Period)
	} else {
		in.r.Notes = append(in.r.Notes, "The pprof profile has counts only: each is taken for a microsecond.")
	}
	in.columns = []pprofColumn{{modeOfType(in.p.SampleType[at].Type), at, unit, at}}
	return nil
}

// modeOfType tells what a type of time is about: Go's profiles of waiting have
// "delay", fgprof has "time".
func modeOfType(name string) profile.Mode {
	if strings.Contains(name, "wall") || name == "delay" || name == "time" {
		return profile.Wall
	}
	return profile.CPU
}

func (in *pprofReader) typeNamed(names ...string) int {
	return slices.IndexFunc(in.p.SampleType, func(t *pprof.ValueType) bool { return slices.Contains(names, t.Type) && t.Unit == "count" })
}

func (in *pprofReader) sample(p *pprof.Sample) error {
	s := profile.Sample{Incomplete: slices.Contains(p.Label[labelIncomplete], yes)}
	if slices.Contains(p.Label[labelState], profile.Waiting.String()) {
		s.State = profile.Waiting
	}
	s.Thread = in.threadOf(p)
	for _, l := range slices.Backward(p.Location) {
		for _, place := range slices.Backward(in.location(l)) {
			s.Node = in.b.Child(s.Node, place)
		}
	}
	for _, c := range in.columns {
		v, n := p.Value[c.value], int64(0)
		if c.count >= 0 {
			n = p.Value[c.count]
		}
		if v < 0 || n < 0 {
			return errors.New("the pprof profile has negative values: a difference between two profiles cannot be read")
		}
		if v == 0 && (n == 0 || in.shared) {
			continue
		}
		s.Mode, s.Count, s.Weight = c.mode, int32(min(n, math.MaxInt32)), scaled(float64(v), c.unit)
		if c.unit == time.Nanosecond {
			s.Weight = time.Duration(v) // exactly
		}
		if err := in.add(s); err != nil {
			return err
		}
	}
	return nil
}

func (in *pprofReader) threadOf(p *pprof.Sample) int32 {
	text := func(names ...string) string {
		for _, n := range names {
			if v := p.Label[n]; len(v) > 0 {
				return v[0]
			}
		}
		return ""
	}
	number := func(names ...string) int {
		for _, n := range names {
			if v := p.NumLabel[n]; len(v) > 0 {
				return int(min(max(v[0], 0), math.MaxInt32))
			}
		}
		return 0
	}
	return in.thread(profile.RecordedThread{
		Process: in.process(number(labelPID, "process_id")), OSThreadID: number(labelTID, "thread_id"),
		ManagedThreadID: number(labelManagedTID), Name: text(labelThread, "thread_name", "comm"), Role: text(labelRole),
	})
}

// location returns our locations for one of a profile, leaf first.
func (in *pprofReader) location(l *pprof.Location) []int32 {
	if known, ok := in.known[l]; ok {
		return known
	}
	file, offset := "", l.Address
	if m := l.Mapping; m != nil {
		file = m.File
		if offset -= m.Start; offset > m.Limit-m.Start {
			offset = 0
		}
	}
	var out []int32
	for i := range l.Line {
		if f := l.Line[i].Function; f != nil && f.Name != "" {
			out = append(out, in.b.Location(profile.Location{Function: in.pprofFunction(f, file), Offset: in.offset(f, offset)}))
		}
	}
	if len(out) == 0 {
		module := baseName(file)
		kind := kindOf("[", module)
		f := profile.Function{Kind: kind, Display: nameless(moduleOfMapping(kind, module)), Short: nameless(moduleOfMapping(kind, module)), Module: moduleOfMapping(kind, module)}
		out = append(out, in.b.Location(profile.Location{Function: in.b.Function(f), Offset: offset}))
	}
	in.known[l] = out
	return out
}

func (in *pprofReader) pprofFunction(f *pprof.Function, file string) int32 {
	if !in.ours {
		return in.function(f.Name, file)
	}
	kind := kindOf(f.Name, baseName(file))
	return in.b.Function(functionOf(kind, f.SystemName, f.Name, f.Filename))
}

// offset is that within the function, which only our addresses tell.
func (in *pprofReader) offset(f *pprof.Function, inMapping uint64) uint64 {
	switch {
	case !in.ours:
		return 0
	case f.SystemName == "":
		return inMapping
	}
	return inMapping % slotSize
}
