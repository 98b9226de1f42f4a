package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/agent"
	"clrsnap/internal/link"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// Options say how to record. The zero value takes CPU samples at 99 Hz until the context ends or
// the process exits.
type Options struct {
	// Modes are the modes to sample; none: profile.CPU, unless there are Events.
	//
	// profile.CPU: the kernel samples the code on each CPU, Rate times a second. Each sample stands for
	// 1/Rate of a second of CPU time. No thread is stopped. profile.ModeStats.Source of the result tells
	// how the kernel samples.
	//
	// profile.Wall samples every thread Rate times a second, whatever the thread does. A provably blocked
	// thread is not stopped. For a running thread, its next CPU sample is used.
	Modes []profile.Mode
	// Events are notifications to record as well, each with the stack of its thread. If
	// Events.Monitor is 0, there are none. Child processes report events if Subprocesses is set.
	Events events.Options
	// Live follows the objects of the samples of profile.Alloc, and makes samples of profile.Live from the
	// objects alive at the end. Events.Monitor must have events.MonitorAllocations.
	Live bool
	// Collect makes the runtime do a full, blocking garbage collection at the end, for Live: then no dead
	// object is among the samples of profile.Live. The collection stops the program for as long as it
	// takes. The default is no collection.
	Collect bool
	// Rate is in samples a second, between MinRate and MaxRate; 0: 99.
	Rate float64
	// Duration ends the recording; 0: the recording lasts until the context ends or the process exits.
	Duration time.Duration
	// Threads chooses the threads to record; nil: all.
	Threads clrsnap.Filter
	// Subprocesses records child processes that run .NET too.
	Subprocesses bool
	// MaxCPU is the share of one CPU that profile.Wall may use: 0.1 is a tenth, 0 stands for
	// DefaultMaxCPU. If MaxCPU is not enough to sample all threads at Rate, every thread is sampled less
	// often, and each sample stands for more time. profile.ModeStats.Got and a note in the result say so.
	MaxCPU float64
	// SourceText keeps the text around the source lines, as far as the text is in a PDB, or in a file on
	// this machine with the hash in the PDB. Lines are recorded if the process was opened with
	// clrsnap.Options.Lines.
	SourceText bool
	// ExplainLines adds a note for each assembly of the program, and of its packages, without source
	// lines.
	ExplainLines bool
	// Alone says that this program does nothing but record meanwhile. Then the recording takes less of the
	// CPUs: the priority of the whole process is raised, not the priority of one OS thread, so the process
	// must start no other process until the recording ends; and memory is read without telling Go's
	// scheduler. GOMAXPROCS must be 2 or more: a process that keeps its reader waiting (docs/security.md)
	// occupies one of Go's processors, and keeps garbage collections from ending.
	Alone bool
	// Begun is called by Record once when the recording begins: nothing can stand in the way any more. nil: no call.
	Begun func()
	// Progress is called every 500 ms, on the goroutine that records: it must return soon. nil: no calls.
	Progress func(Progress)

	// watch is called, in tests, after every walk. The frames are in the table; begin is the earliest
	// possible time of the stack.
	watch func(f *frameTable, s *session.Suspension, complete bool, begin time.Duration)

	// local: files of this machine with names from a program can be read, because no file can keep its
	// reader waiting. Mapped rings of perf events look as if they could, so local is determined first.
	local bool
}

// The bounds and the default of Options.Rate, in samples a second, and the default of
// Options.MaxCPU, in CPUs.
const (
	MinRate       = 0.1
	MaxRate       = 10_000
	DefaultRate   = 99
	DefaultMaxCPU = 0.1
)

// Progress is how far a recording has come.
type Progress struct {
	Elapsed   time.Duration
	Samples   int     // in all modes
	Broken    int     // samples with incomplete stacks, included in Samples
	Lost      int     // lost samples, in all modes; they are not in Samples
	TargetCPU float64 // CPUs used by the target since the last report, on average
	Threads   int     // running threads
}

// ErrNoPerfEvents: the kernel does not allow CPU samples. The text says what to do. If Options.Modes
// has profile.Wall too, the recording is made without CPU samples, and says so in a note.
var ErrNoPerfEvents = perfevent.ErrUnavailable

