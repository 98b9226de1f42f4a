package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"clrsnap/export"
	"clrsnap/internal/display"
	"clrsnap/profile"
)

// selection returns the part of a recording in the flags.
func (f *viewFlags) selection() profile.Selection {
	s := profile.Selection{Managed: f.managed, Native: f.native, From: f.from, To: f.to,
		NoInlined: f.inlined == "never"}
	if f.whole() && !f.managed {
		s.Native = true
	}
	if f.tableOfWaits() {
		s.Managed, s.Native = false, true // the callee that waits can be a native frame
	}
	if len(f.threads) > 0 {
		s.Threads = f.chosen.matchesRecorded
	}
	if f.mode != modeAll || f.state != "" {
		s.Modes = f.modes()
	}
	switch f.state {
	case profile.Running.String():
		s.States = []profile.State{profile.Running}
	case profile.Waiting.String():
		s.States = []profile.State{profile.Waiting}
	}
	return s
}

// The values of --mode besides the names of modes.
const (
	modeBoth = "both" // CPU time and wall-clock time
	modeAll  = "all"
)

// viewModes returns the values of --mode.
func viewModes() []string {
	var out []string
	for _, m := range profile.Modes {
		out = append(out, m.String())
	}
	return append(out, modeBoth, modeAll)
}

// modes returns the modes in --mode and --state.
func (f *viewFlags) modes() []profile.Mode {
	var out []profile.Mode
	for _, m := range profile.Modes {
		chosen := f.mode == modeAll || f.mode == m.String() || f.mode == modeBoth && !m.OfEvents()
		if chosen && (f.state == "" || hasState(m, f.state)) {
			out = append(out, m)
		}
	}
	return out
}

// hasState reports whether a mode can have samples of threads in the given state.
func hasState(m profile.Mode, state string) bool {
	switch {
	case m == profile.Wall:
		return true
	case m.OfWaits():
		return state == profile.Waiting.String()
	}
	return state == profile.Running.String()
}

// whyNoState says why modes have no samples of a state.
var whyNoState = map[string]string{
	profile.Running.String(): "the threads were waiting",
	profile.Waiting.String(): "a waiting thread has no samples of these modes; " +
		"--mode wall, --mode wait and --mode contention show what threads wait for",
}

// whole reports whether the output keeps all frames, because its reader can choose.
func (f *viewFlags) whole() bool {
	return f.file.format == export.FormatHTML || f.file.format == export.FormatRecording
}

// chooses reports whether the flags leave out any part of a recording.
func (f *viewFlags) chooses() bool {
	return f.managed || f.mode != modeAll || f.state != "" || len(f.threads) > 0 || f.from > 0 || f.to > 0 ||
		f.inlined == "never"
}

// choose reads a recording, and returns the part in the flags.
func (a *app) choose(ctx context.Context, file string, in io.Reader, f *viewFlags) (*profile.Recording, error) {
	r, err := a.read(ctx, file, in)
	if err != nil {
		return nil, err
	}
	if f.lines == "never" {
		r = r.WithoutLines()
	} else {
		a.addLines(ctx, r, &f.source)
	}
	if f.source.noText {
		r = r.WithoutText()
	}
	if f.by == byWait && !f.tableOfWaits() && f.file.format != export.FormatHTML {
		r = r.ByWait()
	}
	if f.whole() && !f.chooses() {
		return r, nil
	}
	if f.from > 0 && f.from >= r.Duration && r.Duration > 0 {
		return nil, fmt.Errorf("--from %v is after the end of %s: the recording is %v long",
			f.from, file, r.Duration.Round(time.Millisecond))
	}
	out := r.Select(f.selection())
	if len(out.Samples) == 0 && len(r.Samples) > 0 {
		return nil, f.explainNothing(r, file)
	}
	return out, nil
}

// matchesRecorded is matches for the threads of a recording.
func (f *threadFilter) matchesRecorded(t *profile.RecordedThread) bool {
	if t.OSThreadID != 0 && f.ids[t.OSThreadID] {
		return true
	}
	for _, re := range f.names {
		if re.MatchString(recordedName(t)) {
			return true
		}
	}
	return false
}

func recordedName(t *profile.RecordedThread) string { return cmp.Or(t.Name, t.Role) }

// explainNothing returns an error that names the flags without a matching sample.
func (f *viewFlags) explainNothing(r *profile.Recording, file string) error {
	there, wanted := r.SampledModes(), f.modes()
	if !slices.ContainsFunc(there, func(m profile.Mode) bool { return slices.Contains(wanted, m) }) {
		return fmt.Errorf("%s has no %s samples, only %s samples", file, joined(wanted, "or"), joined(there, "and"))
	}
	if len(f.threads) > 0 && len(r.Select(profile.Selection{Threads: f.chosen.matchesRecorded}).Samples) == 0 {
		return fmt.Errorf("%s has no samples of threads that match %s, only samples of %s",
			file, f.chosen, threadNames(r))
	}
	return fmt.Errorf("%s has no samples that match all of the flags: "+
		"use fewer of --mode, --state, --threads, --from and --to",
		file)
}

// threadNames returns the names of some sampled threads, the busiest first.
func threadNames(r *profile.Recording) string {
	const most = 8
	var names []string
	seen := map[string]bool{}
	for _, m := range r.SampledModes() {
		for _, t := range r.Totals(m).Threads {
			x := &r.Threads[t.Thread]
			name := display.OneLine(recordedName(x))
			if name == "" {
				name = fmt.Sprint(x.OSThreadID)
			}
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	if n := len(names) - most; n > 1 {
		names = append(names[:most], fmt.Sprintf("%d others", n))
	}
	return strings.Join(names, ", ")
}

// joined returns the names of modes as a list in words: "cpu, wall and gc".
func joined(modes []profile.Mode, last string) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = m.String()
	}
	return enumerated(names, last)
}

// requireCommon returns an error unless both recordings have samples of the same mode.
func requireCommon(now *profile.Recording, file string, base *profile.Recording, baseFile string) error {
	a, b := now.SampledModes(), base.SampledModes()
	if len(a) == 0 || len(b) == 0 {
		if len(a) == 0 {
			baseFile = file
		}
		return fmt.Errorf("%s has no samples: there is nothing to compare", baseFile)
	}
	if !slices.ContainsFunc(a, func(m profile.Mode) bool { return slices.Contains(b, m) }) {
		return fmt.Errorf("cannot compare %s samples with %s samples: %s and %s have no mode in common",
			joined(a, "and"), joined(b, "and"), file, baseFile)
	}
	return nil
}

// span returns a copy of a recording with the start and the duration of --from and --to. The copy's CPU time is 0: the
// CPU time of a part is unknown.
func (f *viewFlags) span(r *profile.Recording) *profile.Recording {
	if r == nil {
		return nil
	}
	out := *r
	if !out.Start.IsZero() {
		out.Start = out.Start.Local().Add(f.from)
	}
	if f.from > 0 || f.to > 0 {
		end := out.Duration
		if f.to > 0 {
			end = min(end, f.to)
		}
		out.Duration, out.Cost.TargetCPU = max(end-f.from, 0), 0
	}
	return &out
}
