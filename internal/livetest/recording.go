package livetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
)

// LateTimer says why a recording is made once more: a lack of sampled CPU time must happen twice to be
// a fault.
const LateTimer = "ONCE MORE: a timer of the kernel's that comes late, for want of a CPU for the machine itself, " +
	"gives one sample for all of that time"

// A Started program, and its recording.
type Started struct {
	*exec.Cmd
	Out       bytes.Buffer
	Recording *profile.Recording
	Err       error
}

// RecordCommand starts a program and records it, until it ends or hangs, and waits for it.
func RecordCommand(tb testing.TB, args []string, opts clrsnap.Options, o record.Options) *Started {
	tb.Helper()
	s := &Started{Cmd: exec.Command(args[0], args[1:]...)}
	s.Stdout, s.Stderr = &s.Out, os.Stderr
	s.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	defer cancel()
	s.Recording, s.Err = record.Command(ctx, s.Cmd, opts, o)
	if s.Process == nil {
		return s
	}
	if ctx.Err() != nil {
		s.Process.Kill() // fails if the program has ended
		tb.Errorf("%v goes on for %v", args, Hang)
	}
	if err := s.Wait(); err != nil && s.ProcessState == nil {
		tb.Fatal(err)
	}
	return s
}

// Good requires a recording, and that the program ended as it should.
func (s *Started) Good(tb testing.TB) *profile.Recording {
	tb.Helper()
	if s.Err != nil {
		tb.Fatal(s.Err)
	}
	if s.ProcessState.ExitCode() != 0 {
		tb.Errorf("%v\n%s", s.ProcessState, &s.Out)
	}
	return s.Recording
}

// Top is a recording's summary for failure messages.
func Top(tb testing.TB, r *profile.Recording) string {
	tb.Helper()
	var b bytes.Buffer
	if err := report.Top(&b, r, report.TopOptions{Rows: 20}); err != nil {
		tb.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v %+v %q", r.Modes, r.Processes, r.Notes)
	return b.String()
}
