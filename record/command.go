package record

import (
	"clrsnap"
	"context"
	"fmt"
	"os/exec"

	"clrsnap/internal/bridge"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// Command starts cmd and records it from its beginning: what it does before
// there is a .NET runtime in it shows as native frames, and no managed
// instruction is missed by profile.CPU. profile.Wall begins as soon as the
// runtime can be read. Waiting for cmd remains with the caller.
func Command(ctx context.Context, cmd *exec.Cmd, opts clrsnap.Options, o Options) (*profile.Recording, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.readable(bridge.Options(opts)); err != nil {
		return nil, err
	}
	r := newRecorder(o)
	defer r.close()
	r.opts = bridge.Options(opts)
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
		return nil, bridge.Publish(r.failed)
	}
	return nil, fmt.Errorf("%s ended before a .NET runtime was seen in it: %s", cmd.Path, adviceNoRuntime(o))
}

func adviceNoRuntime(o Options) string {
	if o.Subprocesses {
		return "does it, or a program that it starts, run .NET?"
	}
	return "if it starts the .NET program as another process, record its subprocesses too"
}
