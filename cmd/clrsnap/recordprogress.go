package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"clrsnap/export"
	"clrsnap/profile"
	"clrsnap/record"
)

// recordProgress shows the progress of a recording on standard error.
type recordProgress struct {
	a        *app
	duration time.Duration
	terminal bool
	shown    bool
}

func (a *app) newProgress(f *recordFlags) *recordProgress {
	return &recordProgress{a: a, duration: f.duration, terminal: isTerminal(a.stderr)}
}

// begin says what is recorded, and how to end it.
func (p *recordProgress) begin(what string) {
	until := "until it ends"
	if p.duration > 0 {
		until = "for " + p.duration.String()
	}
	say(p.a.stderr, "recording %s %s; Ctrl-C ends it earlier and keeps what was recorded", what, until)
}

// show updates the progress line, on a terminal.
func (p *recordProgress) show(pr record.Progress) {
	if !p.terminal {
		return
	}
	line := pr.Elapsed.Round(time.Second).String()
	if p.duration > 0 {
		line += " of " + p.duration.String()
	}
	line += fmt.Sprintf(" · %s samples", thousands(pr.Samples))
	if s := pr.Elapsed.Seconds(); s > 1 {
		line += fmt.Sprintf(", %s a second", thousands(int(float64(pr.Samples)/s)))
	}
	line += fmt.Sprintf(" · %d threads use %.2f CPUs", pr.Threads, pr.TargetCPU)
	if pr.Broken > 0 {
		line += fmt.Sprintf(" · %s incomplete", thousands(pr.Broken))
	}
	if pr.Lost > 0 {
		line += fmt.Sprintf(" · %s lost", thousands(pr.Lost))
	}
	p.shown = true
	fmt.Fprintf(p.a.stderr, "\r\x1b[K%s", clip(line, terminalWidth(p.a.stderr)-1))
}

// end removes the progress line.
func (p *recordProgress) end() {
	if p.shown {
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
	}
}

// thousands writes a number with separators.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// summarize prints how much was recorded, the recording's notes, and where it was written.
func (a *app) summarize(r *profile.Recording, path string) {
	var parts, events []string
	for i := range r.Modes {
		if m := &r.Modes[i]; m.Mode.OfEvents() {
			events = append(events, eventLine(r, m))
		} else {
			parts = append(parts, fmt.Sprintf("%s %s samples", thousands(m.Samples), m.Mode)+flaws(m))
		}
	}
	used := ""
	if d := r.Duration.Seconds(); d > 0 {
		used = fmt.Sprintf("; the program used %.2f of %d CPUs, clrsnap %.2f",
			r.Cost.TargetCPU.Seconds()/d, r.Cost.Processors, r.Cost.OwnCPU.Seconds()/d)
	}
	line := r.Duration.Round(100 * time.Millisecond).String()
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	say(a.stderr, "%s%s", line, used)
	for _, s := range events {
		say(a.stderr, "%s", s)
	}
	for _, n := range r.Notes {
		say(a.stderr, "note: %s", oneLineText(n))
	}
	if path != "-" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		say(a.stderr, "written to %s", path)
	}
}

// eventLine sums up a mode of events: "alloc: 1.23 GiB in 3,400 objects; 99 samples".
func eventLine(r *profile.Recording, m *profile.ModeStats) string {
	all := r.Totals(m.Mode).All
	samples := " samples"
	if m.Samples == 1 {
		samples = " sample"
	}
	return fmt.Sprintf("%s: %s; %s", m.Mode, export.AmountText(m.Mode, all.All()), thousands(m.Samples)) +
		samples + export.SamplingText(m) + flaws(m)
}

// flaws returns how many samples of a mode are incomplete or lost.
func flaws(m *profile.ModeStats) string {
	s := ""
	if m.Broken > 0 {
		s += fmt.Sprintf(" (%s incomplete)", thousands(m.Broken))
	}
	if m.Lost > 0 {
		s += fmt.Sprintf(", %s lost", thousands(m.Lost))
	}
	return s
}

// explainEmpty says why there may be no samples.
func (a *app) explainEmpty(r *profile.Recording, f *recordFlags) {
	why := "the program may have ended at once"
	switch {
	case len(f.threads) > 0:
		why = "no thread matches " + f.chosen.String()
	case len(f.events.events) > 0 && !f.modeGiven:
		why = "none of these events has happened"
	case f.mode == "cpu":
		why = "the program used hardly any CPU time; --mode wall shows what it waits for"
	}
	say(a.stderr, "warning: there are no samples: %s", why)
}

// awaitCommand waits for the recorded program that clrsnap has started to end. It passes on
// SIGTERM to the program.
func (a *app) awaitCommand(ctx context.Context, cmd *exec.Cmd) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	interrupted := ctx.Done()
	if ctx.Err() != nil { // the program has got Ctrl-C as well, and may take some time to end
		passOn(ctx, cmd)
		interrupted = nil
	}
	said := time.After(200 * time.Millisecond)
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				say(a.stderr, "the program ended with %v", exit)
			}
			return
		case <-said:
			a.finished.Store(true)
			say(a.stderr, "waiting for the program (process %d) to end; Ctrl-C leaves it alone", cmd.Process.Pid)
		case <-interrupted:
			if !passOn(ctx, cmd) {
				return
			}
			interrupted = nil
		}
	}
}

// passOn passes on SIGTERM, if that is what ended ctx.
func passOn(ctx context.Context, cmd *exec.Cmd) bool {
	if context.Cause(ctx) != signalError(syscall.SIGTERM) {
		return false
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return true
}
