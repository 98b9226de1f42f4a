// Package clrsnap takes stack snapshots of .NET (CoreCLR) programs on Linux from
// outside the process. It implements ICorProfilerInfo2::DoStackSnapshot of the
// .NET profiling API, with its words and its semantics, for any thread at any
// instant: what CoreCLR itself does not offer on Linux.
//
//	p, err := clrsnap.Open(pid)
//	if err != nil {
//		return err // says what to do
//	}
//	defer p.Close()
//	threads, err := p.Threads()
//	if err != nil {
//		return err
//	}
//	for _, t := range threads {
//		if t.ID == 0 {
//			continue // not one of the runtime's
//		}
//		err := p.DoStackSnapshot(t.ID, func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
//			if id == 0 {
//				return nil // unmanaged frames
//			}
//			name, err := p.FunctionName(id)
//			if err == nil {
//				fmt.Println(name.Display)
//			}
//			return err
//		}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, nil)
//		if err != nil {
//			return err
//		}
//	}
//	return nil
//
// # The vocabulary
//
// A ThreadID is the address of the runtime's Thread object, a FunctionID the
// address of a MethodDesc: the same numbers that the profiling API hands out
// inside the process. A seed is the register context that a walk starts from. A
// thread is in cooperative mode while it runs managed code or touches the
// managed heap, and in preemptive mode otherwise. A funclet is an exception
// handler's body, which is compiled as a function of its own.
//
// # Recordings and notifications
//
// Package clrsnap/record samples the stacks of all threads over time: what uses the CPUs, and
// what the time passes with, waiting included. Package clrsnap/events has the synchronous
// form of DoStackSnapshot: it walks the current thread in response to a notification. Both
// work with a Process.
//
// # What happens to the target
//
// One thread at a time is stopped, with ptrace, usually for tens of microseconds:
// its registers, the head of its Thread object and the live part of its stack are
// copied, and it goes on. Everything else works on the copy. But for the agent of a
// subscription no code runs in the target, none of its locks is taken, and whatever
// happens to the walker, the target goes on: a watchdog that does not depend on this
// process being scheduled lets a thread go that has been stopped for too long
// (Options.MaxPause).
//
// The guidelines of the profiling API for asynchronous walks warn of deadlocks.
// None of them can happen here:
//
//   - Suspending a thread that owns a lock which the walker needs: the walker
//     takes no lock of the target.
//   - Walking before the thread has done per-thread initialisation of its own
//     walker: nothing of the walker is in the thread.
//   - Holding a lock across a call that triggers a garbage collection: no call
//     reaches the runtime, and a callback may do what it likes.
//   - A thread being destroyed under the walk: the walk is of a copy.
package clrsnap
