package export

import (
	"errors"
	"fmt"

	"clrsnap/profile"
)

// pprofFile is a profile in memory in its encoded form, a message of pprof's profile.proto. It has an
// index of the tables' entries. Samples are decoded one after the other and not kept, because a
// decoded profile can be a hundred times as large as its file.
type pprofFile struct {
	raw                            []byte
	strings                        []pprofSpan
	made                           map[int32]string // the decoded strings, by index
	types                          []pprofType
	mappings                       []pprofMapping
	functions                      []pprofFunction
	locations                      []pprofLocation
	mappingID, functionID, placeID idTable // the indices of entries by their ids
	comments                       []int64
	time, duration, period         int64
	periodType                     pprofType
	tables                         budget
}

// tableBudget is how many bytes the tables of a profile may take during reading.
const tableBudget = 256 << 20

// How many bytes an entry of a table takes, with its id.
const (
	spanCost = 16
	rowCost  = 64
)

// maxTypes is how many values a sample may have.
const maxTypes = 1 << 10

// pprofSpan is a part of the file.
type pprofSpan struct{ start, size uint32 }

// pprofType is a sample type: the indices of its strings, and then the strings.
type pprofType struct {
	nameAt, unitAt int64
	name, unit     string
}

type pprofMapping struct {
	start, limit uint64
	file         int64
}

// pprofFunction is a function; its fields are indices of strings.
type pprofFunction struct{ name, system, file int64 }

// pprofLocation is a location. It is decoded for the first sample with the location.
type pprofLocation struct {
	pprofSpan
	first, n int32 // its part of pprofReader.places; first is -1: not decoded yet
}

// scanPprof indexes the tables of a profile.
func scanPprof(raw []byte) (*pprofFile, error) {
	p := &pprofFile{raw: raw, made: map[int32]string{}, tables: budget{tableBudget}}
	if err := messageFields(raw, p.field); err != nil {
		return nil, err
	}
	if len(p.strings) == 0 || p.strings[0].size != 0 {
		return nil, errors.New("the first string is not empty")
	}
	var err error
	for i := range p.types {
		t := &p.types[i]
		t.name, t.unit = p.text(t.nameAt, &err), p.text(t.unitAt, &err)
	}
	t := &p.periodType
	t.name, t.unit = p.text(t.nameAt, &err), p.text(t.unitAt, &err)
	return p, err
}

// field stores or indexes a field of the profile. It skips samples.
func (p *pprofFile) field(f wireField) (err error) {
	switch f.number {
	case 1:
		if len(p.types) >= maxTypes {
			return tooLargeError(fmt.Sprintf("the pprof profile has more than %d sample types", maxTypes))
		}
		var t pprofType
		t, err = valueType(f.bytes)
		p.types = append(p.types, t)
	case 3:
		err = p.mapping(f.bytes)
	case 4:
		err = p.location(f)
	case 5:
		err = p.function(f.bytes)
	case 6:
		p.strings = append(p.strings, f.span())
		err = p.tables.take(spanCost, "strings")
	case 9:
		p.time = int64(f.value)
	case 10:
		p.duration = int64(f.value)
	case 11:
		p.periodType, err = valueType(f.bytes)
	case 12:
		p.period = int64(f.value)
	case 13:
		err = f.numbers(func(v uint64) error {
			if len(p.comments) < maxNotes {
				p.comments = append(p.comments, int64(v))
			}
			return nil
		})
	}
	return err
}

func (p *pprofFile) bytes(s pprofSpan) []byte { return p.raw[s.start : s.start+s.size] }

func valueType(message []byte) (t pprofType, err error) {
	err = messageFields(message, func(f wireField) error {
		switch f.number {
		case 1:
			t.nameAt = int64(f.value)
		case 2:
			t.unitAt = int64(f.value)
		}
		return nil
	})
	return t, err
}

func (p *pprofFile) mapping(message []byte) error {
	var m pprofMapping
	id := uint64(0)
	err := messageFields(message, func(f wireField) error {
		switch f.number {
		case 1:
			id = f.value
		case 2:
			m.start = f.value
		case 3:
			m.limit = f.value
		case 5:
			m.file = int64(f.value)
		}
		return nil
	})
	p.mappings = append(p.mappings, m)
	return p.entry(&p.mappingID, id, "mappings", err)
}

func (p *pprofFile) function(message []byte) error {
	var x pprofFunction
	id := uint64(0)
	err := messageFields(message, func(f wireField) error {
		switch f.number {
		case 1:
			id = f.value
		case 2:
			x.name = int64(f.value)
		case 3:
			x.system = int64(f.value)
		case 4:
			x.file = int64(f.value)
		}
		return nil
	})
	p.functions = append(p.functions, x)
	return p.entry(&p.functionID, id, "functions", err)
}

func (p *pprofFile) location(l wireField) error {
	id := uint64(0)
	err := messageFields(l.bytes, func(f wireField) error {
		if f.number == 1 {
			id = f.value
		}
		return nil
	})
	p.locations = append(p.locations, pprofLocation{pprofSpan: l.span(), first: -1})
	return p.entry(&p.placeID, id, "locations", err)
}

