package export

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// readDocument reads the JSON document of a recording. The document may be hostile: memory is
// bounded by a budget, and the result has passed checkRecording.
func readDocument(rd io.Reader) (*profile.Recording, error) {
	d := documentReader{
		s: jsonScanner{r: bufio.NewReaderSize(rd, 1<<16)}, r: &profile.Recording{}, budget: budget{recordingBudget},
	}
	err := d.s.object(d.field)
	if err == nil {
		err = d.s.end()
	}
	if err == nil {
		err = d.finish()
	}
	if err == nil {
		err = checkRecording(d.r)
	}
	var newer newerError
	switch {
	case err == nil:
		return d.r, nil
	case errors.As(err, &newer):
		return nil, newer
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the recording is truncated: its end is missing")
	}
	return nil, fmt.Errorf("the recording is damaged: %w", err)
}

// newerError is a format version newer than this clrsnap.
type newerError int64

func (e newerError) Error() string {
	return fmt.Sprintf("the recording has version %d of its format, this clrsnap knows version %d: use a newer clrsnap",
		int64(e), recordingVersion)
}

// documentReader reads a recording. Names are indices of strings until everything has been
// read, because fields can come in any order.
type documentReader struct {
	s         jsonScanner
	r         *profile.Recording
	format    int64 // the version; 0: not known yet
	strings   []string
	functions [][6]int32 // method, display, short, signature, module, fate
	fates     bool       // the file has the column fate: files of earlier versions do not
	tiers     []int32
	callees   []int32 // of Recording.Sites
	budget    budget

	incomplete, nearest, inlined, approximate []int32 // indices of samples, of locations and of lines
}

func (d *documentReader) field(key string) error {
	if d.format == 0 && key != "format" && key != "version" {
		return errors.New("it comes before the version of the format")
	}
	switch key {
	case "version":
		return d.version()
	case "creator":
		return d.creator()
	case "start":
		text, err := d.s.text()
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return fmt.Errorf("%s is not a time in the format of RFC 3339", clip(text))
		}
		d.r.Start = at.UTC()
		return nil
	case "duration":
		return d.s.value(&d.r.Duration)
	case "strings":
		return d.s.array(func(int) error {
			s, err := d.s.text()
			d.strings = append(d.strings, s)
			return cmp.Or(err, d.budget.takeAll(entryCost, key, s))
		})
	case "functions":
		return d.functionTable()
	case "locations":
		return d.locationTable()
	case "nodes":
		return d.nodeTable()
	case "samples":
		return d.sampleTable()
	case "holds":
		return d.holdTable()
	case "methods":
		return d.methodTable()
	case "sites":
		return d.siteTable()
	case "lines":
		return d.lineTable()
	case "assemblies":
		return d.assemblyList()
	case "libraries":
		return d.libraryList()
	case "files":
		return d.sourceList()
	}
	return d.small(key)
}

// small reads a field that is not a table.
func (d *documentReader) small(key string) error {
	switch key {
	case "processes":
		return list(d, func(p *fileProcess) error {
			process := snapshot.Process{PID: p.PID, Command: p.Command, Runtime: snapshot.Runtime(p.Runtime)}
			d.r.Processes = append(d.r.Processes, process)
			return d.budget.takeProcess(&process)
		})
	case "threads":
		return list(d, func(t *fileThread) error {
			thread := profile.RecordedThread(*t)
			d.r.Threads = append(d.r.Threads, thread)
			return d.budget.takeThread(&thread)
		})
	case "modes":
		return list(d, func(m *fileMode) error {
			if len(d.r.Modes) >= len(profile.Modes) {
				return fmt.Errorf("more than %d modes", len(profile.Modes))
			}
			stats, err := m.stats()
			d.r.Modes = append(d.r.Modes, stats)
			return err
		})
	case "cost":
		var c fileCost
		err := d.s.value(&c)
		d.r.Cost = profile.Cost(c)
		return err
	case "messages":
		return list(d, func(m *fileMessage) error {
			d.r.Messages.Counts = append(d.r.Messages.Counts, profile.MessageCount(*m))
			return d.budget.takeAll(messageCost, key, m.Type, m.Module, m.Text)
		})
	case "otherMessages":
		return d.s.value(&d.r.Messages.Others)
	case "notes":
		return list(d, func(note *string) error {
			d.r.Notes = append(d.r.Notes, *note)
			return d.budget.takeAll(noteCost, key, *note)
		})
	}
	return d.s.skip()
}

// list reads an array of small values.
func list[T any](d *documentReader, add func(*T) error) error {
	return d.s.array(func(int) error {
		var v T
		if err := d.s.value(&v); err != nil {
			return err
		}
		return add(&v)
	})
}

func (d *documentReader) version() error {
	v, err := d.s.integer()
	if err == nil && v > recordingVersion {
		err = newerError(v)
	}
	if err == nil && v < 1 {
		err = fmt.Errorf("there is no version %d of the format", v)
	}
	if err == nil {
		d.format = v
	}
	return err
}

func (d *documentReader) creator() error {
	text, err := d.s.text()
	if name, version, ok := strings.Cut(text, " "); ok && name == creatorName {
		d.r.Version = version
	}
	return err
}

// finish does the work that needs all fields: it replaces indices by strings, and marks incomplete
// samples.
func (d *documentReader) finish() error {
	if d.format == 0 {
		return errors.New("the version of the format is missing")
	}
	var err error
	text := func(i int32) string {
		if !within(i, len(d.strings)) {
			err = outOfRange("string", int64(i), len(d.strings))
			return ""
		}
		return d.strings[i]
	}
	for i, n := range d.functions {
		f := &d.r.Functions[i]
		f.Method, f.Display, f.Short = text(n[0]), text(n[1]), text(n[2])
		f.Signature, f.Module = text(n[3]), text(n[4])
		if d.fates {
			f.Fate = text(n[5])
		}
		if err = cmp.Or(err, d.budget.takeNames(f)); err != nil {
			return err
		}
	}
	for i, t := range d.tiers {
		d.r.Locations[i].Tier = text(t)
		if err = cmp.Or(err, d.budget.takeText(d.r.Locations[i].Tier, "tiers of code")); err != nil {
			return err
		}
	}
	for i := range d.r.Locations {
		if d.r.Locations[i].Line > 0 {
			if err = cmp.Or(err, d.budget.take(placedCost, "places in source files")); err != nil {
				return err
			}
		}
	}
	d.finishSites(text)
	return cmp.Or(err,
		flagged("incomplete: sample", d.incomplete, d.r.Samples, func(s *profile.Sample) { s.Incomplete = true }),
		flagged("nearest: location", d.nearest, d.r.Locations, func(l *profile.Location) { l.Nearest = true }),
		flagged("inlined: location", d.inlined, d.r.Locations, func(l *profile.Location) { l.Inlined = true }),
		flagged("approximate: line", d.approximate, d.r.Lines, func(l *profile.Line) { l.Approximate = true }),
	)
}

// flagged sets a flag of the rows with indices in a column.
func flagged[T any](what string, indices []int32, table []T, set func(*T)) error {
	for _, i := range indices {
		if !within(i, len(table)) {
			return outOfRange(what, int64(i), len(table))
		}
		set(&table[i])
	}
	return nil
}
