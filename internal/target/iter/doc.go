// Package iter reads what the kernel knows of every thread of a process at once, with the user registers, and stops
// none of them.
//
// A BPF program runs for each thread while we read a file: a task iterator (Documentation/bpf/bpf_iterators.rst of
// the kernel). It copies the thread's user registers from where the kernel has put them when the thread last entered
// it (bpf_task_pt_regs). A thread that is not on a CPU is in the kernel, and so these are the registers that it goes
// on with. For a thread that is on a CPU they are old, or just being written.
//
// Task.OnCPU and the counts of Task tell the two apart. The program reads them first, and the registers after them.
// Of two readings of a thread, the later one proves that the earlier one was right if the thread was on no CPU at
// both, and all counts are the same: see Task.Rested.
//
// What it takes: Linux 5.15 (bpf_task_pt_regs), the kernel's description of its types (CONFIG_DEBUG_INFO_BTF), and
// CAP_BPF with CAP_PERFMON. From Linux 6.1 on the kernel visits only the threads of the one process; before, it
// visits all threads of our PID namespace, and the program drops the others.
package iter