// entry assigns an id to the newest entry of a table.
func (p *pprofFile) entry(ids *idTable, id uint64, what string, err error) error {
	if err == nil {
		err = p.tables.take(rowCost, what)
	}
	if err == nil && !ids.add(id) {
		err = fmt.Errorf("two %s have the id %d, or the id is not allowed", what, id)
	}
	return err
}

// text returns a string of the file. It sets err if there is no string i.
func (p *pprofFile) text(i int64, err *error) string {
	if i < 0 || i >= int64(len(p.strings)) {
		*err = outOfRange("string", i, len(p.strings))
		return ""
	}
	s, ok := p.made[int32(i)]
	if !ok {
		span := p.strings[i]
		if e := p.tables.take(int(rowCost+span.size), "strings"); e != nil {
			*err = e
			return ""
		}
		s = string(p.bytes(span))
		p.made[int32(i)] = s
	}
	return s
}

// pprofPlaces is a decoded location, with several functions if calls were inlined.
type pprofPlaces struct {
	mapping int32 // -1: not known
	address uint64
	lines   []pprofLine // leaf first
}

// pprofLine is a line of a location: a function, and a place in its source file.
type pprofLine struct {
	function     int32
	line, column int64 // 0: not known
}

// read decodes a location.
func (p *pprofFile) read(l *pprofLocation) (out pprofPlaces, err error) {
	out.mapping = -1
	err = messageFields(p.bytes(l.pprofSpan), func(f wireField) error {
		switch f.number {
		case 2:
			if f.value != 0 {
				i, ok := p.mappingID.get(f.value)
				if !ok {
					return fmt.Errorf("there is no mapping %d", f.value)
				}
				out.mapping = i
			}
		case 3:
			out.address = f.value
		case 4:
			l, err := p.line(f.bytes)
			if err != nil {
				return err
			}
			if len(out.lines) >= profile.MaxDepth {
				return errTooDeep
			}
			out.lines = append(out.lines, l)
		}
		return nil
	})
	return out, err
}

// line decodes a line of a location.
func (p *pprofFile) line(message []byte) (l pprofLine, err error) {
	id := uint64(0)
	err = messageFields(message, func(f wireField) error {
		switch f.number {
		case 1:
			id = f.value
		case 2:
			l.line = int64(f.value)
		case 3:
			l.column = int64(f.value)
		}
		return nil
	})
	i, ok := p.functionID.get(id)
	if err == nil && !ok {
		err = fmt.Errorf("there is no function %d", id)
	}
	l.function = i
	return l, err
}

// pprofSample is one sample. The next sample overwrites it.
type pprofSample struct {
	stack  []int32 // indices of locations, leaf first
	values []int64
	labels []pprofLabel
}

// pprofLabel is a label with a text or else a number.
type pprofLabel struct {
	name, text string
	number     int64
}

// maxLabels bounds the kept labels of a sample.
const maxLabels = 1 << 8

// samples calls each with every sample.
func (p *pprofFile) samples(each func(*pprofSample) error) error {
	var s pprofSample
	return messageFields(p.raw, func(f wireField) error {
		if f.number != 2 {
			return nil
		}
		s.stack, s.values, s.labels = s.stack[:0], s.values[:0], s.labels[:0]
		if err := messageFields(f.bytes, func(f wireField) error { return p.sampleField(&s, f) }); err != nil {
			return err
		}
		if len(s.values) != len(p.types) {
			return fmt.Errorf("a sample has %d values, for %d sample types", len(s.values), len(p.types))
		}
		return each(&s)
	})
}

func (p *pprofFile) sampleField(s *pprofSample, f wireField) error {
	switch f.number {
	case 1:
		return f.numbers(func(id uint64) error {
			i, ok := p.placeID.get(id)
			switch {
			case !ok:
				return fmt.Errorf("there is no location %d", id)
			case len(s.stack) >= profile.MaxDepth:
				return errTooDeep
			}
			s.stack = append(s.stack, i)
			return nil
		})
	case 2:
		return f.numbers(func(v uint64) error {
			if len(s.values) >= len(p.types) {
				return fmt.Errorf("a sample has more values than the %d sample types", len(p.types))
			}
			s.values = append(s.values, int64(v))
			return nil
		})
	case 3:
		return p.label(s, f.bytes)
	}
	return nil
}

// label keeps a label if its name is one of pprofLabelNames.
func (p *pprofFile) label(s *pprofSample, message []byte) error {
	var key, text, number int64
	err := messageFields(message, func(f wireField) error {
		switch f.number {
		case 1:
			key = int64(f.value)
		case 2:
			text = int64(f.value)
		case 3:
			number = int64(f.value)
		}
		return nil
	})
	if err != nil || key < 0 || key >= int64(len(p.strings)) || len(s.labels) >= maxLabels || text == 0 && number == 0 {
		return err
	}
	name, ok := pprofLabelNames[string(p.bytes(p.strings[key]))]
	if !ok {
		return nil
	}
	l := pprofLabel{name: name, number: number}
	if text != 0 {
		l.text = p.text(text, &err)
	}
	s.labels = append(s.labels, l)
	return err
}