func (o *Options) complete() error {
	if o.Alone && runtime.GOMAXPROCS(0) < 2 {
		return errors.New("Options.Alone needs two CPUs for Go: call runtime.GOMAXPROCS(2) before, or do without Alone")
	}
	o.local = o.SourceText && live.MayBlock(os.Getpid()) == nil
	if o.Events.Monitor != 0 {
		if err := subscribed.Complete(&o.Events); err != nil {
			return err
		}
		if o.Events.Hold > 0 {
			return errors.New("a recording holds no threads: use events.Subscribe")
		}
	} else if len(o.Modes) == 0 {
		o.Modes = []profile.Mode{profile.CPU}
	}
	if err := o.checkLive(); err != nil {
		return err
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.MaxCPU == 0 {
		o.MaxCPU = DefaultMaxCPU
	}
	for _, m := range o.Modes {
		if m != profile.CPU && m != profile.Wall {
			return fmt.Errorf("there is no mode %d to sample: give profile.CPU or profile.Wall, and choose events "+
				"with Options.Events", m)
		}
	}
	switch {
	case !(o.Rate >= MinRate && o.Rate <= MaxRate):
		return fmt.Errorf("a rate of %g samples a second: give a rate between %g and %d", o.Rate, MinRate, MaxRate)
	case !(o.MaxCPU > 0):
		return fmt.Errorf("%g CPUs to sample with: give a share of a CPU, for example %g", o.MaxCPU, DefaultMaxCPU)
	case o.Duration < 0:
		return fmt.Errorf("a recording of %v: give a positive duration, or 0 for no end", o.Duration)
	}
	return nil
}

func (o *Options) checkLive() error {
	switch {
	case o.Live && o.Events.Monitor&events.MonitorAllocations == 0:
		return errors.New("the live heap has sampled allocations: add events.MonitorAllocations to " +
			"Options.Events")
	case o.Collect && !o.Live:
		return errors.New("a garbage collection at the end is for the live heap: set Options.Live, too")
	}
	return nil
}

// request is the subscription for the agents.
func (o *Options) request(maxPause time.Duration) agent.Subscription {
	want := subscribed.Request(&o.Events, maxPause)
	if o.Live {
		want.Handles = maxFollowed
	}
	return want
}

// readable requires, if there are events, that processes are opened with their runtimes.
func (o *Options) readable(opts session.Options) error {
	if o.Events.Monitor != 0 && opts.NativeOnly {
		return errors.New("only a .NET runtime reports events: open the process without Options.NativeOnly")
	}
	return nil
}

func (o *Options) has(m profile.Mode) bool { return slices.Contains(o.Modes, m) }

func (o *Options) wants(t *session.Thread) bool {
	return o.Threads == nil || o.Threads(root.Thread(t))
}

// Record samples the stacks of the threads of a process over time. It returns when Options.Duration is
// over, ctx ends or the process exits. In all three cases the result is everything collected by then,
// without an error. profile.Recording.Notes says what is missing in the result.
//
// An error means that there is no recording: options that make no sense, a core dump, an exited
// process, ErrNoPerfEvents, or an agent that could not be loaded for Options.Events. process must not
// be used otherwise until Record returns.
func Record(ctx context.Context, process *clrsnap.Process, o Options) (*profile.Recording, error) {
	p := root.Session(process)
	if p.Walking {
		return nil, root.Publish(session.NestedError(0))
	}
	if err := p.Runs(); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	var with *link.Link
	if o.Events.Monitor != 0 {
		if err := o.readable(p.Options); err != nil {
			return nil, err
		}
		if err := subscribed.Attachable(&o.Events); err != nil {
			return nil, err
		}
		var err error
		if with, err = link.Attach(ctx, p, o.request(p.Options.MaxPause)); err != nil {
			return nil, err
		}
	}
	r := newRecorder(o)
	defer r.close()
	r.opts = p.Options
	var before agentCounts
	if with != nil {
		before = with.Counts()
	}
	r.surveyed = newFrameTable(p, r.assemblies)
	r.surveyed.know(surveyFirst)
	err := r.begin(p.PID())
	if err == nil {
		// The kernel samples by process id: check that this process still has the id.
		err = p.Alive()
	}
	if err != nil {
		if with != nil {
			with.Detach()
		}
		return nil, root.Publish(err)
	}
	rp := r.add(p)
	if with != nil {
		np := r.events.met(p.PID(), with)
		np.checkWaits()
		np.before = before
		np.reads(rp)
	}
	if o.Begun != nil {
		o.Begun()
	}
	return r.run(ctx), nil
}
