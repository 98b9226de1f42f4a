package export

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// readPprof reads a pprof profile: everything from clrsnap's profiles, and as much as possible from
// profiles of other programs.
func readPprof(all []byte) (*profile.Recording, error) {
	p, err := scanPprof(all)
	var large tooLargeError
	switch {
	case errors.As(err, &large):
		return nil, err
	case err != nil || len(p.types) == 0:
		return nil, errors.New("this is not a recording: " + readable)
	}
	in := pprofReader{
		importer: newImporter(), p: p,
		places: make([]int32, 0, len(p.locations)), functions: map[pprofPlace]int32{},
	}
	if err := in.read(); err != nil {
		return nil, err
	}
	in.period()
	return in.finish()
}

type pprofReader struct {
	*importer
	p         *pprofFile
	ours      bool // clrsnap wrote the profile
	columns   []pprofColumn
	units     []int64              // by column: how much a value of 1 is, in the mode's unit
	functions map[pprofPlace]int32 // the recording's functions
	places    []int32              // the recording's locations; inlining makes several from one, leaf first
}

// pprofPlace is a function of a profile in a mapping.
type pprofPlace struct{ function, mapping int32 }

func (in *pprofReader) read() error {
	p := in.p
	var comments []string
	var err error
	for _, i := range p.comments {
		c := p.text(i, &err)
		if err = cmp.Or(err, in.budget.takeAll(noteCost, "comments", c)); err != nil {
			return damagedPprof(err)
		}
		comments = append(comments, c)
	}
	if len(comments) > 0 {
		in.r.Version, in.ours = strings.CutPrefix(comments[0]+" ", pprofComment)
		in.r.Version = strings.TrimSpace(in.r.Version)
	}
	if in.ours {
		comments = comments[1:]
	} else {
		in.r.Version, comments = "", comments[:min(len(comments), maxNotes/2)]
	}
	in.r.Notes = comments
	if p.time > 0 {
		in.r.Start = time.Unix(0, p.time).UTC()
	}
	in.r.Duration = time.Duration(min(max(p.duration, 0), int64(maxTime)))
	if err := in.chooseColumns(); err != nil {
		return err
	}
	if err := p.samples(in.sample); err != nil {
		return damagedPprof(err)
	}
	if _, err := in.process0(); err != nil {
		return err
	}
	if len(p.mappings) > 0 {
		command := baseName(p.text(p.mappings[0].file, &err))
		in.r.Processes[0].Command, err = command, cmp.Or(err, in.budget.takeText(command, "processes"))
	}
	return err
}

func damagedPprof(err error) error { return fmt.Errorf("the pprof profile is damaged: %w", err) }

// period sets the rate, or Every, of the mode of the profile's period.
func (in *pprofReader) period() {
	if in.p.period <= 0 {
		return
	}
	mode, unit, ok := modeOfType(in.p.periodType)
	switch {
	case !ok:
	case !mode.OfEvents():
		in.modes[mode].Rate = float64(time.Second) / (float64(in.p.period) * float64(unit))
	case mode.OfObjects():
		in.modes[profile.Alloc].Every = min(in.p.period, maxWeight)
		in.modes[profile.Live].Every = in.modes[profile.Alloc].Every
	case in.ours:
		in.modes[mode].Every = min(in.p.period, maxWeight)
	}
}

// chooseColumns chooses the sample types to read: for each mode one type, and the matching count. If
// no type fits a mode, it reads the first count as time.
func (in *pprofReader) chooseColumns() error {
	var seen [len(profile.Modes)]bool
	for i, t := range in.p.types {
		mode, unit, ok := modeOfType(t)
		if !ok || seen[mode] || in.hasBetter(mode, t.name) {
			continue
		}
		seen[mode] = true
		in.columns = append(in.columns, pprofColumn{mode, in.countOf(mode, t.name), i})
		in.units = append(in.units, unit)
		if mode == profile.Alloc && !isNamed(mode, t.name) {
			in.r.Notes = append(in.r.Notes,
				fmt.Sprintf("The pprof profile has %s in bytes: it is shown as allocated bytes.", clip(t.name)))
		}
	}
	if len(in.columns) > 0 {
		return nil
	}
	at := slices.IndexFunc(in.p.types, func(t pprofType) bool { return t.unit == "count" })
	if at < 0 {
		var names []string
		for _, t := range in.p.types[:min(len(in.p.types), 8)] {
			names = append(names, clip(t.name)+" in "+clip(t.unit))
		}
		return fmt.Errorf("the pprof profile has no times, bytes or counts, only %s", strings.Join(names, ", "))
	}
	unit := int64(time.Microsecond)
	if in.p.period > 0 && in.p.periodType.unit == "nanoseconds" {
		unit = in.p.period
	} else {
		in.r.Notes = append(in.r.Notes, "The pprof profile has only counts: each is shown as a microsecond.")
	}
	in.columns, in.units = []pprofColumn{{modeOfTime(in.p.types[at].name), at, at}}, []int64{unit}
	return nil
}

