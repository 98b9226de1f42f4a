package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
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

// begin prints the start of the recording, and how to end the recording.
func (p *recordProgress) begin(what string) {
	until := "until the end"
	if p.duration > 0 {
		until = "for " + p.duration.String()
	}
	p.a.catchSignals()
	say(p.a.stderr, "recording %s %s; Ctrl-C ends the recording earlier and keeps the samples", what, until)
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
	line += fmt.Sprintf(" · %s %s", display.Number(pr.Samples), display.Plural(pr.Samples, "sample", "samples"))
	if s := pr.Elapsed.Seconds(); s > 1 {
		line += fmt.Sprintf(", %s a second", display.Number(int(float64(pr.Samples)/s)))
	}
	line += fmt.Sprintf(" · %d %s %.2f CPUs", pr.Threads, display.Plural(pr.Threads, "thread uses", "threads use"),
		pr.TargetCPU)
	if pr.Broken > 0 {
		line += fmt.Sprintf(" · %s incomplete", display.Number(pr.Broken))
	}
	if pr.Lost > 0 {
		line += fmt.Sprintf(" · %s lost", display.Number(pr.Lost))
	}
	p.shown = true
	fmt.Fprintf(p.a.stderr, "\r\x1b[K%s", display.Clip(line, terminalWidth(p.a.stderr)-1))
}

// end removes the progress line.
func (p *recordProgress) end() {
	if p.shown {
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
	}
}

// summarize prints how much was recorded, the recording's notes, and the file.
func (a *app) summarize(r *profile.Recording, path string) {
	for _, line := range report.RecordingSummary(r) {
		say(a.stderr, "%s", line)
	}
	if path != "-" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		say(a.stderr, "written to %s", path)
	}
}

// explainEmpty says why there may be no samples.
func (a *app) explainEmpty(r *profile.Recording, f *recordFlags) {
	why := "the program may have ended at once"
	switch {
	case len(f.threads) > 0:
		why = "no thread matches " + f.chosen.String()
	case len(f.events.events) > 0 && !f.modeGiven:
		why = "no event has happened"
	case f.mode == "cpu":
		why = "the program used hardly any CPU time; --mode wall shows what threads wait for"
	}
	say(a.stderr, "warning: there are no samples: %s", why)
}

// awaitCommand waits for the end of the recorded program that clrsnap has started. awaitCommand passes SIGTERM on to
// the program, and returns a programError if the program has ended with another status than 0.
func (a *app) awaitCommand(ctx context.Context, cmd *exec.Cmd) error {
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
				return programError(exitStatus(exit.ProcessState))
			}
			return nil
		case <-said:
			a.finished.Store(true)
			say(a.stderr, "waiting for the program (process %d) to end; Ctrl-C leaves the program alone",
				cmd.Process.Pid)
		case <-interrupted:
			if !passOn(ctx, cmd) {
				return nil
			}
			interrupted = nil
		}
	}
}

// passOn passes on SIGTERM, if a SIGTERM ended ctx.
func passOn(ctx context.Context, cmd *exec.Cmd) bool {
	if context.Cause(ctx) != signalError(syscall.SIGTERM) {
		return false
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // the program may have ended
	return true
}
