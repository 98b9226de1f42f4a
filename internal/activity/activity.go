// Package activity says what a process does, whether or not something is wrong: CPU time, threads, requests, async
// methods, memory, and the waits of the program's own code. The package reads the evidence of package gather, and
// judges nothing.
package activity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Of is what the process did, as far as the evidence tells.
func Of(e *gather.Evidence) *profile.Activity {
	first, last, ok := e.Delta()
	if !ok || e.Core() {
		return nil
	}
	a := &profile.Activity{
		CPU: cpuActivity(e, first, last), GCShare: -1, ExceptionsPerSecond: -1, Descriptors: last.Files,
		DescriptorsLimit: last.FilesLimit,
	}
	a.RequestsInFlight, a.RequestsEnded = -1, e.RequestsEnded()
	if l := e.LastFlight(); l != nil && !l.Requests.Partial {
		a.RequestsInFlight, a.RequestsOver = len(l.RequestsNow()), l.At-e.Flights[0].At
	}
	tasksActivity(e, a)
	memoryActivity(e, a, last)
	if r := e.Samples; r != nil && r.Duration >= gather.Enough {
		if gather.HasMode(r, profile.GC) {
			a.GCShare = gather.AtOnce(r.Weight(profile.GC), r.Duration)
		}
		if gather.HasMode(r, profile.Exception) {
			a.ExceptionsPerSecond = float64(r.Weight(profile.Exception)) / r.Duration.Seconds()
			m, _ := r.Mode(profile.Exception)
			a.RethrowsPerSecond = float64(m.Rethrown) / r.Duration.Seconds()
			a.MostExceptions = mostExceptions(e)
		}
	}
	for i := range e.Last().Snap.Threads {
		switch t := &e.Last().Snap.Threads[i]; {
		case gather.Resting(t):
			a.Threads.Idle++
		case e.Held(), t.Waits(), t.Wait != nil && t.Wait.Kind == snapshot.WaitIO: // a write may be blocked, too
			a.Threads.Waiting++
		default:
			a.Threads.Running++
		}
	}
	return a
}

// Thresholds of the exceptions that are named: of one kind, as a share of all, and a second.
const (
	mostOfExceptions = 0.5
	fewExceptions    = 1.0
)

// mostExceptions describes the kind of most exceptions; "": there are few exceptions, or many kinds.
func mostExceptions(e *gather.Evidence) string {
	r, list := e.Samples, e.Throws()
	if len(list) == 0 || float64(list[0].Weight) < fewExceptions*r.Duration.Seconds() ||
		float64(list[0].Weight) < mostOfExceptions*float64(r.Weight(profile.Exception)) {
		return ""
	}
	t := list[0]
	return fmt.Sprintf("%s, thrown %s%s", t.Type,
		gather.ThrownAt(gather.WithoutEvents(gather.Frames(r, t.Node))), t.Caught())
}

// tasksActivity adds the async methods.
func tasksActivity(e *gather.Evidence, a *profile.Activity) {
	a.TasksInFlight, a.TasksEnded = -1, -1
	l := e.LastFlight()
	if l == nil || l.Tasks.Partial || l.Tasks.Unread > 0 || l.Tasks.ConsistentShare < 1 {
		return
	}
	a.TasksInFlight = l.Tasks.Methods
	if e.MethodsEnded.Known {
		a.TasksEnded, a.TasksExact = e.MethodsEnded.Count, e.MethodsEnded.Exact
		a.TasksOver = l.At - e.Flights[0].At
	}
}

// memoryActivity adds the memory, its growth, and the control group in which the least is left.
func memoryActivity(e *gather.Evidence, a *profile.Activity, last *gather.Moment) {
	if n := len(e.Heaps); n > 0 {
		first, now := &e.Heaps[0], &e.Heaps[n-1]
		if a.Memory = now.Memory; n > 1 && first.Memory != nil && now.Memory != nil {
			a.MemoryGrown, a.MemoryOver = now.Memory.Since(first.Memory), now.At-first.At
			if gather.HasMode(e.Samples, profile.GC) {
				withoutAgent(a.MemoryGrown)
			}
		}
	}
	if m := last.Groups.LeastMemory(); m != nil {
		a.MemoryLimit = &profile.MemoryLimit{Limit: m.Limit(), Used: m.Used - m.Reclaim}
	}
}

// agentMost is more memory than the look itself brings into the process: the agent, and what the runtime makes for the
// agent, code and data (docs/costs.md), in bytes.
const agentMost = 8 << 20

// withoutAgent takes away growth that may be of the agent.
func withoutAgent(m *snapshot.Memory) {
	for _, part := range []*int64{&m.Files, &m.Code, &m.Native} {
		if *part > 0 && *part < agentMost {
			*part = 0
		}
	}
}

