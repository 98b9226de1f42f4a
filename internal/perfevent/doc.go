// Package perfevent samples the threads of a process with perf_event_open(2):
// at fixed amounts of CPU time the kernel notes the user registers of whatever
// runs and copies the top of its stack. Nothing is stopped for it.
//
// What is sampled. Each thread has one event for each processor, because the
// kernel lets inherited events write to a buffer only where they are bound to a
// processor (perf_mmap in kernel/events/core.c). New threads inherit the events
// of the thread that starts them. The clock is the kernel's software clock
// (PERF_COUNT_SW_CPU_CLOCK), which works in every virtual machine and container;
// it is a timer that runs only while the thread does.
//
// Where samples go. Each processor has one ring buffer, which belongs to an idle
// event of our own main thread rather than to a thread of the target: it stays
// whatever becomes of the threads, and outlives a change of the copy size. A
// ring that is full drops records and says how many.
//
// What is not seen. A thread is sampled at the end of every period that it ran
// on one processor; the rest that is left when it ends is never counted, and its
// first sample comes no earlier than after one period. So threads that live
// shorter than a period are not sampled at all, and a thread's time is
// underestimated by half a period on average for each processor that it ran on.
//
// Layout facts are those of include/uapi/linux/perf_event.h, and of
// perf_output_sample and its neighbours in kernel/events/core.c.
package perfevent
