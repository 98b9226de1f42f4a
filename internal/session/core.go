package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/core"
	"clrsnap/profile"
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
	return openCore(ctx, path, o, func(d *dump) origin { return d })
}

// openCore opens a core dump. from makes the origin of the Process.
func openCore(ctx context.Context, path string, o CoreOptions, from func(*dump) origin) (*Process, error) {
	if o.MaxStack <= 0 {
		o.MaxStack = target.MaxStackLimit
	}
	c, err := core.Open(path, core.Options{Exe: o.Executable, Sysroot: o.Sysroot})
	if err != nil {
		return nil, err
	}
	d := &dump{Core: c}
	o.MaxStack = stackBound(o.MaxStack)
	p := &Process{from: from(d), Options: o.Options}
	p.info = profile.Process{
		PID: c.PID(), Command: c.Command(),
		Core: &profile.Core{Path: path, Writer: c.Writer(), Signal: crashSignal(c)},
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if p.Managed != nil {
		d.needed = p.Managed.Threads.Needed()
	}
	return p, nil
}

func crashSignal(c *core.Core) *profile.Signal {
	s := c.Signal()
	if s == nil {
		return nil
	}
	return &profile.Signal{
		Number: s.Number, Name: s.Name, Reason: s.Reason, Address: uint64(s.Address), HasAddress: s.HasAddress,
	}
}

// dump is a core dump as the origin of a Process.
type dump struct {
	*core.Core
	// needed is how much of a Thread object must be there, in bytes.
	needed int
	// buf holds the stack of the last capture.
	buf []byte
}

// Alive implements origin: a dump does not exit.
func (d *dump) Alive() error { return nil }

// NSTid implements origin.
func (d *dump) NSTid(tid int) (int, error) {
	if _, err := d.find(tid); err != nil {
		return 0, err
	}
	return d.OwnID(tid), nil
}

// OpenFile implements assemblies.Source. The file may have changed since the process ran. It is used only to tell
// whose code something is.
func (d *dump) OpenFile(path string) (target.File, error) {
	f, err := d.Core.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Threads implements origin.
func (d *dump) Threads() ([]int, error) {
	var tids []int
	for _, t := range d.Core.Threads() {
		tids = append(tids, t.TID)
	}
	return tids, nil
}

// Thread implements origin.
func (d *dump) Thread(tid int) (target.ThreadInfo, error) {
	t, err := d.find(tid)
	if err != nil {
		return target.ThreadInfo{}, err
	}
	return target.ThreadInfo{TID: tid, Name: t.Name}, nil
}

func (d *dump) find(tid int) (*core.Thread, error) {
	if t, ok := d.Core.Thread(tid); ok {
		return t, nil
	}
	return nil, &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}

// runs implements origin.
func (d *dump) runs() error {
	return fmt.Errorf("process %d is a core dump: only a running process can be recorded or can send notifications",
		d.PID())
}

// capturedAt implements origin: the time when the dump was written.
func (d *dump) capturedAt(time.Time) time.Time { return d.Written() }

// note implements origin: it records what the dump lacks.
func (d *dump) note(g *gathering) (end func()) {
	return func() {
		core := *g.info.Core
		if core.Missing = d.Missing(g.lacks.consequence(g.out)); g.unlisted != nil {
			core.Missing = append(core.Missing,
				fmt.Sprintf("the runtime has %d threads or more: %v", len(g.known), g.unlisted))
		}
		g.out.Process.Core = &core
	}
}

// noteTasks implements origin.
func (d *dump) noteTasks(out *profile.Tasks) {
	if out.Unproven+out.Unread == 0 {
		return
	}
	c := *out.Process.Core
	if c.Missing = d.Missing("the async methods that could not be read need them"); d.Writer() == "createdump" {
		c.Missing = append(c.Missing, "createdump with type 4 (full) leaves nothing out that async methods need")
	}
	out.Process.Core = &c
}

// furtherStack implements origin.
func (d *dump) furtherStack(pieces, left int) int { return stillFurther(pieces, left) }

// starting implements origin. The process of a dump starts no more.
func (d *dump) starting() bool { return false }

// misses implements origin.
func (d *dump) misses() int { return d.Misses() }

// leftOut implements origin.
func (d *dump) leftOut(err error) bool {
	unread, ok := errors.AsType[*target.ReadError](err)
	return ok && d.Lacks(unread.Addr, unread.Len)
}

// spoilt implements origin: a file that the dump needs cannot be read, or the dump is cut off or
// damaged.
func (d *dump) spoilt(found *locate.Runtime, err error) error {
	var version *contract.UnknownVersionError
	if err == nil || errors.Is(err, engine.ErrNativeAOT) || errors.As(err, &version) {
		return nil
	}
	path := ""
	if file, ok := errors.AsType[*locate.FileError](err); ok {
		path = file.Path
	} else if found != nil {
		path = found.Module.Path
	}
	if lost := d.FileError(path); lost != nil {
		return lost
	}
	if damages := d.Damages(); len(damages) > 0 {
		if unread, ok := errors.AsType[*target.ReadError](err); ok && d.leftOut(err) {
			err = fmt.Errorf("the runtime cannot be read without this memory: %w", unread)
		}
		return fmt.Errorf("%s: %w: copy or make the dump once more, or see native stacks only with --native",
			damages[0], err)
	}
	return nil
}

// TryBlocked implements origin. Threads of a dump need not be stopped, so there is nothing to try.
func (d *dump) TryBlocked(*target.Request, *target.Capture) error { return errNotTried }

var errNotTried = errors.New("threads of a core dump need not be stopped")

// Capture implements origin. The pieces of stack are valid until the next capture.
func (d *dump) Capture(req *target.Request, out *target.Capture) error {
	t, err := d.find(req.TID)
	if err != nil {
		return err
	}
	return captureStill(d, &stillThread{t.Context, t.Syscall, d.needed, &d.buf}, req, out)
}
