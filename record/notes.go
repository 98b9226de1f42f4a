package record

import (
	"fmt"
	"math"
	"time"

	"clrsnap/internal/link"
	"clrsnap/internal/perfevent"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// remarks are notes for the reader of the recording.
func (r *recorder) remarks() []string {
	out := r.notes
	if r.cpu != nil && !r.cpu.quiet {
		out = append(out, r.cpuRemarks()...)
	}
	if r.cpu != nil {
		out = append(out, r.sourceRemarks()...)
	}
	if r.wall != nil {
		if r.source(profile.Wall) == profile.FromStops {
			out = append(out, "Running threads were stopped for wall-clock samples, because the kernel lets this "+
				"user take no complete CPU samples. A thread stops where it next leaves the kernel, so system calls "+
				"look longer than they are.")
		}
		if s := r.wall.modeStats(); s.Got > 0 {
			out = append(out, fmt.Sprintf("Threads that did not stay blocked were sampled %.3g times a second "+
				"instead of %g: more samples would have taken more than %.3g %% of a CPU, or come too late.",
				s.Got, s.Rate, 100*r.o.MaxCPU))
		}
	}
	if r.events != nil {
		out = append(out, r.events.remarks()...)
	}
	if s := r.unknownRemark(); s != "" {
		out = append(out, s)
	}
	for _, rp := range r.all {
		if rp.left > 0 {
			pid := rp.p.Live.PID()
			out = append(out, fmt.Sprintf("Process %d executed another program (execve) after about %.1f s: the "+
				"recording ends there. If the other program is a .NET program: clrsnap record %d.",
				pid, (rp.left-r.start).Seconds(), pid))
		}
	}
	out = append(out, r.awaitsRemarks()...)
	if d := r.b.Bin(); d > 0 {
		out = append(out, fmt.Sprintf("There are very many samples: equal samples within %v were merged.",
			d.Round(time.Millisecond)))
	}
	if n := r.b.Truncated(); n > 0 {
		out = append(out, fmt.Sprintf("There are very many different stacks, or very deep stacks: the stacks of %d "+
			"samples lack frames near the leaf.", n))
	}
	return out
}

// unknownRemark explains unknown code, if there is more than a little.
func (r *recorder) unknownRemark() string {
	const notable = 200 // one stack in so many
	unknown, all := 0, 0
	for _, rp := range r.all {
		unknown += rp.frames.unknown
	}
	for _, m := range r.modes() {
		all += m.Samples
	}
	if unknown == 0 || unknown*notable < all {
		return ""
	}
	return fmt.Sprintf("%s %s: the code can be unloaded, and may have been replaced before clrsnap read the name.",
		counted(unknown, "stack has", "stacks have"), profile.UnknownCode)
}

// awaitsRemarks say for how many async methods the awaiting method is not known, if there are more
// than a few.
func (r *recorder) awaitsRemarks() (out []string) {
	const notable = 20 // one in so many
	say := func(l looks, text string) {
		if l.missing > 0 && l.missing*notable >= l.all {
			out = append(out, fmt.Sprintf(text, 100*float64(l.missing)/float64(l.all)))
		}
	}
	var sampled, events looks
	reused, left := 0, 0
	for _, rp := range r.all {
		a := &rp.frames.awaits
		sampled.add(a.sampled)
		events.add(a.events)
		reused, left = reused+a.reused, left+a.running.left
	}
	ended := "The awaiters of %.0f %% of the async methods sampled after an await are not known: these methods ended " +
		"before clrsnap could read the awaiters."
	if left > 0 {
		ended += fmt.Sprintf(" So clrsnap looked at only one CPU sample in %d.", fleetingTry)
	}
	say(sampled, ended)
	say(looks{sampled.all + reused, reused}, "The awaiters of %.0f %% of the async methods sampled after an await are "+
		"not known: their builder (PoolingAsyncValueTaskMethodBuilder) uses a box for many calls.")
	say(events, "The awaiters of %.0f %% of the async methods with an event are not known: clrsnap cannot read "+
		"awaiters at the first events of a method, nor while the garbage collector moves objects.")
	return out
}

// agentRemarks say how much of the sampled CPU time was the agent's.
func agentRemarks(r *profile.Recording) []string {
	all, agents := r.Weight(profile.CPU), agentTime(r)
	if agents == 0 {
		return nil
	}
	return []string{fmt.Sprintf("About %.1f %% of the CPU time (%s) is not the program's own: clrsnap's agent took "+
		"the stacks of events in this time (frames of %s, and their callees).",
		100*float64(agents)/float64(all), time.Duration(agents).Round(time.Millisecond), link.AgentModule)}
}

// agentTime is the CPU time of samples with a frame of the agent's.
func agentTime(r *profile.Recording) int64 {
	ofAgent := make([]bool, len(r.Nodes))
	for n := 1; n < len(r.Nodes); n++ { // a caller comes before its callees
		f := r.Function(int32(n))
		ofAgent[n] = ofAgent[r.Nodes[n].Parent] || f.Kind == snapshot.Native && f.Module == link.AgentModule
	}
	sum := int64(0)
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Mode == profile.CPU && ofAgent[s.Node] {
			sum += s.Weight
		}
	}
	return sum
}

