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
	in.period()
	return in.finish()
}

type pprofReader struct {
	*importer
	p       *pprof.Profile
	ours    bool
	columns []pprofColumn
	units   []int64                     // what one of a column's values is, in the mode's unit
	known   map[*pprof.Location][]int32 // by location: ours, leaf first, as inlining makes several of one
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

// period fills in what is known of how the profile was sampled.
func (in *pprofReader) period() {
	t := in.p.PeriodType
	if t == nil || in.p.Period <= 0 {
		return
	}
	mode, unit, ok := modeOfType(t)
	switch {
	case !ok:
	case !mode.OfEvents():
		in.modes[mode].Rate = float64(time.Second) / (float64(in.p.Period) * float64(unit))
	case mode == profile.Alloc || in.ours:
		in.modes[mode].Every = min(in.p.Period, maxWeight)
	}
}

// chooseColumns finds what can be read of the values: for each mode one of them,
// and the count that goes with it. If there is none, counts are taken for time.
func (in *pprofReader) chooseColumns() error {
	var seen modeSet
	for i, t := range in.p.SampleType {
		mode, unit, ok := modeOfType(t)
		if !ok || seen[mode] || in.hasBetter(mode, t.Type) {
			continue
		}
		seen[mode] = true
		in.columns = append(in.columns, pprofColumn{mode, in.countOf(mode, t.Type), i})
		in.units = append(in.units, unit)
		if mode == profile.Alloc && !isNamed(mode, t.Type) {
			in.r.Notes = append(in.r.Notes, fmt.Sprintf("The pprof profile has %s in bytes: it is shown as allocated bytes.", clip(t.Type)))
		}
	}
	if len(in.columns) > 0 {
		return nil
	}
	at := slices.IndexFunc(in.p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" })
	if at < 0 {
		var names []string
		for _, t := range in.p.SampleType[:min(len(in.p.SampleType), 8)] {
			names = append(names, clip(t.Type)+" in "+clip(t.Unit))
		}
		return fmt.Errorf("the pprof profile has neither times nor bytes nor counts: it has %s", strings.Join(names, ", "))
	}
	unit := int64(time.Microsecond)
	if t := in.p.PeriodType; t != nil && in.p.Period > 0 && t.Unit == "nanoseconds" {
		unit = in.p.Period
	} else {
		in.r.Notes = append(in.r.Notes, "The pprof profile has counts only: each is taken for a microsecond.")
	}
	in.columns, in.units = []pprofColumn{{modeOfTime(in.p.SampleType[at].Type), at, at}}, []int64{unit}
	return nil
}

// modeOfType tells what mode a type of values is, and how much one of them is in
// the mode's unit.
func modeOfType(t *pprof.ValueType) (m profile.Mode, unit int64, ok bool) {
	if unit, ok := timeUnit(t.Unit); ok {
		return modeOfTime(t.Type), int64(unit), true
	}
	switch {
	case t.Unit == profile.Bytes.String():
		return profile.Alloc, 1, true
	case t.Unit != profile.Count.String():
	case isNamed(profile.Exception, t.Type):
		return profile.Exception, 1, true
	case isNamed(profile.ThreadStart, t.Type):
		return profile.ThreadStart, 1, true
	}
	return 0, 0, false
}

// modeOfTime tells what a type of time is about.
func modeOfTime(name string) profile.Mode {
	for _, m := range profile.Modes {
		if m.Unit() == profile.Nanoseconds && isNamed(m, name) {
			return m
		}
	}
	if strings.Contains(name, "wall") {
		return profile.Wall
	}
	return profile.CPU
}

// isNamed reports whether a name is one that weights of a mode have.
func isNamed(m profile.Mode, name string) bool {
	return slices.Contains(pprofTypes[m].weight, name)
}

// hasBetter reports whether another type is surely the weight of a mode, which one
// of this name is only taken for. Go's heap profiles also have what is still in use.
func (in *pprofReader) hasBetter(m profile.Mode, name string) bool {
	return !isNamed(m, name) && slices.ContainsFunc(in.p.SampleType, func(t *pprof.ValueType) bool {
		mode, _, ok := modeOfType(t)
		return ok && mode == m && isNamed(m, t.Type)
	})
}

// countOf is the value that counts what another one weighs, or -1.
func (in *pprofReader) countOf(m profile.Mode, weight string) int {
	names := pprofTypes[m].count
	if space, ok := strings.CutSuffix(weight, "_space"); ok && m == profile.Alloc {
		names = []string{space + "_objects"}
	}
	return slices.IndexFunc(in.p.SampleType, func(t *pprof.ValueType) bool {
		return t.Unit == profile.Count.String() && slices.Contains(names, t.Type)
	})
}

// isShared reports whether a count goes with several weights: what has no weight is
// of another mode then.
func (in *pprofReader) isShared(count int) bool {
	n := 0
	for _, c := range in.columns {
		if c.count == count {
			n++
		}
	}
	return n > 1
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
	for i, c := range in.columns {
		v, n := p.Value[c.weight], int64(0)
		if c.count >= 0 {
			n = p.Value[c.count]
		}
		if v < 0 || n < 0 {
			return errors.New("the pprof profile has negative values: a difference between two profiles cannot be read")
		}
		if v == 0 && (n == 0 || in.isShared(c.count)) {
			continue
		}
		s.Mode, s.Count, s.Events = c.mode, 1, 0
		if c.mode.OfEvents() {
			s.Events = min(n, maxWeight)
		} else {
			s.Count = int32(min(n, math.MaxInt32))
		}
		if s.Weight = v; in.units[i] != 1 {
			s.Weight = scaled(float64(v), in.units[i])
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
			out = append(out, in.b.Location(profile.Location{Function: in.pprofFunction(f, file), Offset: in.offset(f, file, offset)}))
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

// offset is that within the function, which only our addresses tell. Events have
// none.
func (in *pprofReader) offset(f *pprof.Function, file string, inMapping uint64) uint64 {
	switch {
	case !in.ours || isEventMapping(file):
		return 0
	case f.SystemName == "":
		return inMapping
	}
	return inMapping % slotSize
}
