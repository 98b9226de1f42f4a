package export

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"clrsnap/profile"
)

type speedscopeFile struct {
	Exporter string `json:"exporter"`
	Shared   struct {
		Frames []speedscopeFrame `json:"frames"`
	} `json:"shared"`
	Profiles []speedscopeProfile `json:"profiles"`
}

type speedscopeProfile struct {
	Type       string    `json:"type"`
	Name       string    `json:"name"`
	Unit       string    `json:"unit"`
	StartValue float64   `json:"startValue"`
	Samples    [][]int32 `json:"samples"` // base first
	Weights    []float64 `json:"weights"`
	Events     []struct {
		Type  string  `json:"type"` // O: a frame is opened, C: closed
		Frame int32   `json:"frame"`
		At    float64 `json:"at"`
	} `json:"events"`
}

// readSpeedscope reads speedscope's own format, sampled and evented.
func readSpeedscope(all []byte) (*profile.Recording, error) {
	var f speedscopeFile
	if err := unmarshal(all, &f); err != nil {
		return nil, fmt.Errorf("the speedscope file is damaged: %w", err)
	}
	in := speedscopeReader{importer: newImporter(), ours: strings.HasPrefix(f.Exporter, creatorName)}
	in.read(&f)
	if in.err != nil {
		return nil, fmt.Errorf("the speedscope file is damaged: %w", in.err)
	}
	return in.finish()
}

type speedscopeReader struct {
	*importer
	ours      bool
	locations []int32 // by frame; -1: the mark of a missing beginning
	err       error
}

func (in *speedscopeReader) read(f *speedscopeFile) {
	if in.ours {
		in.r.Version = strings.TrimPrefix(strings.TrimPrefix(f.Exporter, creatorName), " ")
	} else {
		in.r.Notes = []string{"Speedscope files do not say what kind of time was measured: it is shown as CPU time, unless a profile is named otherwise."}
	}
	for _, fr := range f.Shared.Frames {
		l := int32(-1)
		if fr.Name != incompleteFrame || fr.File != "" {
			l = in.b.Location(profile.Location{Function: in.function(fr.Name, fr.File)})
		}
		in.locations = append(in.locations, l)
	}
	for i := range f.Profiles {
		p := &f.Profiles[i]
		if err := in.profile(p); err != nil && in.err == nil {
			in.err = fmt.Errorf("profile %d: %w", i, err)
		}
	}
}

func (in *speedscopeReader) profile(p *speedscopeProfile) error {
	s := profile.Sample{}
	s.Thread, s.Mode = in.named(p.Name)
	unit, err := in.unit(p.Unit, &s.Mode)
	if err != nil {
		return err
	}
	switch p.Type {
	case "sampled":
		return in.sampled(p, unit, s)
	case "evented":
		return in.evented(p, unit, s)
	}
	return fmt.Errorf("there is no type %s", clip(p.Type))
}

// unit is what one of a profile's numbers is, in the unit of its mode. That is
// changed where the numbers cannot be of the mode that the name says.
func (in *speedscopeReader) unit(name string, m *profile.Mode) (int64, error) {
	of, isTime := timeUnit(name)
	switch {
	case isTime:
		if m.Unit() != profile.Nanoseconds {
			*m = profile.CPU
		}
		return int64(of), nil
	case name == profile.Bytes.String():
		*m = profile.Alloc
		return 1, nil
	case name != speedscopeNoUnit && name != "":
		return 0, fmt.Errorf("its numbers are %s, neither times nor bytes nor counts", clip(name))
	case m.Unit() == profile.Count:
		return 1, nil
	}
	*m = profile.CPU
	in.r.Notes = append(in.r.Notes, "A profile has no unit: its numbers are taken for microseconds.")
	return int64(time.Microsecond), nil
}

var withTID = regexp.MustCompile(`^(?:(.*) \((\d+)\)|thread (\d+))$`)

// named takes the name of a profile apart, as far as it is ours: thread and mode.
func (in *speedscopeReader) named(name string) (thread int32, mode profile.Mode) {
	t := profile.RecordedThread{Process: in.process(0)}
	for _, m := range profile.Modes {
		if rest, ok := strings.CutSuffix(name, modeSuffix(m)); ok {
			name, mode = rest, m
		}
	}
	t.Name = name
	if p := withTID.FindStringSubmatch(name); p != nil {
		if id, err := strconv.Atoi(p[2] + p[3]); err == nil {
			t.Name, t.OSThreadID = p[1], id
		}
	}
	return in.thread(t), mode
}

func (in *speedscopeReader) sampled(p *speedscopeProfile, unit int64, s profile.Sample) error {
	if len(p.Samples) != len(p.Weights) {
		return fmt.Errorf("%d samples have %d weights", len(p.Samples), len(p.Weights))
	}
	for i, stack := range p.Samples {
		s.Weight, s.Node, s.Incomplete = scaled(p.Weights[i], unit), 0, false
		for _, frame := range stack {
			if err := in.enter(&s, frame); err != nil {
				return err
			}
		}
		if err := in.put(&s, len(stack) > 0); err != nil {
			return err
		}
	}
	return nil
}

// put moves on to the end of a sample and adds it, unless it stands for a time
// without any. When bytes or counts were is not in the file.
func (in *speedscopeReader) put(s *profile.Sample, there bool) error {
	if s.Mode.Unit() == profile.Nanoseconds {
		s.At = min(s.At+time.Duration(s.Weight), maxTime)
		in.r.Duration = max(in.r.Duration, s.At)
	}
	if there || s.Weight < 0 {
		return in.add(*s)
	}
	return nil
}

// enter makes a frame the leaf of the stack.
func (in *speedscopeReader) enter(s *profile.Sample, frame int32) error {
	if !within(frame, len(in.locations)) {
		return fmt.Errorf("frame %d of %d", frame, len(in.locations))
	}
	if in.locations[frame] < 0 {
		s.Incomplete = true
		return nil
	}
	s.Node = in.b.Child(s.Node, in.locations[frame])
	return nil
}

// evented reads what entered and left frames: each stretch between two events is a
// sample.
func (in *speedscopeReader) evented(p *speedscopeProfile, unit int64, s profile.Sample) error {
	type open struct {
		frame, below int32 // below: the node that was the leaf before
		incomplete   bool
	}
	var stack []open
	now := p.StartValue
	for _, e := range p.Events {
		if s.Weight = scaled(e.At-now, unit); s.Weight != 0 {
			if err := in.put(&s, len(stack) > 0); err != nil {
				return err
			}
			now = e.At
		}
		switch top := len(stack) - 1; {
		case e.Type == "O":
			stack = append(stack, open{e.Frame, s.Node, s.Incomplete})
			if err := in.enter(&s, e.Frame); err != nil {
				return err
			}
		case e.Type == "C" && top >= 0 && stack[top].frame == e.Frame:
			s.Node, s.Incomplete, stack = stack[top].below, stack[top].incomplete, stack[:top]
		default:
			return errors.New("a frame is left that was not the last one entered")
		}
	}
	return nil
}
