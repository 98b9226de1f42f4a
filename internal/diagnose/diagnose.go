// Package diagnose checks everything that stacks and recordings need, step by step.
package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/clr"
	"clrsnap/internal/elfx"
	"clrsnap/internal/inject"
	"clrsnap/internal/locate"
	"clrsnap/internal/origin"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// checks are the outcomes of checks.
type checks []snapshot.Check

func (c *checks) add(name string, o snapshot.Outcome, detail, remedy string) {
	*c = append(*c, snapshot.Check{Name: name, Outcome: o, Detail: detail, Remedy: remedy})
}

// Process checks everything that stacks of process pid need, step by step, and finally takes the stacks. Process
// stops early if the remaining checks are not possible.
func Process(ctx context.Context, pid int) []snapshot.Check {
	var d diagnosis
	blocked := false
	for _, f := range live.CheckAccess(pid) {
		v := snapshot.Fine
		if !f.OK {
			v, blocked = snapshot.Blocking, true
		}
		d.add(f.Check, v, f.Detail, f.Remedy)
	}
	if blocked {
		return d.checks
	}
	p, err := session.Open(ctx, pid, session.Options{NativeOnly: true})
	if err != nil {
		d.add("process", snapshot.Blocking, err.Error(), "")
		return d.checks
	}
	defer p.Close()
	d.p = p
	d.namespace()
	if !d.runtime() {
		return d.checks
	}
	if p.Runtime != nil {
		d.layouts()
	}
	d.modules()
	d.stacks(ctx)
	d.watchdog()
	d.perfEvents()
	if p.Runtime != nil {
		d.agent()
	}
	return d.checks
}

// diagnosis checks an opened process.
type diagnosis struct {
	checks
	p *session.Process
}

func (d *diagnosis) namespace() {
	pid := d.p.Live.PID()
	ns, err := d.p.Live.NSTid(pid)
	switch {
	case err != nil:
		d.add("PID namespace", snapshot.Blocking, err.Error(),
			"read /proc of the namespace that the process was started from")
	case ns != pid:
		d.add("PID namespace", snapshot.Fine,
			fmt.Sprintf("it has its own (a container), where it is process %d", ns), "")
	default:
		d.add("PID namespace", snapshot.Fine, "the same as ours", "")
	}
}

func (d *diagnosis) runtime() bool {
	r, err := d.p.Found, d.p.RuntimeErr
	if r == nil {
		remedy := ""
		if errors.Is(err, locate.ErrNotDotNet) {
			remedy = "find the right process with clrsnap ps, or look at the native stacks with clrsnap stack --native"
		}
		d.add("runtime", snapshot.Blocking, err.Error(), remedy)
		return false
	}
	version := r.Version
	if version == "" {
		version = "of unknown version"
	}
	detail := fmt.Sprintf(".NET %s (%s) in %s", version, r.Shape, r.Module.Path)
	if e, ok := errors.AsType[*origin.UnreadableError](origin.Unreadable(err, origin.Running(d.p.Live))); ok {
		d.add("runtime", snapshot.Blocking, detail+": "+e.Reason(), e.Remedy)
		return false
	}
	if r.Shape == locate.NativeAOT {
		seen, unseen := "its stacks and its use of CPUs", "locks, tasks, the heap and events"
		if m := d.p.Managed; m != nil && m.Objects != nil {
			seen = "its stacks, its use of CPUs, locks, tasks, requests, exceptions and the heap"
			unseen = "calls of HttpClient and events"
		}
		detail += ": " + seen + " can be seen, " + d.aheadNames() + "; " + unseen + " cannot"
	}
	d.add("runtime", snapshot.Fine, detail, "")
	return true
}

// aheadNames says where the names of a native AOT program's methods come from.
func (d *diagnosis) aheadNames() string {
	names := d.p.Engine.Ahead
	if names == nil {
		return "with names of methods if it has symbols"
	}
	what := "the names"
	if names.HasLines() {
		what = "the names and lines"
	}
	return fmt.Sprintf("with %s of %d methods, which the program has for stack traces", what, names.Len())
}

// layouts says where the layout of the runtime's structures comes from.
func (d *diagnosis) layouts() {
	own := d.p.Engine.Own
	if own == nil {
		d.add("data descriptor", snapshot.Fine, "the runtime has none; clrsnap's own is used, which fits", "")
	} else {
		d.add("data descriptor", snapshot.Fine, fmt.Sprintf("%d types, %d globals, %d contracts",
			len(own.Types), len(own.Globals), len(own.Contracts)), "")
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(clr.Needs)) {
		by := ""
		if own == nil || own.Contracts[name] == "" {
			by = " (clrsnap's)"
		}
		names = append(names, name+" "+string(d.p.Engine.Layout.Contracts[name])+by)
	}
	d.add("contracts", snapshot.Fine, strings.Join(names, ", "), "")
	for _, u := range d.p.Runtime.Unknown() {
		d.add("contract "+u.Contract, snapshot.Degraded, u.Error(), "")
	}
}

