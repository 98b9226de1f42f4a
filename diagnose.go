package clrsnap

import (
	"context"

	"clrsnap/internal/diagnose"
	"clrsnap/snapshot"
)

// Diagnose checks everything that stacks and recordings of process pid need, one thing at a time, and takes the
// process's stacks. Diagnose stops early if the remaining checks are not possible, or when ctx ends: then a Blocking
// check says so.
func Diagnose(ctx context.Context, pid int) []snapshot.Check { return diagnose.Process(ctx, pid) }

// DiagnoseSelf says what this process is allowed to do, and for what that is enough, with any target. Diagnose is about
// one target.
func DiagnoseSelf() []snapshot.Check { return diagnose.Self() }
