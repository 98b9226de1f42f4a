package export

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"clrsnap/profile"
)

// readSpeedscope reads speedscope's own format, sampled and evented profiles. The file is in memory as
// text; only the parts for the recording are decoded and kept.
func readSpeedscope(fields map[string][]byte) (*profile.Recording, error) {
	in := speedscopeReader{importer: newImporter(), a: newMemoryScanner(nil), b: newMemoryScanner(nil), native: -1,
		inNative: map[int32]bool{}}
	if err := in.read(fields); err != nil {
		return nil, fmt.Errorf("the speedscope file is damaged: %w", err)
	}
	return in.finish()
}

type speedscopeReader struct {
	*importer
	a, b   *memoryScanner // two, because samples and weights are read side by side
	ours   bool           // clrsnap wrote the file
	frames []int32        // the locations of frames; -1: incompleteFrame
	// native is the location of unmanagedTime, and inNative the nodes with native. -1: there is none, and
	// the file is not from dotnet-trace.
	native   int32
	inNative map[int32]bool
}

// unmanagedTime is dotnet-trace's frame on stacks of threads outside managed code. dotnet-trace takes
// the stacks of all threads by the clock, and does not know whether those threads run or wait.
const unmanagedTime = "UNMANAGED_CODE_TIME"

func (in *speedscopeReader) read(fields map[string][]byte) error {
	var exporter string
	if err := optional(fields["exporter"], &exporter); err != nil {
		return err
	}
	if in.ours = strings.HasPrefix(exporter, creatorName); in.ours {
		in.r.Version = strings.TrimPrefix(strings.TrimPrefix(exporter, creatorName), " ")
	}
	in.a.reset(fields["shared"])
	var frames []byte
	err := in.a.fields(func(name string, value []byte) {
		if name == "frames" {
			frames = value
		}
	})
	if err == nil && frames != nil {
		in.a.reset(frames)
		err = in.a.array(func(int) error { return in.frame() })
	}
	if err == nil && !in.ours {
		note := "Speedscope files do not say what kind of time was measured: " +
			"all time is shown as CPU time, unless a profile's name says otherwise."
		if in.native >= 0 {
			note = "dotnet-trace takes stacks by the clock: stacks are shown as wall-clock time, " +
				"and threads in native code as waiting, because most of these threads wait."
		}
		err = in.note(note)
	}
	if err != nil {
		return err
	}
	profiles := newMemoryScanner(fields["profiles"])
	return profiles.array(func(i int) error {
		p, err := profiles.element()
		if err == nil {
			err = in.profile(p)
		}
		if err != nil {
			return fmt.Errorf("profile %d: %w", i, err)
		}
		return nil
	})
}

// optional reads a small field, which may be missing.
func optional(value []byte, into any) error {
	switch {
	case value == nil:
		return nil
	case len(value) > maxValue:
		return errors.New("a value is too large")
	}
	return unmarshal(value, into)
}

