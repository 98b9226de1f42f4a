package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/deadlock"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/source"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
	"clrsnap/symbols"
)

// Options change how a process is read. The zero value has good defaults.
type Options struct {
	// Mode is what DoStackSnapshot reports.
	Mode Mode
	// NativeOnly also opens processes without a .NET runtime, for their native stacks.
	NativeOnly bool
	// AlwaysStop stops every captured thread. Otherwise a provably blocked thread is captured without a stop.
	AlwaysStop bool
	// MaxStack bounds the copy of one thread's stack, in bytes: between 256 KB and 64 MB. 0 stands for 8 MB, in a core
	// dump for 64 MB. A deeper stack lacks the frames near the base, and the result says so.
	MaxStack int
	// MaxPause is how long a thread may be stopped: 2 ms at least; 0 stands for 10 ms. Then a watchdog lets the thread
	// go. The watchdog does not depend on this process being scheduled. SnapshotAtOnce adds 100 ms.
	MaxPause time.Duration
	// NonBlocking refuses a process with an ErrMayBlock if the process can keep its reader waiting for ever. Files of a
	// FUSE or network file system are then within the process's reach. Nothing ends the wait, not even SIGKILL. Read
	// such a process in a process of its own, so that the reader can be abandoned.
	NonBlocking bool
	// ExactGenerics finds the instantiation of shared generic code, where the managed frame keeps the instantiation:
	// List<Order>.Add instead of List<__Canon>.Add. snapshot.Frame.Generics says so. A running thread may be stopped
	// once more for ExactGenerics.
	ExactGenerics bool
	// Lines finds the source lines of frames (snapshot.Frame.Line). The lines of managed frames come from the portable
	// PDBs of the assemblies. A PDB is looked for inside its assembly and beside the assembly, and must have the id and
	// the checksum that the assembly asks for. The lines of native frames come from DWARF. Nothing is fetched from
	// anywhere, unless Source says so.
	Lines bool
	// Symbols are folders on this machine with more PDBs and debug files of native modules.
	Symbols []string
	// Inlined adds frames for methods that were certainly inlined (snapshot.Frame.Inlined) to the stacks of snapshots.
	// Recordings get the frames too (profile.Location.Inlined) if the process has not ended by then. DoStackSnapshot
	// never reports inlined methods.
	Inlined bool
	// Async adds frames of kind snapshot.Async to the stacks of snapshots. They stand below a running async method, for
	// the methods that await the running method and are not on the stack. DoStackSnapshot never reports async frames.
	Async bool
	// Permits says whether SnapshotWaits also finds the likely holders (snapshot.WaitGraph.Likely): who has permits of
	// a SemaphoreSlim, and who completes a TaskCompletionSource. For that SnapshotWaits reads the managed heap.
	Permits PermitsMode
	// SourceRoots say where source files are on this machine. The first root that fits a file counts.
	SourceRoots []SourceRoot
	// PackStacks packs the stacks of SnapshotAll and SnapshotAtOnce (snapshot.Thread.Packed), for snapshots of many
	// threads: packed stacks take a tenth of the memory. snapshot.Thread.Frames of a packed thread is nil. The methods
	// Depth, Frame and Stack work for all threads. Three kinds of stacks stay unpacked: very deep stacks, stacks with
	// async frames, and with a Source all stacks.
	PackStacks bool
	// Source fetches the symbols that are nowhere on this machine, after all stacks of a snapshot or of a recording
	// have been taken. nil: nothing is fetched. Package symbols has a Source for symbol servers. Snapshot has no
	// context and waits for a minute at most; the other methods wait until their context ends.
	Source symbols.Source
}

// SourceRoot says that the compiler's source file From/a/b.cs is To/a/b.cs on this machine. With an empty From the file
// is looked for below To (a/b.cs, then b.cs), and must have the PDB's hash.
type SourceRoot struct{ From, To string }

// PermitsMode says whether SnapshotWaits reads the managed heap.
type PermitsMode = deadlock.Permits

// The modes.
const (
	PermitsNever = deadlock.PermitsNever
	// within one and a half seconds: Snapshot.Unsearched says if the time is too short
	PermitsSoon   = deadlock.PermitsSoon
	PermitsAlways = deadlock.PermitsAlways // however long it takes
)