// cpuActivity is the CPU time between two moments; nil: not known. With few samples the use of the time is unknown.
func cpuActivity(e *gather.Evidence, first, last *gather.Moment) *profile.ActivityCPU {
	took := last.At - first.At
	if took <= 0 || last.CPU < first.CPU {
		return nil
	}
	a := &profile.ActivityCPU{Used: gather.AtOnce(int64(last.CPU-first.CPU), took), May: float64(e.CPUs)}
	for _, c := range last.Groups.CPU {
		if c.Quota > 0 {
			a.May = min(a.May, c.Quota)
		}
	}
	a.OfNote = starved(e, a, first, last)
	mode, ok := e.RunningMode()
	if !ok {
		return a
	}
	runs := func(x *profile.Sample) bool { return x.Mode == mode && x.State == profile.Running }
	all, n := gather.Weigh(e.Samples, runs)
	if n < gather.LeastRun {
		return a
	}
	a.ByKind, a.NativeLibrary = e.Samples.CPUByKind(mode), e.Samples.NativeLibrary(mode)
	list := gather.Sites(e.Samples, runs)
	if len(list) > 0 {
		a.Path, a.PathShare = gather.Frames(e.Samples, list[0].Leaf), float64(list[0].Weight)/float64(all)
		a.Own = e.Samples.Function(list[0].Node).Display
	}
	known := ofNote(e, runs, all)
	aboutCPU := func(x profile.Evidence) bool { return strings.Contains(x.Text, "of the CPU time") }
	ran, ready := e.RanAndReady()
	wanted := max(a.Used, gather.AtOnce(int64(ran+ready), e.Whole())) // other programs may have taken the CPUs
	if len(list) > 0 && wanted >= muchUsed*a.May && !slices.ContainsFunc(known, aboutCPU) {
		known = append(calledMost(e.Samples, runs, &list[0], all), known...)
	}
	a.OfNote = append(a.OfNote, known...)
	return a
}

// Thresholds of a process that gets too little CPU time.
const (
	muchWanted = 0.5  // CPUs, on average, that ready threads waited for
	littleGot  = 0.75 // of the CPUs that the threads could use
)

// starved says that the process got too little CPU time: its threads were ready to run, and did not run, although the
// process may use more CPUs. Threads that share all CPUs that the process may use wait for one another only.
func starved(e *gather.Evidence, a *profile.ActivityCPU, first, last *gather.Moment) []profile.Evidence {
	ran, ready := e.RanAndReady()
	got, wanted := gather.AtOnce(int64(ran), e.Whole()), gather.AtOnce(int64(ready), e.Whole())
	could := min(a.May, got+wanted)
	if wanted < muchWanted || max(a.Used, got) >= littleGot*could || e.Throttled() != nil {
		return nil
	}
	text := fmt.Sprintf("too little CPU time: on average %.1f threads were ready to run and had no CPU (%s of their "+
		"time), while %.2f CPUs were used.", wanted, phrase.Percent(1-e.Served()), a.Used)
	took := last.At - first.At
	if others := time.Duration(e.CPUs)*took - (last.Idle - first.Idle) - (last.CPU - first.CPU); first.Idle >= 0 &&
		last.Idle >= first.Idle && gather.AtOnce(int64(others), took) >= (could-a.Used)/2 {
		text += fmt.Sprintf(" Other programs used %.2f of the machine's %s.", gather.AtOnce(int64(others), took),
			phrase.Counted(e.CPUs, "CPU", "CPUs"))
	}
	return append([]profile.Evidence{{Text: text}}, standReady(e)...)
}

// shownReady bounds the methods whose ready threads are told.
const shownReady = 3

// standReady says where threads stood that were ready to run nearly all the time, and that too few samples tell of. The
// looks alone tell where: without a CPU, a thread of a healthy program stands still, too.
func standReady(e *gather.Evidence) (out []profile.Evidence) {
	type group struct {
		at      *snapshot.Thread
		looks   int // the fewest of a thread
		threads []gather.Watched
	}
	groups := map[string]*group{}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		in, at, looks := w.StaysIn()
		if w.Last().ManagedThreadID == 0 || !w.AlwaysReady(e) || w.Ready < w.Ran || looks < 2 {
			continue
		}
		g := groups[in]
		if g == nil {
			g = &group{at, looks, nil}
			groups[in] = g
		}
		g.looks, g.threads = min(g.looks, looks), append(g.threads, *w)
	}
	list := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.at.OSThreadID, b.at.OSThreadID))
	})
	mode, sampled := e.RunningMode()
	for _, g := range list {
		if sampled {
			runs := gather.RunsOf(e.Samples, gather.IDs(g.threads), mode)
			if _, n := gather.Weigh(e.Samples, runs); n >= gather.LeastRun {
				continue // the judges have seen the samples
			}
		}
		refs := make([]snapshot.ThreadRef, len(g.threads))
		for i := range refs {
			refs[i] = gather.Ref(g.threads[i].Last())
		}
		who, was := phrase.ThreadName(refs[0]), "was"
		if len(refs) > 1 {
			who, was = phrase.ThreadsOf(len(refs)), "were"
		}
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s %s ready to run nearly all the time, in %s in %d of %d looks. With so little CPU "+
				"time it cannot be told whether that is a loop.", who, was, gather.Place(g.at.Frames),
				g.looks, len(e.Looks)),
			Frames: g.at.Frames, Threads: refs,
		})
	}
	return out[:min(len(out), shownReady)]
}
