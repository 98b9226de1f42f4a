// Package live is the kind of target that runs: a process on this machine,
// read and stopped from outside through process_vm_readv, ptrace and /proc.
//
// # Stopping a thread
//
// One thread is stopped at a time, for as long as it takes to copy its
// registers, one object of the runtime and the live part of its stack:
//
//	PTRACE_SEIZE, PTRACE_INTERRUPT, wait, PTRACE_GETREGS,
//	one process_vm_readv, PTRACE_DETACH
//
// Everything that can be prepared is prepared before, everything that can wait
// happens after. Between the first and the last of these calls our code makes
// raw system calls only, from functions that the Go scheduler cannot interrupt
// (no stack check, preemption signal blocked), so that a garbage collection of
// ours does not become a pause of the target. See stop.go.
//
// # What the target is promised
//
//   - No signal is lost. A signal that is about to be delivered while we wait
//     is passed on. The wait looks at stops without consuming them (WNOWAIT):
//     the kernel keeps the signal in the stopped thread until we resume it with
//     it, so that even our death in between does not swallow it.
//   - Our death at any instant, by SIGKILL too, leaves the target running: the
//     kernel detaches the tracees of a thread that ends. PTRACE_O_EXITKILL is
//     never set.
//   - A thread that cannot be stopped (in uninterruptible sleep) is given up
//     after a bound. It is seized then, and a seized thread that is not stopped
//     cannot be detached by a call: only the end of the tracing OS thread does
//     it. So that thread is thrown away, and the next request gets a new one.
//   - A process stopped by SIGSTOP stays stopped, and SIGCONT works.
//   - epoll_wait and semop return EINTR after a stop, as they do after every
//     signal; other blocking calls restart by themselves. TryBlocked captures a
//     blocked thread without this side effect.
//
// # What the rest of this process must not do
//
// A wait of this same process for the target's process id (os/exec's Wait, for
// a target that we started ourselves) competes for the stops of the target's
// main thread. Wait with Process.WaitExit instead and collect the exit status
// after it.
package live
