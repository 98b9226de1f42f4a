package clrsnap

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Options change how a process is looked at. The zero value is good.
type Options struct {
	// Mode is what DoStackSnapshot reports.
	Mode Mode
	// NativeOnly opens processes without a .NET runtime too, for their native
	// stacks.
	NativeOnly bool
	// AlwaysStop captures threads that are provably blocked with a stop as well.
	AlwaysStop bool
	// MaxStack bounds the copy of one thread's stack, in bytes: between 256 KB
	// and 64 MB; 0 stands for 8 MB. Of a deeper stack the frames near the base are missing, which the
	// result says.
	MaxStack int
	// MaxPause is how long a thread may be stopped before a watchdog, which does
	// not depend on this process being scheduled, lets it go: 2 ms at least; 0 stands
	// for 10 ms. All threads at once (SnapshotAtOnce) have 100 ms more.
	MaxPause time.Duration
}

// Process is a running process whose stacks can be walked. It is not safe for
// concurrent use.
type Process struct {
	opts Options
	live *live.Process
	eng  *engine.Engine
	arch *arch.Arch
	info profile.Process

	rt     *clr.Runtime // nil with NativeOnly and no runtime
	walker *walk.Walker

	known    map[int]thread.Thread // the runtime's threads, by the id in the target's namespace
	capture  live.Capture
	moment   uint64 // counts captures: what an earlier one brought is gone
	walking  bool
	current  *Suspension // the latest one
	infos    frameInfos
	classes  map[ClassID]name.Class // named types that cannot be unloaded
	link     *agentLink             // the agent that is subscribed to; nil: none
	stops    *[]time.Duration       // where to note how long stops last, if anywhere
	unsuited map[arch.Addr]bool     // ips at which a walk without registers fails
}

// Open attaches to nothing: it finds the runtime in process pid, reads its data
// descriptor and gets ready. The error says in one sentence what is in the way
// and what to do about it.
func Open(pid int) (*Process, error) { return OpenWith(pid, Options{}) }

// OpenWith is Open with options.
func OpenWith(pid int, o Options) (*Process, error) {
	if o.MaxStack <= 0 {
		o.MaxStack = 8 << 20
	}
	o.MaxStack = max(firstStack, min(o.MaxStack, live.MaxStackLimit))
	lp, err := live.Open(pid)
	if err != nil {
		return nil, err
	}
	lp.Watchdog = o.MaxPause
	p := &Process{opts: o, live: lp, arch: lp.Arch(), unsuited: map[arch.Addr]bool{}}
	if err := p.open(); err != nil {
		err = p.gone(err)
		p.Close()
		return nil, err
	}
	return p, nil
}

// gone returns the end of the process in place of an error that it led to.
func (p *Process) gone(err error) error {
	if end := p.live.Alive(); end != nil {
		return end
	}
	return err
}

func (p *Process) open() (err error) {
	p.info = profile.Process{PID: p.live.PID(), Command: commandLine(p.live.PID())}
	if p.eng, err = engine.New(p.live); err != nil {
		return err
	}
	if err := p.openRuntime(); err != nil && !p.opts.NativeOnly {
		return err
	}
	p.rt, p.walker = p.eng.Runtime, p.eng.Walker
	return nil
}

func (p *Process) openRuntime() error {
	found, err := p.eng.Locate()
	if err != nil {
		return fmt.Errorf("process %d (%s): %w", p.live.PID(), shortCommand(p.info.Command), err)
	}
	p.info.Runtime = describeRuntime(found)
	d, err := descriptor(p.eng.Cache, p.live.PID(), found)
	if err != nil {
		return err
	}
	if err := p.eng.Bind(d); err != nil {
		return fmt.Errorf("cannot read the .NET %s runtime in process %d: %w", found.Version, p.live.PID(), err)
	}
	return nil
}

func describeRuntime(r *locate.Runtime) profile.Runtime {
	return profile.Runtime{Version: r.Version, Path: r.Module.Path, Shape: string(r.Shape)}
}

// ErrUnsupported: there is a .NET runtime, but not one that can be read yet.
var ErrUnsupported = errors.New("this .NET runtime cannot be read")

// ErrNotDotNet: there is no .NET runtime in the process.
var ErrNotDotNet = locate.ErrNotDotNet

func supported(pid int, r *locate.Runtime) error {
	version := r.Version
	if version == "" {
		version = "(of unknown version)"
	}
	switch {
	case r.Shape == locate.NativeAOT:
		return fmt.Errorf("%w: process %d is a native AOT program without CoreCLR: use a native profiler such as perf", ErrUnsupported, pid)
	case r.Descriptor == 0:
		return fmt.Errorf("%w: .NET %s (%s) in process %d has no data descriptor: run the program on .NET 10.0.9 or newer", ErrUnsupported, version, r.Shape, pid)
	}
	return nil
}

// descriptor reads the data descriptor of a runtime that was found, and says why
// it cannot be used.
func descriptor(mem target.Memory, pid int, r *locate.Runtime) (*contract.Descriptor, error) {
	if err := supported(pid, r); err != nil {
		return nil, err
	}
	d, err := contract.Parse(mem, r.Descriptor)
	if err != nil {
		return nil, fmt.Errorf("cannot read the data descriptor of the .NET runtime in process %d: %w", pid, err)
	}
	d.Runtime = r.Version
	if err := d.Require(clr.Needs); err != nil {
		return nil, fmt.Errorf("%w: process %d: %w: this version of clrsnap reads .NET 10", ErrUnsupported, pid, err)
	}
	return d, nil
}

// Close releases what the Process holds. The target is not affected.
func (p *Process) Close() error {
	if p.eng != nil {
		p.eng.Close()
	}
	return p.live.Close()
}

// Info describes the process and its runtime.
func (p *Process) Info() profile.Process { return p.info }

// HasRuntime reports whether there is a .NET runtime; it is always true without
// Options.NativeOnly.
func (p *Process) HasRuntime() bool { return p.rt != nil }

func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

func shortCommand(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
