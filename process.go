package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
	"clrsnap/internal/source"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
	"clrsnap/symbols"
)

// Options change how a process is read. The zero value has good defaults.
type Options struct {
	// Mode is what DoStackSnapshot reports.
	Mode Mode
	// NativeOnly opens processes without a .NET runtime too, for their native
	// stacks.
	NativeOnly bool
	// AlwaysStop stops every thread that is captured. Otherwise a thread that is provably blocked
	// is captured without a stop.
	AlwaysStop bool
	// MaxStack bounds the copy of one thread's stack, in bytes: between 256 KB and 64 MB. 0 stands
	// for 8 MB; for 64 MB of a core dump. Of a deeper stack the frames near the base are missing,
	// and the result says so.
	MaxStack int
	// MaxPause is how long a thread may be stopped before a watchdog, which does
	// not depend on this process being scheduled, lets it go: 2 ms at least; 0 stands
	// for 10 ms. In SnapshotAtOnce it is 100 ms more.
	MaxPause time.Duration
	// NonBlocking refuses a process that can keep its reader waiting for ever, with an ErrMayBlock.
	// Such a process has files of a FUSE or network file system within its reach. Nothing ends the
	// wait, not even SIGKILL. Read such a process in a process of its own, which can be abandoned.
	NonBlocking bool
	// ExactGenerics finds which instantiation of shared generic code a managed frame runs, where the
	// frame keeps it: List<Order>.Add instead of List<__Canon>.Add. Frames that keep it say so
	// (profile.Frame.Generics). A running thread may be stopped once more for that.
	ExactGenerics bool
	// Lines finds the source lines of frames (profile.Frame.Line). Managed ones have them by the portable PDBs of the
	// assemblies. A PDB is looked for inside its assembly and beside it, and must have the id and the checksum that
	// the assembly asks for. Native ones have them by DWARF. Nothing is fetched from anywhere, unless Source says so.
	Lines bool
	// Symbols are folders on this machine in which PDBs, and debug files of native modules, are looked for, too.
	Symbols []string
	// Inlined adds frames for methods that were certainly inlined (profile.Frame.Inlined) to the stacks
	// of snapshots, and to those of recordings (profile.Location.Inlined) if the process has not ended by then.
	// DoStackSnapshot never reports them.
	Inlined bool
	// Async adds frames of kind profile.Async to the stacks of snapshots, below an async method that runs: the
	// methods that await it, which are not on the stack. DoStackSnapshot never reports them.
	Async bool
	// Permits says whether SnapshotWaits also finds what is only likely (profile.WaitGraph.Likely): who has permits of
	// a SemaphoreSlim, and who completes a TaskCompletionSource. It reads the managed heap for that.
	Permits PermitsMode
	// SourceRoots say where source files are on this machine, one after the other.
	SourceRoots []SourceRoot
	// PackStacks packs the stacks of SnapshotAll and SnapshotAtOnce (profile.Thread.Packed), for snapshots of many
	// threads: they take a tenth of the memory. profile.Thread.Frames of such a thread is nil: use the methods Depth,
	// Frame and Stack, which are for all threads. Not packed are very deep stacks, those that async methods await, and
	// with a Source all.
	PackStacks bool
	// Source is where symbols are fetched from that are nowhere on this machine, when all stacks of a snapshot, or of a
	// recording, have been taken; nil: nowhere. Package symbols has one that asks symbol servers.
	// Snapshot, which has no context, waits for a minute at most; the others until their context ends.
	Source symbols.Source
}

// SourceRoot says that a source file that the compiler called From/a/b.cs is To/a/b.cs on this machine. With an
// empty From the file is looked for below To (a/b.cs, then b.cs), and must have the hash that the PDB says.
type SourceRoot struct{ From, To string }

// PermitsMode says whether SnapshotWaits reads the managed heap.
type PermitsMode = session.PermitsMode

// The modes.
const (
	PermitsNever = session.PermitsNever
	// within one and a half seconds: Snapshot.Unsearched says if that is too short
	PermitsSoon   = session.PermitsSoon
	PermitsAlways = session.PermitsAlways // however long it takes
)

