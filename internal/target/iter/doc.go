// Package iter reads the kernel's data of every thread of a process at once, with the user
// registers, and stops none of the threads.
//
// A BPF program runs for each thread while we read a file: a task iterator
// (Documentation/bpf/bpf_iterators.rst of the kernel). The program copies the user registers from
// where the kernel saved them when the thread last entered the kernel (bpf_task_pt_regs). A
// thread off the CPU is in the kernel, so it goes on with these registers. For a thread on a CPU
// the saved registers are old, or are just being written.
//
// Task.OnCPU and the counts of Task tell the two cases apart. The program reads OnCPU and the
// counts first, and the registers afterwards. A second reading of a thread proves the first
// reading if the thread was on no CPU at both, and all counts are the same: see Task.Rested.
//
// Requirements: Linux 5.15 (bpf_task_pt_regs), the kernel's description of its types
// (CONFIG_DEBUG_INFO_BTF), and CAP_BPF with CAP_PERFMON. From Linux 6.1 on the kernel visits only
// the threads of the wanted process. Earlier kernels visit all threads of our PID namespace, and
// the program drops the threads of other processes.
package iter