// modeOfType returns the mode of a sample type, and how much a value of 1 is, in the mode's unit.
func modeOfType(t pprofType) (m profile.Mode, unit int64, ok bool) {
	if unit, ok := timeUnit(t.unit); ok {
		return modeOfTime(t.name), int64(unit), true
	}
	switch {
	case t.unit == profile.Bytes.String() && isNamed(profile.Live, t.name):
		return profile.Live, 1, true
	case t.unit == profile.Bytes.String():
		return profile.Alloc, 1, true
	case t.unit != profile.Count.String():
	case isNamed(profile.Exception, t.name):
		return profile.Exception, 1, true
	case isNamed(profile.ThreadStart, t.name):
		return profile.ThreadStart, 1, true
	}
	return 0, 0, false
}

// modeOfTime returns the mode of a sample type for a time.
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

// isNamed reports whether a name is among the names of a mode's weights.
func isNamed(m profile.Mode, name string) bool {
	return slices.Contains(pprofTypes[m].weight, name)
}

// hasBetter reports whether another sample type has a name of the mode's weights, and the type with
// this name has not. Go's heap profiles, for example, have inuse_space as well as alloc_space.
func (in *pprofReader) hasBetter(m profile.Mode, name string) bool {
	return !isNamed(m, name) && slices.ContainsFunc(in.p.types, func(t pprofType) bool {
		mode, _, ok := modeOfType(t)
		return ok && mode == m && isNamed(m, t.name)
	})
}

// countOf returns the index of the sample type that counts the objects of the type weight, or -1.
func (in *pprofReader) countOf(m profile.Mode, weight string) int {
	names := pprofTypes[m].count
	if space, ok := strings.CutSuffix(weight, "_space"); ok && m == profile.Alloc {
		names = []string{space + "_objects"}
	}
	return slices.IndexFunc(in.p.types, func(t pprofType) bool {
		return t.unit == profile.Count.String() && slices.Contains(names, t.name)
	})
}

// isShared reports whether a count goes with the weights of several modes. Then a sample without
// weight in one mode belongs to another mode.
func (in *pprofReader) isShared(count int) bool {
	n := 0
	for _, c := range in.columns {
		if c.count == count {
			n++
		}
	}
	return n > 1
}

func (in *pprofReader) sample(p *pprofSample) error {
	s := profile.Sample{}
	for _, l := range p.labels {
		s.Incomplete = s.Incomplete || l.name == labelIncomplete && l.text == yes
		if l.name == labelState && l.text == profile.Waiting.String() {
			s.State = profile.Waiting
		}
	}
	var err error
	if s.Thread, err = in.threadOf(p); err != nil {
		return err
	}
	for _, l := range slices.Backward(p.stack) {
		places, err := in.location(l)
		if err != nil {
			return err
		}
		for _, place := range slices.Backward(places) {
			if err := in.enter(&s, place); err != nil {
				return err
			}
		}
	}
	return in.values(p, s)
}

