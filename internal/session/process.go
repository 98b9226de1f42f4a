package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Options change how a process is read. The zero value has good defaults.
type Options struct {
	// NativeOnly opens processes without a .NET runtime too, for their native
	// stacks.
	NativeOnly bool
	// AlwaysStop captures threads that are provably blocked with a stop as well.
	AlwaysStop bool
	// MaxStack bounds the copy of one thread's stack, in bytes: between 256 KB
	// and 64 MB; 0 stands for 8 MB. Of a deeper stack the frames near the base are missing, and
	// the result says so.
	MaxStack int
	// MaxPause is how long a thread may be stopped before a watchdog, which does
	// not depend on this process being scheduled, lets it go: 2 ms at least; 0 stands
	// for 10 ms. All threads at once (SnapshotAtOnce) have 100 ms more.
	MaxPause time.Duration
	// Wary refuses, with an ErrMayBlock, a process that can keep its reader waiting for ever: it
	// has files of a FUSE or network file system within its reach. Nothing ends such a wait, not
	// even SIGKILL. Read such a process in a process of its own, which can be abandoned.
	Wary bool
}

// Process is a process whose stacks can be walked: a running one, or one of which
// a core dump is left. It is not safe for concurrent use.
type Process struct {
	Options Options
	Live    *live.Process // nil for a core dump
	Arch    *arch.Arch
	Engine  *engine.Engine
	Runtime *clr.Runtime // nil if there is none, and for native AOT programs
	Walker  *walk.Walker

	Found  *locate.Runtime // nil: there is none
	Unread error           // why what was found cannot be read, or why nothing was

	Capture  target.Capture     // the latest
	Stops    *[]time.Duration   // where to note how long stops last; nil: nowhere
	Walking  bool               // a callback runs: no thread may be captured
	Announce func(id arch.Addr) // called with the thread that is suspended, and with 0 when none is; can be nil

	info profile.Process
	from Source // of threads, registers and memory
	dump *dump  // the same, if it is a core dump

	known    map[int]thread.Thread // the runtime's threads, by the id in the target's namespace
	unlisted error                 // why some may be missing in known; nil: none are
	walked   []profile.Frame       // by the latest walk for a Snapshot
	room     int                   // bytes of frames that a Snapshot may still have
	opened   time.Time
	updating time.Duration      // in which modules were looked for since
	method   method.Method      // the latest that was named
	moment   uint64             // counts captures: each overwrites the one before
	current  *Suspension        // the latest one
	unsuited map[arch.Addr]bool // ips at which a walk without registers fails
}

// Open finds the runtime in process pid and the layout of its structures. It attaches to
// nothing, and stops no thread. The error says what is wrong and what to do next.
func Open(ctx context.Context, pid int, o Options) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.MaxStack = stackBound(o.MaxStack)
	open := live.Open
	if o.Wary {
		open = live.OpenWary
	}
	lp, err := open(pid)
	if err != nil {
		return nil, err
	}
	lp.Watchdog = o.MaxPause
	p := &Process{Options: o, Live: lp, from: lp}
	p.info = profile.Process{PID: lp.PID(), Command: CommandLine(lp.Dir())}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// stackBound is what an option MaxStack means.
func stackBound(n int) int {
	if n <= 0 {
		n = 8 << 20
	}
	return max(FirstStack, min(n, target.MaxStackLimit))
}

// A Source is where a process is read from.
type Source interface {
	engine.Source
	PID() int
	// Alive returns nil as long as the process can be read; an error once it has exited.
	Alive() error
	Threads() ([]int, error)
	Thread(tid int) (target.ThreadInfo, error)
	NSTid(tid int) (int, error) // the thread's id inside the target's PID namespace
	Capture(*target.Request, *target.Capture) error
	Close() error
}

// orExit returns the error that says that the process has exited, if it has, else err.
func (p *Process) orExit(err error) error {
	if end := p.from.Alive(); end != nil {
		return end
	}
	return err
}

// open gets ready to walk, or closes what has been opened.
func (p *Process) open(ctx context.Context) error {
	p.Arch, p.unsuited, p.room, p.opened = p.from.Arch(), map[arch.Addr]bool{}, maxStacks, time.Now()
	if err := p.openEngine(ctx); err != nil {
		err = p.orExit(err)
		p.Close()
		return err
	}
	return nil
}

