// Package perfevent samples the threads of a process with perf_event_open(2):
// at fixed amounts of CPU time the kernel notes the user registers of whatever
// runs and copies the top of its stack. Nothing is stopped for it.
//
// What is watched. One event on each processor, with a BPF program that lets the
// samples of the wanted processes pass and drops those of others before anything
// is copied (Filtered). A switch between threads costs nothing then, nor does a
// thread that sleeps, and a thread that lives shorter than a period is sampled
// with the probability that it deserves. That takes CAP_BPF and CAP_PERFMON.
// Without the program the stacks of everybody's samples are copied, and dropped
// here (Unfiltered): CAP_PERFMON, or a kernel.perf_event_paranoid of 0. Where
// processors may not be watched at all, each thread has one event for each
// processor, which new threads inherit (PerThread): that takes the right to trace
// the process, and makes every switch between threads dearer, because the kernel
// stops a timer and starts another one. Scope tells which it is, and why.
//
// The clock is the kernel's software clock (PERF_COUNT_SW_CPU_CLOCK), which works
// in every virtual machine and container: a timer, of a processor or of a thread.
//
// Where samples go. Each processor has one ring buffer, which belongs to an idle
// event of our own main thread rather than to what is watched: it stays whatever
// becomes of the threads, and outlives a change of the copy size. A ring that is
// full drops records and says how many.
//
// Who is sampled. The program knows processes by their ids in the kernel's own PID
// namespace or, where those are hidden from us, in the process's namespace. The
// children of a process are added where the kernel starts a task, by programs on
// two tracepoints (Filtered); by the process ids of parents, when the first sample
// of a child is read (Unfiltered); by inheritance (PerThread).
//
// What is known of threads. For each sample of Filtered the program writes the
// thread's name into the ring, before the sample. Records of threads that start,
// end and get names exist in the scope PerThread only: for a processor the kernel
// writes them for everybody's threads or for none.
//
// What is not seen. In the scope PerThread, a thread is sampled at the end of every
// period that it ran on one processor; the rest that is left when it ends is never
// counted, and its first sample comes no earlier than after one period. So threads
// that live shorter than a period are not sampled at all there, and a thread's time is
// underestimated by half a period on average for each processor that it ran on. In the
// other scopes chance decides: of n samples a share may be off by some sqrt(n).
//
// Layout facts are those of include/uapi/linux/perf_event.h and bpf.h, and of
// perf_output_sample and its neighbours in kernel/events/core.c.
package perfevent
