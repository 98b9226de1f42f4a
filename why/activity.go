package why

import (
	"fmt"
	"time"

	"clrsnap/profile"
)

// activity is what the process did, as far as the evidence tells.
func (e *evidence) activity() *profile.Activity {
	first, last, ok := e.delta()
	if !ok || e.core() {
		return nil
	}
	a := &profile.Activity{
		CPU: e.cpuActivity(first, last), GCShare: -1, ExceptionsPerSecond: -1, Descriptors: last.files,
		DescriptorsLimit: last.filesLimit,
	}
	a.RequestsInFlight, a.RequestsEnded = -1, e.requestsEnded()
	if l := e.lastFlight(); l != nil && !l.Requests.Partial {
		a.RequestsInFlight, a.RequestsOver = len(l.requests()), l.at-e.flights[0].at
	}
	e.tasksActivity(a)
	e.memoryActivity(a, last)
	if r := e.samples; r != nil && r.Duration >= enough {
		if hasMode(r, profile.GC) {
			a.GCShare = atOnce(int64(collectionsOf(r).pause), r.Duration)
		}
		if hasMode(r, profile.Exception) {
			thrown, _ := weigh(r, func(x *profile.Sample) bool { return x.Mode == profile.Exception })
			a.ExceptionsPerSecond = float64(thrown) / r.Duration.Seconds()
		}
	}
	for i := range e.last().snap.Threads {
		switch t := &e.last().snap.Threads[i]; {
		case resting(t):
			a.Threads.Idle++
		case e.held(), t.Waits(), t.Wait != nil && t.Wait.Kind == profile.WaitIO: // a write may be blocked, too
			a.Threads.Waiting++
		default:
			a.Threads.Running++
		}
	}
	return a
}

// tasksActivity adds the async methods.
func (e *evidence) tasksActivity(a *profile.Activity) {
	a.TasksInFlight, a.TasksEnded = -1, -1
	l := e.lastFlight()
	if l == nil || l.Tasks.Partial || l.Tasks.Unread > 0 || l.Tasks.ConsistentShare < 1 {
		return
	}
	a.TasksInFlight = l.Tasks.Methods
	if e.methodsEnded.known {
		a.TasksEnded, a.TasksExact = e.methodsEnded.count, e.methodsEnded.exact
		a.TasksOver = l.at - e.flights[0].at
	}
}

// memoryActivity adds the memory, its growth, and the control group in which the least is left.
func (e *evidence) memoryActivity(a *profile.Activity, last *moment) {
	if n := len(e.heaps); n > 0 {
		first, now := &e.heaps[0], &e.heaps[n-1]
		if a.Memory = now.Memory; n > 1 && first.Memory != nil && now.Memory != nil {
			a.MemoryGrown, a.MemoryOver = now.Memory.Since(first.Memory), now.at-first.at
			if hasMode(e.samples, profile.GC) {
				withoutAgent(a.MemoryGrown)
			}
		}
	}
	if m := last.groups.LeastMemory(); m != nil {
		a.MemoryLimit = &profile.MemoryLimit{Limit: m.Limit(), Used: m.Used - m.Reclaim}
	}
}

// agentMost is more memory than the look itself brings into the process: the agent, and what the runtime makes for the
// agent, code and data (docs/costs.md), in bytes.
const agentMost = 8 << 20

// withoutAgent takes away growth that may be of the agent.
func withoutAgent(m *profile.Memory) {
	for _, part := range []*int64{&m.Files, &m.Code, &m.Native} {
		if *part > 0 && *part < agentMost {
			*part = 0
		}
	}
}

// cpuActivity is the CPU time between two moments; nil: not known. With few samples the use of the time is unknown.
func (e *evidence) cpuActivity(first, last *moment) *profile.ActivityCPU {
	took := last.at - first.at
	if took <= 0 || last.cpu < first.cpu {
		return nil
	}
	a := &profile.ActivityCPU{Used: atOnce(int64(last.cpu-first.cpu), took), May: float64(e.cpus)}
	for _, c := range last.groups.CPU {
		if c.Quota > 0 {
			a.May = min(a.May, c.Quota)
		}
	}
	a.OfNote = e.starved(a, first, last)
	mode, ok := e.runningMode()
	if !ok {
		return a
	}
	runs := func(x *profile.Sample) bool { return x.Mode == mode && x.State == profile.Running }
	all, n := weigh(e.samples, runs)
	if n < leastRun {
		return a
	}
	a.ByKind = e.samples.CPUByKind(mode)
	if list := sites(e.samples, runs); len(list) > 0 {
		a.Path, a.PathShare = frames(e.samples, list[0].leaf), float64(list[0].weight)/float64(all)
		a.Own = e.samples.Function(list[0].node).Display
	}
	a.OfNote = append(a.OfNote, e.ofNote(runs, all)...)
	return a
}

// Thresholds of a process that gets too little CPU time.
const (
	muchWanted = 0.5  // CPUs, on average, that ready threads waited for
	littleGot  = 0.75 // of the CPUs that the threads could use
)

// starved says that the process got too little CPU time: its threads were ready to run, and did not run, although the
// process may use more CPUs. Threads that share all CPUs that the process may use wait for one another only.
func (e *evidence) starved(a *profile.ActivityCPU, first, last *moment) []profile.Evidence {
	ran, ready := e.ranAndReady()
	whole := e.whole()
	could := min(a.May, atOnce(int64(ran+ready), whole))
	if atOnce(int64(ready), whole) < muchWanted || max(a.Used, atOnce(int64(ran), whole)) >= littleGot*could ||
		len(judgeThrottled(e)) > 0 {
		return nil
	}
	text := fmt.Sprintf("too little CPU time: the threads could have used %.2f CPUs, and got %.2f. A thread that was "+
		"ready to run had no CPU for %s of the time.", could, a.Used, percent(1-e.served()))
	took := last.at - first.at
	if others := time.Duration(e.cpus)*took - (last.idle - first.idle) - (last.cpu - first.cpu); first.idle >= 0 &&
		last.idle >= first.idle && atOnce(int64(others), took) >= (could-a.Used)/2 {
		text += fmt.Sprintf(" Other programs used %.2f of the machine's %s meanwhile.", atOnce(int64(others), took),
			counted(e.cpus, "CPU", "CPUs"))
	}
	return []profile.Evidence{{Text: text}}
}
