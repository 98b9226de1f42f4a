// Package live implements a target that is a running process on this machine. The package reads
// and stops the process from outside through process_vm_readv, ptrace and /proc.
//
// # Stopping a thread
//
// One thread is stopped at a time (CaptureAll and CaptureEach: several), for as long as it takes
// to copy its registers, one object of the runtime and the live part of its stack:
//
//	PTRACE_SEIZE, PTRACE_INTERRUPT, wait, PTRACE_GETREGS,
//	one process_vm_readv, PTRACE_DETACH
//
// Preparations are made before the stop, and everything that can wait happens after the stop. A
// separate task, the tracer, makes these calls. The tracer shares our memory, but for the kernel
// the tracer is not part of our process, and the Go runtime does not know the tracer. So no
// garbage collection or scheduling of ours, and no stop of our process by SIGSTOP or Ctrl-Z,
// becomes a pause of the target. A second task, the watchdog, watches the tracer. See task.go.
//
// In two cases an OS thread of ours traces instead, without a watchdog: the kernel allows no such
// task, or lets only our process trace (under Yama's ptrace_scope 1, a target that we have
// started). See fallback.go and Process.Unwatched.
//
// # Guarantees for the target
//
//   - No signal is lost. If a signal is about to be delivered while we wait, we pass the signal
//     on. The wait looks at stops without consuming them (WNOWAIT): the kernel keeps the signal
//     in the stopped thread until we resume the thread with the signal. So the signal is not lost
//     even if we die in between.
//   - Our death at any instant, by SIGKILL too, leaves the target running: the kernel detaches
//     the tracees of an ended task, and tracer and watchdog die with us (PR_SET_PDEATHSIG).
//     PTRACE_O_EXITKILL is never set.
//   - No thread is stopped for longer than Process.Watchdog. When the tracer is late by then, the
//     watchdog kills the tracer, and the kernel detaches the tracees; the capture fails with
//     ErrWatchdog. For CaptureAll the bound is AllLimit longer, and for Hold the caller sets the
//     bound. There is no bound where neither task gets a CPU: in a frozen or throttled control
//     group, or on a machine that stands still.
//   - A thread that cannot be stopped (in uninterruptible sleep) is given up after a bound. By
//     then the thread is seized, and no call can detach a seized thread that is not stopped; only
//     the end of the tracer can. So the tracer ends, and the next request gets a new tracer.
//   - A process stopped by SIGSTOP stays stopped, and SIGCONT works.
//   - epoll_wait and semop return EINTR after a stop, as after every signal; other blocking calls
//     restart by themselves. TryBlocked captures a blocked thread without this side effect.
//
// # What the rest of this process must not do
//
// A process that changes its user or its capabilities must close every Process before: the tasks
// keep the old user and capabilities. In the fallback, for a target that we started ourselves,
// os/exec's Wait would compete with the tracer for the stops of the target's main thread: wait
// with Process.WaitExit instead, and collect the exit status afterwards.
package live
