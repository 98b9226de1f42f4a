package session

import (
	"context"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/engine"
	"clrsnap/internal/exceptions"
	"clrsnap/internal/locate"
	"clrsnap/internal/moment"
	"clrsnap/internal/naming"
	"clrsnap/internal/origin"
	"clrsnap/internal/priority"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/waits"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Options change how a process is read. The zero value has good defaults.
type Options struct {
	// Options say how frames are named.
	naming.Options
	// NativeOnly opens processes without a .NET runtime too, for their native stacks.
	NativeOnly bool
	// AlwaysStop stops every thread that is captured. Otherwise a thread that is provably blocked
	// is captured without a stop.
	AlwaysStop bool
	// MaxStack bounds the copy of one thread's stack, in bytes: between 256 KB and 64 MB; 0 stands for 8 MB. A copy
	// of a deeper stack lacks the frames near the base, and the result says so.
	MaxStack int
	// MaxPause is how long a thread may be stopped before a watchdog lets the thread go: 2 ms at least; 0 stands for
	// 10 ms. The watchdog does not depend on the scheduling of this process. In a snapshot at once the bound is 100 ms
	// more.
	MaxPause time.Duration
	// NonBlocking refuses a process that can keep its reader waiting for ever, with an ErrMayBlock. The process has
	// files of a FUSE or network file system within its reach. Nothing ends the wait, not even SIGKILL. The caller
	// can read the process from a separate process, and abandon the separate process.
	NonBlocking bool
	// Inlined adds methods that were certainly inlined to the stacks of snapshots.
	Inlined bool
	// Async adds to the stacks of snapshots the async methods that await the running methods.
	Async bool
	// PackStacks packs the stacks of threads (snapshot.Thread.Packed) of snapshots.
	PackStacks bool
}

// Process is a process whose stacks can be walked: a running process, or a process with a core dump. A Process is not
// safe for concurrent use.
type Process struct {
	*naming.Namer   // set by open
	*awaits.Program // set by open
	// Set by Open and OpenCore, and the same ever after.
	Options    Options
	Live       *live.Process // nil for a core dump
	Arch       *arch.Arch
	Engine     *engine.Engine
	Runtime    *clr.Runtime // nil if there is none, and for native AOT programs
	Managed    *clr.Managed // part of Runtime, or of a native AOT program; nil: there is none
	Walker     *walk.Walker
	Found      *locate.Runtime // nil: there is none
	RuntimeErr error           // why the runtime in Found cannot be read, or why none was found

	info    snapshot.Process
	from    origin.Origin // of threads, registers and memory
	moments *moment.Reader
	thrown  *exceptions.Reader
	opened  time.Time

	// Captures. Whoever captures a thread may overwrite the memory of the capture before.
	Capture   target.Capture     // memory for captures, one after the other
	captures  uint64             // how many there were: a later capture ends the Suspensions before
	Walking   bool               // set by the root package while a callback runs: no thread may be captured
	Announce  func(id arch.Addr) // set by package events: called with the suspended thread, and with 0; nil: no call
	announced *Suspension        // set by Suspend and Release: whose thread was announced; nil: nobody's
	unsuited  map[arch.Addr]bool // ips at which a walk without registers fails

	// The runtime's threads, as of the latest list: set by ReadThreadStore, and for new threads by people.Renew.
	known    map[int]thread.Thread    // by the id in the target's namespace
	unlisted error                    // why some threads may be missing in known; nil: none are
	refs     refs                     // what is known of them besides
	names    map[arch.Addr]threadName // by Thread object, read while no object was moved; set by nameAgain

	updating time.Duration // time spent since opened on the search for modules: set by updateModules

	// Readers and facts that are found at the first use, and kept: each by the method that needs it.
	groups     *cgroup.Reader
	waits      *waits.Reader
	plainLocks plainLocks // Locks that are no monitors
	locked     lockLooks  // facts about the Locks in events
}

// Open finds the runtime in process pid and the layout of its structures. Open attaches to nothing, and stops no
// thread. The error says what is wrong and what to do next.
func Open(ctx context.Context, pid int, o Options) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer priority.Hurry()()
	o.MaxStack = stackBound(o.MaxStack)
	open := live.Open
	if o.NonBlocking {
		open = live.OpenNonBlocking
	}
	lp, err := open(pid)
	if err != nil {
		return nil, err
	}
	lp.Watchdog = o.MaxPause
	p := &Process{Options: o, Live: lp, from: origin.Running(lp)}
	p.info = snapshot.Process{PID: lp.PID(), Command: CommandLine(lp.Dir())}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// stackBound is the meaning of an option MaxStack.
func stackBound(n int) int {
	if n <= 0 {
		n = 8 << 20
	}
	return max(FirstStack, min(n, target.MaxStackLimit))
}

// OrExit returns the error of an exited process, if the process has exited, else err.
func (p *Process) OrExit(err error) error {
	if end := p.from.Alive(); end != nil {
		return end
	}
	return err
}

// open gets ready to walk, or closes the Process again.
func (p *Process) open(ctx context.Context) error {
	p.Arch, p.unsuited, p.opened = p.from.Arch(), map[arch.Addr]bool{}, time.Now()
	if err := p.openEngine(ctx); err != nil {
		err = p.OrExit(err)
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
	p.Runtime, p.Managed, p.Walker = p.Engine.Runtime, p.Engine.Managed, p.Engine.Walker
	p.moments = p.readMoments()
	p.Namer = naming.New(p.Options.Options, p.from, p.Engine, p.Found, p.moments.Changes)
	p.thrown = exceptions.New(p.Engine, p.moments, p.from.LeftOut)
	p.Program = awaits.New(p.Namer, p.Engine, p.from, p.moments)
	if p.Runtime != nil {
		p.Runtime.Names.Check(images{p})
	}
	return nil
}

func (p *Process) readMoments() *moment.Reader {
	r := &moment.Reader{Forget: p.Engine.Cache.Invalidate}
	if p.Live != nil {
		r.Running = p.Live
	}
	if p.Managed != nil {
		if r.Seen = p.Managed.Seen; p.Managed.Heap != nil {
			r.Collector = p.Managed.Heap
		}
	}
	return r
}

func (p *Process) openRuntime() error {
	found, err := p.Engine.OpenRuntime()
	p.Found, p.RuntimeErr = found, err
	if found != nil {
		p.info.Runtime = DescribeRuntime(found)
	}
	if spoilt := p.from.Spoilt(found, err); spoilt != nil {
		return fmt.Errorf("process %d (%s): %w", p.from.PID(), shortCommand(p.info.Command), spoilt)
	}
	if found != nil {
		return origin.Unreadable(err, p.from)
	}
	return fmt.Errorf("process %d (%s): %w", p.from.PID(), shortCommand(p.info.Command), err)
}

// DescribeRuntime describes a runtime that was found.
func DescribeRuntime(r *locate.Runtime) snapshot.Runtime {
	return snapshot.Runtime{Version: r.Version, Path: r.Module.Path, Shape: string(r.Shape)}
}

// Close releases what the Process holds. The target is not affected.
func (p *Process) Close() error {
	if p.Namer != nil {
		p.Namer.Close()
	}
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
func (p *Process) Info() snapshot.Process { return p.info }

// NoRuntimeError is the error of methods that need CoreCLR. what says in the plural what is asked of the process.
func (p *Process) NoRuntimeError(what string) error {
	why := "has no .NET runtime"
	if p.info.Runtime.Shape == string(locate.NativeAOT) {
		why = "is a native AOT program, and clrsnap cannot read the " + what + " of this program"
	}
	return &Error{Kind: NoRuntime, Text: fmt.Sprintf("process %d %s", p.from.PID(), why)}
}

// CommandLine is the command line of a process, with spaces between the arguments.
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

// Runs returns nil for a running process. For a core dump the error says that recordings and notifications need a
// running process.
func (p *Process) Runs() error { return p.from.Runs() }

// Age is how long the process has run; 0: for a core dump, or if the age is not known.
func (p *Process) Age() time.Duration {
	if p.Live == nil {
		return 0
	}
	return ageOf(p.Live.Dir().Stat())
}

// ThreadAge is the time since a thread of the process was started; 0: not known.
func (p *Process) ThreadAge(tid int) time.Duration {
	if p.Live == nil {
		return 0
	}
	return ageOf(p.Live.Dir().TaskStat(tid))
}

func ageOf(s procfs.Stat, err error) time.Duration {
	if err != nil {
		return 0
	}
	return max(live.Age(s.Start), 0)
}

// images implements name.Images for a process: it recognises the files that the runtime has loaded.
type images struct{ p *Process }

// Proved implements name.Images.
func (i images) Proved(image arch.Addr) bool {
	m := i.p.Engine.Maps.Find(image)
	if m == nil { // the image has been loaded since
		if now := i.p.Remapped(); now != nil {
			m = now.Find(image)
		}
	}
	return m == nil || !m.IsFile() || i.p.from.Proved(image, m)
}

// Refused implements name.Images.
func (i images) Refused(image arch.Addr, why error) { i.p.from.Refused(image, why) }