// cpuRemarks are the notes about CPU samples.
func (r *recorder) cpuRemarks() []string {
	var out []string
	if r.cpu.events.KernelExcluded() {
		out = append(out, "Time in the kernel is not counted, because the kernel hides it from this user: "+
			"run clrsnap as root or with CAP_PERFMON, or set the sysctl kernel.perf_event_paranoid to 1.")
	}
	s := r.cpu.stats
	if all := s.Samples + s.Lost; s.Lost > 0 && s.Lost*100 > all {
		out = append(out, fmt.Sprintf("%d of %d CPU samples were lost, because clrsnap did not read the kernel's "+
			"buffers in time: a lower rate, or a less busy machine, helps.", s.Lost, all))
	}
	if r.o.Threads == nil {
		out = append(out, missingRemark(s, r.source(profile.CPU), r.targetCPU(), r.cpu.period)...)
	}
	return out
}

// missingRemark says that CPU samples stand for less than the used CPU time, and why, as far as the
// reason is known.
func missingRemark(s profile.ModeStats, from profile.Source, used, period time.Duration) []string {
	missing := used - time.Duration(s.Samples)*period
	// Samples are taken by chance: a few may be missing.
	chance := 4 / math.Sqrt(float64(used)/float64(period)+1)
	share := float64(missing) / float64(max(used, 1))
	if used <= time.Second || share <= max(0.1, chance) {
		return nil
	}
	var why string
	switch missed := time.Duration(s.Missed) * period; {
	case from == profile.FromThreads:
		why = fmt.Sprintf("a thread is sampled after each %v of CPU time, and CPU time after the last sample is not "+
			"seen. If threads live for a short time, a higher rate helps",
			period.Round(10*time.Microsecond))
	case missed >= missing/2:
		why = fmt.Sprintf("timers of the CPUs missed about %d turns, as on a virtual machine that waits for shared "+
			"CPUs", s.Missed)
	default:
		why = "the machine's timers were late, or the sysctl kernel.perf_cpu_time_max_percent limits the samples"
	}
	return []string{fmt.Sprintf("The CPU samples stand for %.0f %% of the used CPU time: %s.",
		100*(1-share), why)}
}

// source is how a mode gets the stacks of running threads.
func (r *recorder) source(m profile.Mode) profile.Source {
	if r.cpu == nil || m == profile.Wall && r.cpu.events.KernelExcluded() {
		return profile.FromStops
	}
	switch scope, _ := r.cpu.events.Scope(); scope {
	case perfevent.Filtered:
		return profile.FromProcessors
	case perfevent.Unfiltered:
		return profile.FromAllProcessors
	}
	return profile.FromThreads
}

// sourceRemarks are the notes that say why samples cost the target more than necessary.
func (r *recorder) sourceRemarks() []string {
	var out []string
	_, why := r.cpu.events.Scope()
	switch r.source(profile.CPU) {
	case profile.FromAllProcessors:
		out = append(out, fmt.Sprintf("The kernel copied a stack for every sample of every program, and clrsnap "+
			"dropped the samples of other programs, because %v. On a busy machine this costs some per cent of a "+
			"CPU.", why))
	case profile.FromThreads:
		out = append(out, fmt.Sprintf("The kernel sampled each thread by a timer of its own, because %v. Such timers "+
			"cost time at every switch between threads: a web server can lose a fifth of its requests, or half of "+
			"them at 999 samples a second.", why))
	}
	if err := r.cpu.unfollowed; err != nil {
		out = append(out, fmt.Sprintf("A child process has no CPU samples: %v.", err))
	}
	if err := r.cpu.unseen; err != nil {
		out = append(out, fmt.Sprintf("A CPU that was switched on during the recording has no samples: %v.", err))
	}
	return out
}