// frame reads a frame of the table that profiles refer to.
func (in *speedscopeReader) frame() error {
	var name, file, module string
	err := in.a.object(func(field string) (err error) {
		switch field {
		case "name":
			name, err = in.a.text()
		case "file":
			err = in.a.value(&file) // can be null
		case "module": // in clrsnap's files, where file is the source
			err = in.a.value(&module)
		default:
			err = in.a.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	at := int32(-1)
	if name != incompleteFrame || file != "" {
		function, err := in.function(name, cmp.Or(module, file))
		if err == nil {
			at, err = in.location(profile.Location{Function: function})
		}
		if err != nil {
			return err
		}
	}
	in.frames = append(in.frames, at)
	if name == unmanagedTime && !in.ours {
		in.native = at
	}
	return in.budget.take(4, "frames")
}

func (in *speedscopeReader) profile(all []byte) error {
	var kind, name, unitName string
	var start float64
	small := map[string]any{"type": &kind, "name": &name, "unit": &unitName, "startValue": &start}
	lists := map[string][]byte{"samples": []byte("[]"), "weights": []byte("[]"), "events": []byte("[]")}
	var damaged error
	in.a.reset(all)
	err := in.a.fields(func(field string, value []byte) {
		if into, ok := small[field]; ok {
			damaged = cmp.Or(damaged, optional(value, into))
		} else if _, ok := lists[field]; ok {
			lists[field] = value
		}
	})
	if err = cmp.Or(err, damaged); err != nil {
		return err
	}
	s := profile.Sample{}
	if s.Thread, s.Mode, err = in.named(name); err != nil {
		return err
	}
	unit, err := in.unit(unitName, &s.Mode)
	if err != nil {
		return err
	}
	if in.native >= 0 && s.Mode.Unit() == profile.Nanoseconds {
		s.Mode = profile.Wall
	}
	switch kind {
	case "sampled":
		return in.sampled(lists["samples"], lists["weights"], unit, s)
	case "evented":
		return in.evented(lists["events"], start, unit, s)
	}
	return fmt.Errorf("there is no type %s", clip(kind))
}

// unit returns how much a weight of 1 in the file is, in the unit of the mode. It changes the mode if
// the file's unit does not fit the mode.
func (in *speedscopeReader) unit(name string, m *profile.Mode) (int64, error) {
	of, isTime := timeUnit(name)
	switch {
	case isTime:
		if m.Unit() != profile.Nanoseconds {
			*m = profile.CPU
		}
		return int64(of), nil
	case name == profile.Bytes.String():
		if m.Unit() != profile.Bytes {
			*m = profile.Alloc
		}
		return 1, nil
	case name != speedscopeNoUnit && name != "":
		return 0, fmt.Errorf("its numbers are %s, neither times nor bytes nor counts", clip(name))
	case m.Unit() == profile.Count:
		return 1, nil
	}
	*m = profile.CPU
	return int64(time.Microsecond), in.note("A profile has no unit: its numbers are read as microseconds.")
}

var withTID = regexp.MustCompile(`^(?:(.*) \((\d+)\)|thread (\d+))$`)

// named returns the thread and the mode in the name of a profile, if clrsnap has written the profile.
func (in *speedscopeReader) named(name string) (thread int32, mode profile.Mode, err error) {
	t := profile.RecordedThread{}
	if t.Process, err = in.process(0); err != nil {
		return 0, 0, err
	}
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
	thread, err = in.thread(t)
	return thread, mode, err
}

func (in *speedscopeReader) sampled(samples, weights []byte, unit int64, s profile.Sample) error {
	in.a.reset(samples)
	in.b.reset(weights)
	stacks, numbers := jsonList{s: &in.a.jsonScanner}, jsonList{s: &in.b.jsonScanner}
	for {
		more, err := stacks.more()
		if err != nil {
			return err
		}
		weighed, err := numbers.more()
		switch {
		case err != nil:
			return err
		case more != weighed:
			return errors.New("the numbers of samples and weights differ")
		case !more:
			return nil
		}
		weight, err := in.b.float()
		if err != nil {
			return err
		}
		if err := in.sample(scaled(weight, unit), &s); err != nil {
			return err
		}
	}
}

// sample reads a stack, base first, and adds a sample with the weight.
func (in *speedscopeReader) sample(weight int64, s *profile.Sample) error {
	s.Weight, s.Node, s.Incomplete = weight, 0, false
	there := false
	err := in.a.array(func(int) error {
		there = true
		frame, err := in.a.integer()
		if err != nil {
			return err
		}
		return in.enterFrame(s, frame)
	})
	if err != nil {
		return err
	}
	return in.end(s, there)
}

// end sets the time of a sample and adds the sample, unless the stack is empty: an empty stack is a
// time without samples. The file has no times for bytes and counts.
func (in *speedscopeReader) end(s *profile.Sample, there bool) error {
	if s.Mode.Unit() == profile.Nanoseconds {
		s.At = min(s.At+time.Duration(s.Weight), maxTime)
		in.r.Duration = max(in.r.Duration, s.At)
	}
	if in.native >= 0 {
		s.State = profile.Running
		if in.inNative[s.Node] {
			s.State = profile.Waiting
		}
	}
	if there || s.Weight < 0 {
		return in.add(*s)
	}
	return nil
}

// enterFrame makes a frame the leaf of the stack.
func (in *speedscopeReader) enterFrame(s *profile.Sample, frame int64) error {
	if frame < 0 || frame >= int64(len(in.frames)) {
		return outOfRange("frame", frame, len(in.frames))
	}
	if in.frames[frame] < 0 {
		s.Incomplete = true
		return nil
	}
	if err := in.enter(s, in.frames[frame]); err != nil {
		return err
	}
	if in.frames[frame] == in.native {
		in.inNative[s.Node] = true
	}
	return nil
}

// speedscopeEvent says that a frame was entered or left.
type speedscopeEvent struct {
	kind  string // O: opened, that is entered; C: closed
	frame int64
	at    float64
}

func (in *speedscopeReader) event() (e speedscopeEvent, err error) {
	err = in.a.object(func(name string) (err error) {
		switch name {
		case "type":
			e.kind, err = in.a.text()
		case "frame":
			e.frame, err = in.a.integer()
		case "at":
			e.at, err = in.a.float()
		default:
			err = in.a.skip()
		}
		return err
	})
	return e, err
}

// evented reads an evented profile. Each time between two events becomes a sample.
func (in *speedscopeReader) evented(events []byte, start float64, unit int64, s profile.Sample) error {
	type open struct {
		frame      int64
		below      int32 // the leaf node before this frame
		incomplete bool
	}
	var stack []open
	now := start
	in.a.reset(events)
	return in.a.array(func(int) error {
		e, err := in.event()
		if err != nil {
			return err
		}
		if s.Weight = scaled(e.at-now, unit); s.Weight != 0 {
			if err := in.end(&s, len(stack) > 0); err != nil {
				return err
			}
			now = e.at
		}
		switch top := len(stack) - 1; {
		case e.kind == "O" && top+1 >= profile.MaxDepth:
			return errTooDeep
		case e.kind == "O":
			stack = append(stack, open{e.frame, s.Node, s.Incomplete})
			return in.enterFrame(&s, e.frame)
		case e.kind == "C" && top >= 0 && stack[top].frame == e.frame:
			s.Node, s.Incomplete, stack = stack[top].below, stack[top].incomplete, stack[:top]
			return nil
		}
		return errors.New("a frame is closed before the last opened frame")
	})
}
