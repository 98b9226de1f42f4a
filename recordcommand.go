package clrsnap

import (
	"context"
	"fmt"
	"os/exec"

	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// RecordCommand starts cmd and records it from its beginning: what it does before
// there is a .NET runtime in it shows as native frames, and no managed
// instruction is missed by profile.CPU. profile.Wall begins as soon as the
// runtime can be read. Waiting for cmd remains with the caller.
func RecordCommand(ctx context.Context, cmd *exec.Cmd, opts Options, o RecordOptions) (*profile.Recording, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.readable(opts); err != nil {
		return nil, err
	}
	r := newRecorder(o)
	defer r.close()
	r.opts = opts
	if r.events != nil {
		if err := r.events.launch(cmd); err != nil {
			return nil, err
		}
	}
	if err := live.Launch(cmd, r.begin); err != nil {
		return nil, err
	}
	r.expect(cmd.Process.Pid, true)
	out := r.run(ctx)
	switch {
	case len(r.all) > 0:
		return out, nil
	case r.failed != nil:
		return nil, r.failed
	}
	return nil, fmt.Errorf("%s ended before a .NET runtime was seen in it: %s", cmd.Path, adviceNoRuntime(o))
}

func adviceNoRuntime(o RecordOptions) string {
	if o.Subprocesses {
		return "does it, or a program that it starts, run .NET?"
	}
	return "if it starts the .NET program as another process, record its subprocesses too"
}
