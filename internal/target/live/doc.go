// Package live implements the target that is a running process on this machine. It
// is read and stopped from outside through process_vm_readv, ptrace and /proc.
//
// # Stopping a thread
//
// One thread is stopped at a time (CaptureAll and CaptureEach: several), for as long as it
// takes to copy its registers, one object of the runtime and the live part of its stack:
//
//	PTRACE_SEIZE, PTRACE_INTERRUPT, wait, PTRACE_GETREGS,
//	one process_vm_readv, PTRACE_DETACH
//
// Everything that can be prepared is prepared before, everything that can wait
// happens after. These calls are made by a task of its own, the tracer. It shares our
// memory, but for the kernel it is not part of this process, and the Go runtime does
// not know it. So no garbage collection or scheduling of ours, and no stop of our
// process by SIGSTOP or Ctrl-Z, becomes a pause of the target. A second such task, the
// watchdog, watches it. See task.go.
//
// Where the kernel allows no such task, or lets only our process trace (under
// Yama's ptrace_scope 1, a target that we have started), an OS thread of ours does
// the same, without a watchdog: see fallback.go and Process.Unwatched.
//
// # Guarantees for the target
//
//   - No signal is lost. A signal that is about to be delivered while we wait
//     is passed on. The wait looks at stops without consuming them (WNOWAIT):
//     the kernel keeps the signal in the stopped thread until we resume the thread
//     with it, so that the signal is not lost even if we die in between.
//   - Our death at any instant, by SIGKILL too, leaves the target running: the
//     kernel detaches the tracees of a task that ends, and tracer and watchdog die
//     with us (PR_SET_PDEATHSIG). PTRACE_O_EXITKILL is never set.
//   - No thread is stopped for longer than Process.Watchdog. When the tracer has
//     been late for so long, the watchdog kills it, which detaches its tracees;
//     the capture fails with ErrWatchdog. For CaptureAll the bound is AllLimit
//     longer, and for Hold it is the caller's. There is no bound where neither task gets a CPU: in a frozen or
//     throttled control group, or on a machine that stands still.
//   - A thread that cannot be stopped (in uninterruptible sleep) is given up
//     after a bound. It is seized then, and a seized thread that is not stopped
//     cannot be detached by a call, only by the end of the tracer. So the tracer
//     ends, and the next request gets a new one.
//   - A process stopped by SIGSTOP stays stopped, and SIGCONT works.
//   - epoll_wait and semop return EINTR after a stop, as they do after every
//     signal; other blocking calls restart by themselves. TryBlocked captures a
//     blocked thread without this side effect.
//
// # What the rest of this process must not do
//
// A process that changes its user or its capabilities must close every Process
// before: the tasks keep the old ones. In the fallback, for a target that we started
// ourselves, os/exec's Wait would compete with the tracer for the stops of the target's
// main thread: wait with Process.WaitExit instead, and collect the exit status after it.
package live
