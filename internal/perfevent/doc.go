// Package perfevent samples the threads of a process with perf_event_open(2): at fixed amounts of
// CPU time the kernel records the user registers of the running thread and copies the top of its
// stack. No thread is stopped.
//
// Scopes. There are three scopes. Filtered: one event on each CPU, with a BPF program that keeps
// the samples of the wanted processes and drops the samples of others before anything is copied.
// A switch between threads or a sleeping thread then costs nothing, and a thread that lives
// shorter than a period is sampled with the right probability. Filtered takes CAP_BPF and
// CAP_PERFMON. Unfiltered: the same without the program. The kernel copies the stacks of all
// processes' samples, and this package drops the samples of others. Unfiltered takes CAP_PERFMON,
// or a kernel.perf_event_paranoid of 0. PerThread, where CPUs may not be watched at all: each
// thread has one event for each CPU, and new threads inherit the events. PerThread takes the
// right to trace the process. It makes every switch between threads more expensive, because the
// kernel stops a timer and starts another timer. Events.Scope returns the scope, and why.
//
// The clock is the kernel's software clock (PERF_COUNT_SW_CPU_CLOCK), which works in every
// virtual machine and container: a timer, of a CPU or of a thread.
//
// Rings. Each CPU has one ring buffer. It belongs to an idle event of our own main thread, not to
// a watched thread or CPU: the ring stays when threads end, and when the copy size changes. A
// full ring drops records and counts them.
//
// Sampled processes. The program knows processes by their ids in the kernel's own PID namespace.
// Where those ids are hidden from us, it uses the ids in the process's namespace. There are three
// ways of adding the children of a process. In Filtered, programs on two tracepoints add a child
// where the kernel starts a task. In Unfiltered, the reader of a child's first sample adds the
// child, by the process ids of parents. In PerThread, children inherit the events.
//
// Threads. For each sample of Filtered the program writes the thread's name into the ring, before
// the sample. Records of threads that start, end and get names exist in the scope PerThread only:
// for a CPU the kernel writes such records for all processes' threads or for none.
//
// What is not seen. In the scope PerThread, a thread is sampled at the end of every period that
// it ran on one CPU. The remainder of the last period is never counted, and the first sample
// comes after a full period. So threads that live shorter than a period are not sampled at all,
// and a thread's time is underestimated by half a period on average for each CPU that it ran on.
// In the other scopes samples are random: a count of n has an error of about sqrt(n). A timer
// that comes late by a period or more gives one sample for all the turns that have passed
// (hrtimer_forward_now in perf_swevent_hrtimer). Late timers are common where a virtual machine
// has to wait for its CPUs, often without knowing: the waiting time counts as the CPU time of the
// thread that ran. In the scope Filtered the program counts all ticks of CPUs that are not idle,
// so Stats.Missed is known.
//
// Layout facts are from include/uapi/linux/perf_event.h and bpf.h, and from perf_output_sample
// and its neighbours in kernel/events/core.c.
package perfevent