// values adds a sample for each mode with values in the profile's sample.
func (in *pprofReader) values(p *pprofSample, s profile.Sample) error {
	for i, c := range in.columns {
		v, n := p.values[c.weight], int64(0)
		if c.count >= 0 {
			n = p.values[c.count]
		}
		if v < 0 || n < 0 {
			return errors.New("a difference of two profiles, with negative values, cannot be read")
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

// The names of thread labels in other programs.
const (
	otherPID, otherTID         = "process_id", "thread_id"
	otherThread, anotherThread = "thread_name", "comm"
)

// pprofLabelNames are the labels to read.
var pprofLabelNames = func() map[string]string {
	out := map[string]string{}
	for _, n := range []string{
		labelThread, labelRole, labelState, labelIncomplete, labelTID, labelManagedTID, labelPID,
		otherPID, otherTID, otherThread, anotherThread,
	} {
		out[n] = n
	}
	return out
}()

func (in *pprofReader) threadOf(p *pprofSample) (int32, error) {
	find := func(isText bool, names ...string) (found pprofLabel) {
		for _, name := range names {
			for _, l := range p.labels {
				if l.name == name && (l.text != "") == isText {
					return l
				}
			}
		}
		return pprofLabel{}
	}
	number := func(names ...string) int { return int(min(max(find(false, names...).number, 0), math.MaxInt32)) }
	t := profile.RecordedThread{
		OSThreadID: number(labelTID, otherTID), ManagedThreadID: number(labelManagedTID),
		Name: find(true, labelThread, otherThread, anotherThread).text, Role: find(true, labelRole).text,
	}
	var err error
	if t.Process, err = in.process(number(labelPID, otherPID)); err != nil {
		return 0, err
	}
	return in.thread(t)
}

// location returns the recording's locations for a location of the profile, leaf first.
func (in *pprofReader) location(i int32) ([]int32, error) {
	l := &in.p.locations[i]
	if l.first < 0 {
		first := int32(len(in.places))
		if err := in.readLocation(l); err != nil {
			return nil, err
		}
		l.first, l.n = first, int32(len(in.places))-first
	}
	return in.places[l.first : l.first+l.n], nil
}

// readLocation decodes a location of the profile and appends the recording's locations to places.
func (in *pprofReader) readLocation(l *pprofLocation) error {
	p, err := in.p.read(l)
	if err != nil {
		return err
	}
	file, offset := "", p.address
	if p.mapping >= 0 {
		m := &in.p.mappings[p.mapping]
		file = in.p.text(m.file, &err)
		if offset -= m.start; offset > m.limit-m.start {
			offset = 0
		}
	}
	before := len(in.places)
	for _, l := range p.lines {
		named, e := in.pprofFunction(pprofPlace{l.function, p.mapping}, file)
		if err = cmp.Or(err, e); err != nil {
			return err
		}
		if named < 0 {
			continue
		}
		f := &in.p.functions[l.function]
		at := profile.Location{Function: named, Offset: in.offset(f, file, offset)}
		if at.Line, err = in.line(f, l); err != nil {
			return err
		}
		if err := in.place(at); err != nil {
			return err
		}
	}
	if err != nil || len(in.places) > before {
		return err
	}
	module := baseName(file)
	kind := kindOf("[", module)
	module = moduleOfMapping(kind, module)
	function, err := in.put(profile.Function{
		Kind: kind, Display: display.Nameless(module), Short: display.Nameless(module), Module: module,
	})
	if err != nil {
		return err
	}
	return in.place(profile.Location{Function: function, Offset: offset})
}

// line returns the recording's line for a line of the profile; 0: not known.
func (in *pprofReader) line(f *pprofFunction, l pprofLine) (at int32, err error) {
	if l.line <= 0 || l.line > math.MaxInt32 || l.column < 0 || l.column > math.MaxInt32 {
		return 0, nil
	}
	name := in.p.text(f.file, &err)
	if err != nil || name == "" {
		return 0, err
	}
	return in.sourceLine(name, profile.Line{Line: int32(l.line), Column: int32(l.column)})
}

// place appends a location.
func (in *pprofReader) place(l profile.Location) error {
	at, err := in.importer.location(l)
	if err == nil {
		in.places = append(in.places, at)
		err = in.p.tables.take(4, "lines of locations")
	}
	return err
}

// pprofFunction returns the recording's function for a function of the profile; -1: there is no name.
func (in *pprofReader) pprofFunction(at pprofPlace, file string) (int32, error) {
	i, ok := in.functions[at]
	if ok {
		return i, nil
	}
	var err error
	f := &in.p.functions[at.function]
	name := in.p.text(f.name, &err)
	switch {
	case err != nil:
		return 0, err
	case name == "":
		i = -1
	case !in.ours:
		i, err = in.function(name, file)
	default:
		exact := in.p.text(f.system, &err)
		if err == nil {
			kind := kindOf(name, baseName(file))
			f := functionOf(kind, exact, name, moduleOfMapping(kind, baseName(file)))
			if f.Kind == snapshot.Managed {
				f.Owner = ownerOf(file)
			}
			i, err = in.put(f)
		}
	}
	in.functions[at] = i
	return i, cmp.Or(err, in.p.tables.take(rowCost, "functions"))
}

// offset returns the offset in the function. Only clrsnap's own profiles have offsets. Events have
// none.
func (in *pprofReader) offset(f *pprofFunction, file string, inMapping uint64) uint64 {
	switch {
	case !in.ours || isEventMapping(file):
		return 0
	case in.p.strings[f.system].size == 0:
		return inMapping
	}
	return inMapping % slotSize
}
