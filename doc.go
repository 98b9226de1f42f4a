// Package clrsnap takes stack snapshots of .NET (CoreCLR) programs on Linux from
// outside the process. It implements ICorProfilerInfo2::DoStackSnapshot of the
// .NET profiling API, with the API's vocabulary and semantics, for any thread at any
// moment. CoreCLR itself does not offer DoStackSnapshot on Linux.
//
//	p, err := clrsnap.Open(ctx, pid, clrsnap.Options{})
//	if err != nil {
//		return err // says what is wrong and what to do
//	}
//	defer p.Close()
//	threads, err := p.Threads()
//	if err != nil {
//		return err
//	}
//	for _, t := range threads {
//		if t.ID == 0 {
//			continue // the runtime does not know this thread
//		}
//		for f, err := range p.Frames(t.ID, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil) {
//			if errors.Is(err, clrsnap.S_FALSE) {
//				break // managed frames may be missing at the top
//			}
//			if err != nil {
//				return err
//			}
//			if f.ID == 0 {
//				continue // a run of unmanaged frames
//			}
//			name, err := p.FunctionName(f.ID)
//			if err != nil {
//				return err
//			}
//			fmt.Println(name.Display)
//		}
//	}
//	return nil
//
// Frames is DoStackSnapshot as a sequence. Process.Snapshot and Process.SnapshotAll take whole
// stacks with names, of managed and native frames.
//
// # The vocabulary
//
// A ThreadID is the address of the runtime's Thread object, a FunctionID the
// address of a MethodDesc: the same numbers as in the profiling API
// inside the process. A seed is the register context at the start of a walk. A
// thread is in cooperative mode while the thread runs managed code or touches the
// managed heap, and in preemptive mode otherwise. A funclet is an exception
// handler's body, compiled as a function of its own.
//
// # More than stacks
//
// OpenCore opens a core dump instead of a process. Process.SnapshotWaits adds locks, owners and
// waiters, Process.Heap reads the managed heap, Process.Tasks the async methods in flight, and
// Process.Requests the requests of a web server. Discover lists the processes of the machine, and
// Diagnose says why a process cannot be read.
//
// Package clrsnap/snapshot has the results: threads, frames, waits, heaps, tasks, requests.
//
// Package clrsnap/why judges a process. Package clrsnap/record samples the stacks of all threads
// over time. Package clrsnap/events has the synchronous form of DoStackSnapshot: a walk of the
// current thread in response to a notification. Package clrsnap/symbols fetches symbols from servers.
//
// # What happens to the target
//
// One thread at a time is stopped, with ptrace, usually for tens of microseconds:
// its registers, the head of its Thread object and the live part of its stack are
// copied, and the thread goes on. Everything else works on the copy. No code runs in the
// target, except for the agent of a subscription, and no lock of the target is taken.
// Whatever happens to this process, the target goes on: an independent watchdog resumes a thread
// that has been stopped for longer than Options.MaxPause.
//
// So the deadlocks in the guidelines of the profiling API cannot happen here: a suspended thread
// may own any lock, a callback may do anything, and a thread may end during its walk.
package clrsnap