func (o Options) session() session.Options {
	return session.Options{
		NativeOnly: o.NativeOnly, AlwaysStop: o.AlwaysStop, NonBlocking: o.NonBlocking,
		MaxStack: o.MaxStack, MaxPause: o.MaxPause, ExactGenerics: o.ExactGenerics,
		Lines: o.Lines, Inlined: o.Inlined, Async: o.Async, Permits: o.Permits, Symbols: o.Symbols,
		Roots: o.roots(), Source: o.Source, PackStacks: o.PackStacks,
	}
}

func (o Options) roots() source.Roots {
	var out source.Roots
	for _, r := range o.SourceRoots {
		out = append(out, source.NewRoot(r.From, r.To))
	}
	return out
}

// CoreOptions change how a core dump is read. The zero value has good defaults.
type CoreOptions struct {
	// Options are those of a running process. AlwaysStop, MaxPause and NonBlocking mean nothing
	// for a core dump.
	Options
	// Executable is the program's file, if it is not where the process had it.
	Executable string
	// Sysroot is the folder below which the process's files are: that of an
	// unpacked container image, for example. Empty: where the process had them.
	Sysroot string
}

// Process is a process whose stacks can be walked: a running one, or one of which
// a core dump is left. It is not safe for concurrent use.
type Process struct {
	s     *session.Process
	mode  Mode
	infos frameInfos
}

// Open finds the runtime in process pid and the layout of its structures. It attaches to nothing,
// and stops no thread. The error says what is wrong and what to do next. errors.Is finds
// ErrNotDotNet, ErrPermission and the others of this package in it, and errors.As an *AttachError.
// With an error there is no Process.
func Open(ctx context.Context, pid int, o Options) (*Process, error) {
	s, err := session.Open(ctx, pid, o.session())
	if err != nil {
		return nil, publish(err)
	}
	return &Process{s: s, mode: o.Mode}, nil
}

// OpenCore opens the process whose core dump is in a file: one that the kernel, gcore
// or the runtime's createdump has written. What the dump leaves out is read from the files that
// the process had mapped, if they are unchanged. All of Process works, but a dump cannot be used
// with record.Record and events.Subscribe. Errors are as for Open.
func OpenCore(ctx context.Context, path string, o CoreOptions) (*Process, error) {
	s, err := session.OpenCore(ctx, path, session.CoreOptions{
		Options: o.session(), Executable: o.Executable, Sysroot: o.Sysroot,
	})
	if err != nil {
		return nil, publish(err)
	}
	return &Process{s: s, mode: o.Mode}, nil
}

// Close releases what the Process holds. The target is not affected.
func (p *Process) Close() error { return p.s.Close() }

// Info describes the process and its runtime.
func (p *Process) Info() profile.Process { return p.s.Info() }

// HasRuntime reports whether there is a runtime that can be read. Without
// Options.NativeOnly it is false only for native AOT programs: theirs is not the CLR,
// and their methods are native functions.
func (p *Process) HasRuntime() bool { return p.s.Runtime != nil }

// Unknown is a contract of which the process's runtime follows a version that is not understood, and what cannot be
// shown because of that. All else is shown.
type Unknown struct {
	Contract string // such as "DebugInfo"
	Text     string // "without source lines and inlined methods: .NET 12.0.1 follows version c2 of …"
}

// Unknown lists the contracts of the process's runtime that are not understood. That of its garbage collector is
// among them as soon as that has started.
func (p *Process) Unknown() (out []Unknown) {
	if p.s.Runtime == nil {
		return nil
	}
	for _, u := range p.s.Runtime.Unknown() {
		out = append(out, Unknown{Contract: u.Contract, Text: u.Error()})
	}
	return out
}

// MayBlock returns an ErrMayBlock that says why, if process pid can keep its reader waiting for
// ever. It returns nil for other processes, and for one that cannot be opened. It reads nothing
// that could block. pid can be this process.
func MayBlock(pid int) error { return publish(live.MayBlock(pid)) }

// Packages events and record work with the inside of a Process.
func init() {
	bridge.Session = func(process any) *session.Process { return process.(*Process).s }
	bridge.Suspension = func(s any) *session.Suspension { return s.(*Suspension).s }
	bridge.SetMode = func(process, mode any) { process.(*Process).mode = mode.(Mode) }
	bridge.Options = func(options any) session.Options { return options.(Options).session() }
	bridge.Thread = func(t *session.Thread) any { return newThread(t) }
	bridge.Publish = publish
	bridge.Call = call
}