// modules checks that the native modules can be read. Without its file a module has no names, and often no unwind
// information.
func (d *diagnosis) modules() {
	var bad []string
	var first error
	n := 0
	for _, m := range d.p.Engine.Modules.All() {
		// Assemblies are mapped like native code but are no ELF images, and a single-file program maps pieces of its
		// own file as assemblies. A program that writes a jitdump maps the first page of the dump, for perf to find
		// the dump.
		jitdump := strings.HasPrefix(m.Name, "jit-") && strings.HasSuffix(m.Name, ".dump")
		piece := m.Path == d.p.Found.Module.Path && m.Start != d.p.Found.Module.Start
		if jitdump || piece || strings.HasSuffix(m.Name, ".dll") {
			continue
		}
		n++
		if _, err := m.Image(); err != nil {
			bad = append(bad, m.Name)
			if first == nil {
				first = err
			}
			continue
		}
		if _, err := m.Lookup("_"); err != nil && !errors.Is(err, elfx.ErrNotFound) {
			bad = append(bad, m.Name)
		}
	}
	if len(bad) == 0 {
		d.add("modules", snapshot.Fine, fmt.Sprintf("%d native modules can be read", n), "")
		return
	}
	detail := fmt.Sprintf("%d of %d native modules cannot be read (%s)", len(bad), n, strings.Join(bad, ", "))
	if first != nil {
		detail += ": " + first.Error()
	}
	d.add("modules", snapshot.Degraded, detail+"; stacks through these modules can be incomplete",
		"run as root, or restart the program if its files were replaced")
}

// watchdog checks whether something besides this process bounds the stops of threads.
func (d *diagnosis) watchdog() {
	if why := d.p.Live.Unwatched(); why != "" {
		d.add("watchdog", snapshot.Degraded, why+": a stopped thread would have to wait if clrsnap itself got no CPU",
			"run as root, or with CAP_SYS_PTRACE")
		return
	}
	d.add("watchdog", snapshot.Fine, fmt.Sprintf(
		"a stopped thread is resumed after %v at the latest, all threads at once after %v",
		live.DefaultWatchdog, live.DefaultAllLimit+live.DefaultWatchdog), "")
}

// perfEvents checks whether CPU samples are possible, by trying.
func (d *diagnosis) perfEvents() {
	const name = "perf events"
	e, err := perfevent.Open(perfevent.Options{PID: d.p.Live.PID(), Kernel: true})
	if err != nil {
		what, remedy := samplesError(err)
		d.add(name, snapshot.Degraded, what+": clrsnap record cannot take CPU samples (--mode wall works)", remedy)
		return
	}
	defer e.Close()
	if e.KernelExcluded() {
		d.add(name, snapshot.Degraded, "CPU samples are possible, but without time in the kernel",
			"run as root, or with CAP_PERFMON, or set the sysctl kernel.perf_event_paranoid to 1")
	} else {
		d.add(name, snapshot.Fine, "CPU samples are possible, in the kernel too", "")
	}
	d.scope(e)
}

// samplesError is the reason and the remedy, if perfevent.Open returns err.
func samplesError(err error) (what, remedy string) {
	if e, ok := errors.AsType[*perfevent.Error](err); ok {
		return e.Reason(), e.Remedy
	}
	return err.Error(), ""
}

const samplesRemedy = "run as root, or with CAP_PERFMON and CAP_BPF (before Linux 5.8: CAP_SYS_ADMIN)"

// scope says what the kernel watches for CPU samples, because the scope decides their cost.
func (d *diagnosis) scope(e *perfevent.Events) {
	const name, remedy = "cost of samples", samplesRemedy
	switch s, why := e.Scope(); s {
	case perfevent.Filtered:
		d.add(name, snapshot.Fine,
			"next to nothing: the kernel samples each CPU, and drops the samples of other programs", "")
	case perfevent.Unfiltered:
		d.add(name, snapshot.Degraded, fmt.Sprintf("some per cent of a CPU on a busy machine: "+
			"the kernel copies a stack for each sample of any program, because %v", why), remedy)
	default:
		d.add(name, snapshot.Degraded, fmt.Sprintf(
			"time at every switch between threads, up to a fifth of a busy web server's: "+
				"the kernel samples each thread by a timer of its own, because %v", why), remedy)
	}
}

// agent checks whether events can be recorded, without loading the agent.
func (d *diagnosis) agent() {
	const name = "events"
	where, err := inject.Check(d.p.Live.Dir())
	if err == nil {
		d.add(name, snapshot.Fine,
			"the agent can be unpacked in "+path.Dir(where)+", and the runtime can be asked to load it", "")
		return
	}
	what, remedy := err.Error(), ""
	if e, ok := errors.AsType[*inject.Error](err); ok {
		what, remedy = e.Reason(), e.Remedy
	}
	d.add(name, snapshot.Degraded, what+": clrsnap record cannot record events", remedy)
}

// stacks takes the stacks of all threads.
func (d *diagnosis) stacks(ctx context.Context) {
	s, err := d.p.Snapshot(ctx, session.SnapshotOptions{})
	if err != nil {
		d.add("stacks", snapshot.Blocking, err.Error(), "")
		return
	}
	var complete int
	why := ""
	for i := range s.Threads {
		if s.Threads[i].Complete {
			complete++
		} else if why == "" {
			why = fmt.Sprintf("thread %d: %s", s.Threads[i].OSThreadID, s.Threads[i].Error)
		}
	}
	detail := fmt.Sprintf("%d of %d threads complete", complete, len(s.Threads))
	if p := s.Pauses(); p.Count > 0 {
		us := func(d time.Duration) float64 { return float64(d) / 1e3 }
		detail += fmt.Sprintf(", %d stops of p50 %.0f µs, p99 %.0f µs, max %.0f µs",
			p.Count, us(p.P50), us(p.P99), us(p.Max))
	}
	switch {
	case complete == len(s.Threads):
		d.add("stacks", snapshot.Fine, detail, "")
	case complete > 0:
		d.add("stacks", snapshot.Degraded, detail+"; "+why,
			"try again: in a moment these threads may be where they can be walked")
	default:
		d.add("stacks", snapshot.Blocking, detail+"; "+why, "")
	}
}