func (p *Process) openEngine(ctx context.Context) (err error) {
	if p.Engine, err = engine.New(p.from); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.openRuntime(); err != nil && !p.Options.NativeOnly {
		return err
	}
	p.Runtime, p.Walker = p.Engine.Runtime, p.Engine.Walker
	return nil
}

func (p *Process) openRuntime() error {
	found, err := p.Engine.OpenRuntime()
	p.Found, p.Unread = found, err
	if found != nil {
		p.info.Runtime = DescribeRuntime(found)
	}
	if p.dump != nil {
		if spoilt := p.dump.spoilt(found, err); spoilt != nil {
			return fmt.Errorf("process %d (%s): %w", p.from.PID(), shortCommand(p.info.Command), spoilt)
		}
	}
	if found != nil {
		return RuntimeError(err, p.from)
	}
	return fmt.Errorf("process %d (%s): %w", p.from.PID(), shortCommand(p.info.Command), err)
}

// DescribeRuntime describes a runtime that was found.
func DescribeRuntime(r *locate.Runtime) profile.Runtime {
	return profile.Runtime{Version: r.Version, Path: r.Module.Path, Shape: string(r.Shape)}
}

// ErrUnsupported: there is a .NET runtime, but not one that can be read yet.
var ErrUnsupported = errors.New("this .NET runtime cannot be read")

// ErrNotDotNet: there is no .NET runtime in the process.
var ErrNotDotNet = locate.ErrNotDotNet

// RuntimeError says why a runtime that was found cannot be read.
func RuntimeError(err error, from Source) error {
	pid := from.PID()
	var version *contract.UnknownVersionError
	dead, isDump := from.(*dump)
	switch {
	case err == nil, errors.Is(err, engine.ErrNativeAOT): // its methods are native functions
		return nil
	case errors.As(err, &version):
		return fmt.Errorf("%w: process %d: %w", ErrUnsupported, pid, err) // which says to update clrsnap
	case errors.Is(err, engine.ErrUnfit) && !isDump && maybeStarting(from):
		return fmt.Errorf("process %d seems to be starting: %w: try again in a moment", pid, err)
	case errors.Is(err, engine.ErrUnfit) && isDump && dead.lacks(err):
		return fmt.Errorf("%w: process %d: %w: see native stacks only with --native, or make a dump with more memory",
			ErrUnsupported, pid, err)
	case errors.Is(err, engine.ErrUnknown), errors.Is(err, engine.ErrUnfit):
		return fmt.Errorf("%w: process %d: %w: update clrsnap, or see native stacks only with --native",
			ErrUnsupported, pid, err)
	}
	return fmt.Errorf("cannot read the .NET runtime in process %d: %w", pid, err)
}

// settled is the longest that the runtime takes to start.
const settled = 10 * time.Second

// maybeStarting reports whether a runtime may still be starting: none of its own threads is
// older than settled.
func maybeStarting(from Source) bool {
	tids, err := from.Threads()
	if err != nil {
		return true
	}
	for _, tid := range tids {
		i, err := from.Thread(tid)
		if err == nil && strings.HasPrefix(i.Name, ".NET ") && live.Age(i.StartTime) > settled {
			return false
		}
	}
	return true
}

// Close releases what the Process holds. The target is not affected.
func (p *Process) Close() error {
	if p.Engine != nil {
		p.Engine.Close()
	}
	return p.from.Close()
}

// PID is the id of the process.
func (p *Process) PID() int { return p.from.PID() }

// Alive returns nil as long as the process can be read; an error once it has exited.
func (p *Process) Alive() error { return p.from.Alive() }

// Info describes the process and its runtime.
func (p *Process) Info() profile.Process { return p.info }

// NoRuntimeError is the error of what needs a runtime.
func (p *Process) NoRuntimeError() error {
	why := "has no .NET runtime"
	if p.info.Runtime.Shape == string(locate.NativeAOT) {
		why = "is a native AOT program, without the CLR's threads, functions and notifications: " +
			"take its native stacks with SnapshotAll, or record them"
	}
	return &Error{Kind: NoRuntime, Text: fmt.Sprintf("process %d %s", p.from.PID(), why)}
}

// CommandLine is the command line of a process, its arguments separated by spaces.
func CommandLine(of procfs.Dir) string {
	s, err := of.Cmdline()
	if err != nil {
		return ""
	}
	return s
}

func shortCommand(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
