package clrsnap

import (
	"clrsnap/internal/diagnose"
	"context"
)

// Verdict says what a check means for us.
type Verdict uint8

// The verdicts.
const (
	Fine     = Verdict(diagnose.Fine)
	Degraded = Verdict(diagnose.Degraded) // something will be missing
	Blocking = Verdict(diagnose.Blocking) // there will be no stacks
)

// Check is the outcome of one check of Diagnose.
type Check struct {
	Name    string // what was looked at
	Verdict Verdict
	Detail  string // what was found
	Remedy  string // what helps; empty if nothing has to, or if another check says it
}

// Diagnose looks at everything that stacks of process pid need, each by itself,
// and at last takes them. It stops where nothing more can be found out, or when ctx ends.
func Diagnose(ctx context.Context, pid int) []Check { return newChecks(diagnose.Process(ctx, pid)) }

// DiagnoseSelf tells what this process is allowed, and what can be done with that,
// whatever process is going to be looked at. Diagnose is about one process.
func DiagnoseSelf() []Check { return newChecks(diagnose.Self()) }

func newChecks(checks []diagnose.Check) []Check {
	out := make([]Check, len(checks))
	for i, c := range checks {
		out[i] = Check{c.Name, Verdict(c.Verdict), c.Detail, c.Remedy}
	}
	return out
}
