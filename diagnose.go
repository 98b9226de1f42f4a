package clrsnap

import (
	"context"

	"clrsnap/internal/diagnose"
)

// Verdict is a check's meaning for stacks and recordings.
type Verdict uint8

// The verdicts.
const (
	Fine     = Verdict(diagnose.Fine)
	Degraded = Verdict(diagnose.Degraded) // something will be missing, or cost more
	Blocking = Verdict(diagnose.Blocking) // no stacks can be taken
)

// Check is the outcome of one check of Diagnose.
type Check struct {
	Name    string // the thing that was checked
	Verdict Verdict
	Detail  string // the finding
	Remedy  string // what to do; empty if there is nothing to do, or if Detail or another check says so
}

// Diagnose checks everything that stacks and recordings of process pid need, one thing at a time, and takes the
// process's stacks. Diagnose stops early if the remaining checks are not possible, or when ctx ends: then a Blocking
// check says so.
func Diagnose(ctx context.Context, pid int) (checks []Check) {
	diagnose.Process(ctx, pid, addTo(&checks))
	return checks
}

// DiagnoseSelf says what this process is allowed to do, and for what that is enough, with any target. Diagnose is about
// one target.
func DiagnoseSelf() (checks []Check) {
	diagnose.Self(addTo(&checks))
	return checks
}

func addTo(checks *[]Check) diagnose.Report {
	return func(name string, v diagnose.Verdict, detail, remedy string) {
		*checks = append(*checks, Check{name, Verdict(v), detail, remedy})
	}
}
