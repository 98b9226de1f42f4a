package record

import (
	"context"
	"fmt"
	"os/exec"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// Command starts cmd and records it from its first instruction. Before there is a .NET runtime in the
// process, its activity has native frames, and profile.CPU misses no managed instruction. profile.Wall
// begins as soon as the runtime can be read. opts are for every recorded process. The recording ends
// like a recording of Record.
//
// The caller calls cmd.Wait. After an error the program runs if cmd.Process is set. An error means
// that there is no recording: options that make no sense, a program that cannot be started, or a
// program that exited before a .NET runtime was seen.
func Command(ctx context.Context, cmd *exec.Cmd, opts clrsnap.Options, o Options) (*profile.Recording, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.readable(root.Options(opts)); err != nil {
		return nil, err
	}
	r := newRecorder(o)
	defer r.close()
	r.opts = root.Options(opts)
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
		return nil, root.Publish(r.failed)
	}
	return nil, fmt.Errorf("%s exited before clrsnap saw a .NET runtime: %s", cmd.Path, adviceNoRuntime(o))
}

func adviceNoRuntime(o Options) string {
	if o.Subprocesses {
		return "give a .NET program, or a program that starts a .NET program"
	}
	return "if the command starts the .NET program as another process, record subprocesses too"
}
