// Package perfevent samples the threads of a process with perf_event_open(2):
// at fixed amounts of CPU time the kernel records the user registers of whatever
// runs and copies the top of its stack. No thread is stopped.
//
// What is watched. There are three scopes. Filtered: one event on each CPU, with a
// BPF program that keeps the samples of the wanted processes and drops those of
// others before anything is copied. A switch between threads costs nothing then, nor
// does a thread that sleeps, and a thread that lives shorter than a period is sampled
// with the right probability. That takes CAP_BPF and CAP_PERFMON. Unfiltered: the
// same without the program. The stacks of all processes' samples are copied, and
// dropped here. That takes CAP_PERFMON, or a kernel.perf_event_paranoid of 0.
// PerThread, where CPUs may not be watched at all: each thread has one event for each
// CPU, which new threads inherit. That takes the right to trace the process, and makes
// every switch between threads more expensive, because the kernel stops a timer and
// starts another one. Events.Scope returns which it is, and why.
//
// The clock is the kernel's software clock (PERF_COUNT_SW_CPU_CLOCK), which works
// in every virtual machine and container: a timer, of a CPU or of a thread.
//
// Where samples go. Each CPU has one ring buffer. It belongs to an idle event of our
// own main thread rather than to what is watched: it stays when threads end, and when
// the copy size changes. A ring that is full drops records and counts them.
//
// Who is sampled. The program knows processes by their ids in the kernel's own PID
// namespace or, where those are hidden from us, in the process's namespace. The
// children of a process are added where the kernel starts a task, by programs on
// two tracepoints (Filtered); by the process ids of parents, when the first sample
// of a child is read (Unfiltered); by inheritance (PerThread).
//
// What is known of threads. For each sample of Filtered the program writes the
// thread's name into the ring, before the sample. Records of threads that start,
// end and get names exist in the scope PerThread only: for a CPU the kernel writes
// them for all processes' threads or for none.
//
// What is not seen. In the scope PerThread, a thread is sampled at the end of every
// period that it ran on one CPU. The remainder of the last period is never counted, and
// the first sample comes after a full period. So threads that live shorter than a period
// are not sampled at all, and a thread's time is underestimated by half a period on
// average for each CPU that it ran on. In the other scopes samples are random: a count
// of n has an error of about sqrt(n). A timer that comes late by a period or more gives one
// sample for all the turns that have passed (hrtimer_forward_now in perf_swevent_hrtimer). That
// is so where a virtual machine has to wait for its CPUs, which it need not be told: the time
// counts as the CPU time of whatever ran. In the scope Filtered the program counts all ticks
// of CPUs that are not idle, so Stats.Missed is known.
//
// Layout facts are those of include/uapi/linux/perf_event.h and bpf.h, and of
// perf_output_sample and its neighbours in kernel/events/core.c.
package perfevent
