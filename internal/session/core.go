package session

import (
	"context"

	"clrsnap/internal/origin"
	"clrsnap/internal/target"
	"clrsnap/internal/target/core"
	"clrsnap/internal/target/recorded"
	"clrsnap/snapshot"
)

// CoreOptions change how a core dump is read. The zero value is good.
type CoreOptions struct {
	// Options are those of a running process; a MaxStack of 0 stands for 64 MB. AlwaysStop, MaxPause and
	// NonBlocking mean nothing for a core dump.
	Options
	// Executable is the program's file, if the file is not where the process had it.
	Executable string
	// Sysroot is the folder above the process's files: the folder of an unpacked container image,
	// for example. Empty: the files are where the process had them.
	Sysroot string
}

// OpenCore opens the process in a core dump. The kernel, gcore or the runtime's createdump has
// written the dump. Memory that the dump leaves out is read from the files that the process had
// mapped, if the files are unchanged. All of Process works, except where a running process is
// needed: see Runs.
func OpenCore(ctx context.Context, path string, o CoreOptions) (*Process, error) {
	return openCore(ctx, path, o, func(d *origin.Dump) origin.Origin { return d })
}

// openCore opens a core dump. from makes the origin of the Process.
func openCore(
	ctx context.Context, path string, o CoreOptions, from func(*origin.Dump) origin.Origin,
) (*Process, error) {
	if o.MaxStack <= 0 {
		o.MaxStack = target.MaxStackLimit
	}
	c, err := core.Open(path, core.Options{Exe: o.Executable, Sysroot: o.Sysroot})
	if err != nil {
		return nil, err
	}
	d := &origin.Dump{Core: c}
	o.MaxStack = stackBound(o.MaxStack)
	p := &Process{from: from(d), Options: o.Options}
	p.info = snapshot.Process{
		PID: c.PID(), Command: c.Command(),
		Core: &snapshot.Core{Path: path, Writer: c.Writer(), Signal: crashSignal(c)},
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if p.Managed != nil {
		d.Needed = p.Managed.Threads.Needed()
	}
	return p, nil
}

func crashSignal(c *core.Core) *snapshot.Signal {
	s := c.Signal()
	if s == nil {
		return nil
	}
	return &snapshot.Signal{
		Number: s.Number, Name: s.Name, Reason: s.Reason, Address: uint64(s.Address), HasAddress: s.HasAddress,
	}
}

// OpenRecorded opens a recorded process. Everything that was asked of the process while it was recorded can be asked
// again; another question meets memory that was not recorded.
func OpenRecorded(ctx context.Context, m *recorded.Moment, o Options) (*Process, error) {
	r := &origin.Recording{Moment: m}
	o.MaxStack = target.MaxStackLimit
	p := &Process{from: r, Options: o}
	p.info = snapshot.Process{PID: m.PID, Command: m.Command, Core: &snapshot.Core{Writer: "recording"}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if p.Managed != nil {
		r.Needed = p.Managed.Threads.Needed()
	}
	return p, nil
}

// Record is OpenCore. All answers of the core dump are recorded in m, so OpenRecorded can repeat what was asked of the
// Process. m is empty, or has recorded the same core dump.
func Record(ctx context.Context, path string, m *recorded.Moment, o CoreOptions) (*Process, error) {
	return openCore(ctx, path, o, func(d *origin.Dump) origin.Origin { return origin.Record(d, m) })
}