func (o Options) session() session.Options {
	return session.Options{
		Options: naming.Options{
			ExactGenerics: o.ExactGenerics, Lines: o.Lines, Symbols: o.Symbols, Roots: o.roots(), Source: o.Source,
		},
		NativeOnly: o.NativeOnly, AlwaysStop: o.AlwaysStop, NonBlocking: o.NonBlocking,
		MaxStack: o.MaxStack, MaxPause: o.MaxPause, Inlined: o.Inlined, Async: o.Async,
		PackStacks: o.PackStacks,
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
	// Options are as for a running process. AlwaysStop, MaxPause and NonBlocking mean nothing for a core dump.
	Options
	// Executable is the program's file. Empty: the file is where the process had it.
	Executable string
	// Sysroot is the folder with the process's files: the folder of an unpacked container image, for example. Empty:
	// the files are where the process had them.
	Sysroot string
}

// Process is a running process or the core dump of a process. Its stacks can be walked. A Process is not safe for
// concurrent use.
type Process struct {
	s       *session.Process
	mode    Mode
	permits PermitsMode
	infos   frameInfos
}

// Open finds the runtime in process pid and the layout of its structures. Open attaches to nothing and stops no thread.
// The error says what to do next. errors.Is finds ErrNotDotNet, ErrPermission and this package's other errors, and
// errors.As finds an *AttachError. With an error there is no Process.
func Open(ctx context.Context, pid int, o Options) (*Process, error) {
	s, err := session.Open(ctx, pid, o.session())
	if err != nil {
		return nil, publish(err)
	}
	return &Process{s: s, mode: o.Mode, permits: o.Permits}, nil
}

// OpenCore opens the process in a core dump. The kernel, gcore or the runtime's createdump has written the dump. Memory
// that the dump lacks is read from the process's mapped files, if the files are unchanged. All of Process works, but a
// dump cannot be used with record.Record and events.Subscribe. Errors are as for Open.
func OpenCore(ctx context.Context, path string, o CoreOptions) (*Process, error) {
	s, err := session.OpenCore(ctx, path, session.CoreOptions{
		Options: o.session(), Executable: o.Executable, Sysroot: o.Sysroot,
	})
	if err != nil {
		return nil, publish(err)
	}
	return &Process{s: s, mode: o.Mode, permits: o.Permits}, nil
}

// Close releases the Process's resources. The target is not affected.
func (p *Process) Close() error { return p.s.Close() }

// Info describes the process and its runtime.
func (p *Process) Info() snapshot.Process { return p.s.Info() }

// HasRuntime reports whether there is a readable runtime. Without Options.NativeOnly the answer is false only for
// native AOT programs: their runtime is not the CLR, and their methods are native functions. HasLocks, Heap
// and Tasks say what can be read of them all the same.
func (p *Process) HasRuntime() bool { return p.s.Runtime != nil }

// HasLocks reports whether the locks of the process can be read. Those of native AOT programs can from .NET 11 on, if
// the program keeps the names of its types.
func (p *Process) HasLocks() bool { return p.s.Managed != nil && p.s.Managed.Locks != nil }

// Unknown is a contract of the process's runtime in a version that clrsnap does not understand, and what cannot be
// shown for that reason. All else is shown.
type Unknown struct {
	Contract string // such as "DebugInfo"
	Text     string // "without source lines and inlined methods: .NET 12.0.1 follows version c2 of …"
}

// Unknown lists the contracts of the process's runtime that clrsnap does not understand. The contract of the garbage
// collector is among them as soon as the collector has started.
func (p *Process) Unknown() (out []Unknown) {
	if p.s.Runtime == nil {
		return nil
	}
	for _, u := range p.s.Runtime.Unknown() {
		out = append(out, Unknown{Contract: u.Contract, Text: u.Error()})
	}
	return out
}

// MayBlock returns an ErrMayBlock with the reason, if process pid can keep its reader waiting for ever. MayBlock
// returns nil for other processes, and for a process that cannot be opened. MayBlock reads nothing that could block.
// pid can be this process.
func MayBlock(pid int) error { return publish(live.MayBlock(pid)) }
