package iter

// Task is the program's record of a thread. The program writes exactly this layout.
type Task struct {
	TID, PID uint32 // thread and process, in our PID namespace
	OnCPU    uint32 // not 0: the thread is on a CPU, or just leaves its CPU
	Flags    uint32 // PF_ of include/linux/sched.h
	State    uint32 // __state of struct task_struct
	Exit     uint32 // exit_state: not 0 once the thread has ended

	Start       uint64 // start_boottime, ns
	Runs        uint64 // how often the thread was put on a CPU (pcount of struct sched_info)
	Voluntary   uint64 // how often the thread left its CPU to wait (nvcsw),
	Involuntary uint64 // and how often for another thread (nivcsw)
	Ran         uint64 // ns on a CPU (sum_exec_runtime of struct sched_entity)
	Waited      uint64 // ns ready to run without a CPU (run_delay)

	Regs Regs
}

// Regs are the user registers: struct pt_regs of arch/x86/include/asm/ptrace.h, the first part of
// PTRACE_GETREGS's buffer.
type Regs struct {
	R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI uint64

	OrigRAX                 uint64 // the system call; -1: none
	RIP, CS, Flags, RSP, SS uint64
}

// Bits of Task.Flags and values of Task.State (include/linux/sched.h).
const (
	flagExiting = 0x4

	stateRunning = 0
	stateWaking  = 0x200
	stateNew     = 0x800
)

// Ended reports whether the thread has ended, or is about to end. Its stack may by then be
// another thread's.
func (t *Task) Ended() bool { return t.Exit != 0 || t.Flags&flagExiting != 0 }

// Ready reports whether the thread is ready to run.
func (t *Task) Ready() bool {
	return t.State == stateRunning || t.State == stateWaking || t.State == stateNew
}

// OfKernel reports whether the thread has never been in user mode: a worker of io_uring, for
// example. The kernel gives no user registers to such a thread (copy_thread in
// arch/x86/kernel/process.c).
func (t *Task) OfKernel() bool { return t.Regs.RSP == 0 && t.Regs.RIP == 0 }

// Rested reports whether the thread certainly did not run between the reading t and the later
// reading again.
//
// Why. The scheduler sets on_cpu before it switches to a thread, and clears on_cpu after it has
// switched away. Before the clearing, the scheduler counts the switch in nvcsw or nivcsw
// (__schedule, prepare_task and finish_task in kernel/sched/core.c). It raises pcount before the
// thread executes anything. The program reads on_cpu before the counts. Suppose the thread was on
// a CPU at any time after on_cpu was read as 0. Then either on_cpu is still set at the second
// reading, or a count has changed since the first reading. The kernel writes the counts before it
// clears on_cpu, with a store-release.
//
// Equal registers show that nobody, a debugger for example, has changed the registers meanwhile.
// The equal start shows that the id has not become another thread's.
func (t *Task) Rested(again *Task) bool {
	return t.OnCPU == 0 && again.OnCPU == 0 && t.TID == again.TID && t.PID == again.PID && t.Start == again.Start &&
		t.Runs == again.Runs && t.Voluntary == again.Voluntary && t.Involuntary == again.Involuntary &&
		t.Ran == again.Ran && t.Regs == again.Regs
}

// System calls that replace the registers of the thread.
const (
	callSigreturn = 15
	callExecve    = 59
	callExecveat  = 322
)

// Layout of a signal handler's frame on the stack: struct rt_sigframe of
// arch/x86/include/asm/sigframe.h.
const (
	frameContext = 8   // the address to return to comes first
	frameInfo    = 312 // struct ucontext has 304 bytes
	lastSignal   = 64
)

// Settled reports whether the registers belong to one state of the thread. The kernel replaces
// registers one after the other when it delivers a signal, when a handler returns, and when the
// thread executes another program. On a kernel that may preempt a thread in the kernel itself, a
// thread can rest in between. (So can a thread in the emulation of a vsyscall, but no program of
// today calls a vsyscall.)
//
// Returning from a handler and executing a program are system calls, so OrigRAX still shows them.
// A thread that has just been given a signal has the addresses of the two structures in registers
// before it has the handler's stack pointer (x64_setup_rt_frame in arch/x86/kernel/signal_64.c).
func (t *Task) Settled() bool {
	r := &t.Regs
	switch r.OrigRAX {
	case callSigreturn, callExecve, callExecveat:
		return false
	}
	delivering := r.RAX == 0 && r.RDI >= 1 && r.RDI <= lastSignal && r.RSI-r.RDX == frameInfo-frameContext
	return !delivering || r.RSP == r.RDX-frameContext
}
