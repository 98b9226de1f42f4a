package clrsnap

import (
	"fmt"
	"time"
)

// remarks are what whoever reads the recording has to know.
func (r *recorder) remarks() []string {
	out := r.notes
	if r.cpu != nil && !r.cpu.quiet {
		out = append(out, r.cpuRemarks()...)
	}
	if r.wall != nil {
		if r.cpu == nil || r.cpu.events.KernelExcluded() {
			out = append(out, "Running threads were stopped to be sampled by the clock, because the kernel lets this user take no complete CPU samples. They stop where they next leave the kernel, so system calls look longer than they are.")
		}
		if s := r.wall.figures(); s.Got > 0 {
			out = append(out, fmt.Sprintf("Every thread was sampled %.3g times a second instead of %g: more would have taken more than %.0f %% of a processor, or time that there was not.", s.Got, s.Rate, 100*r.o.MaxCPU))
		}
	}
	if r.events != nil {
		out = append(out, r.events.remarks()...)
	}
	if d := r.b.Bin(); d > 0 {
		out = append(out, fmt.Sprintf("There are so many samples that equal ones within %v were put together.", d.Round(time.Millisecond)))
	}
	if n := r.b.Cut(); n > 0 {
		out = append(out, fmt.Sprintf("There are so many different stacks that %d samples have shortened ones: their frames near the leaf are missing.", n))
	}
	return out
}

// cpuRemarks are those about samples of the use of processors.
func (r *recorder) cpuRemarks() []string {
	var out []string
	if r.cpu.events.KernelExcluded() {
		out = append(out, "Time in the kernel is not counted, because the kernel does not let this user see it: run clrsnap as root or with CAP_PERFMON, or set the sysctl kernel.perf_event_paranoid to 1.")
	}
	s := r.cpu.stats
	if all := s.Samples + s.Lost; s.Lost > 0 && s.Lost*100 > all {
		out = append(out, fmt.Sprintf("%d of %d CPU samples were lost, because they were not taken out of the kernel's buffers in time: a lower rate, or a less busy machine, helps.", s.Lost, all))
	}
	used, seen := r.targetCPU(), time.Duration(s.Samples)*r.cpu.period
	if share := float64(seen) / float64(max(used, 1)); r.o.Threads == nil && used > time.Second && share < 0.9 {
		out = append(out, fmt.Sprintf("The CPU samples stand for %.0f %% of the CPU time that was used: a thread is sampled each time it has used %v of one processor, and what it uses after its last sample is not seen. If threads live for a short time, a higher rate helps.", 100*share, r.cpu.period.Round(10*time.Microsecond)))
	}
	return out
}
