// Package oracle proves walks with a witness: the CLR's own DoStackSnapshot of the same thread at
// the same moment. docs/correctness.md, Oracle 1, has the results. The comparison is exported for
// other proofs that have the CLR's walk.
//
// The agent suspends the runtime (ICorProfilerInfo10::SuspendRuntime). The CLR walks every managed
// thread, with COR_PRF_SNAPSHOT_REGISTER_CONTEXT and without a seed, and the agent sends the
// FunctionID, the ip and the registers of each callback. While the runtime is still suspended,
// clrsnap walks the same threads from outside, in the mode AsCoreCLR. Both lists of callbacks must
// be equal.
//
// A thread in native code runs on while the runtime is suspended, until the thread returns to
// managed code: there the thread enters cooperative mode before DisablePreemptiveGC checks whether
// it may. So after a difference both walks are repeated. The first pair is discarded only if the
// later pair is equal, and if the CLR's answer, or the thread's mode or chain of Frames, has
// changed in between. TestOracleCompare and TestOracleControl show that the comparison can fail.
// TestOracleResolving looks for a rare state: a thread in preemptive mode whose newest Frame is a
// StubDispatchFrame (300 to 3,000 suspensions for 20 threads; on .NET 8 the thread is always in
// cooperative mode there).
//
// CoreCLR starts at the chain of Frames, and crosses native code by the chain (stackwalk.cpp,
// StackFrameIterator::NextRaw; frames.h, InlinedCallFrame). Runs under reverse P/Invokes are all
// reported, for an UnmanagedCallersOnly method and for a delegate behind an IL stub alike:
// ProfilerStackWalkCallback (proftoeeinterfaceimpl.cpp) forgets the previous method before the
// check for metadata. CoreCLR marks the InlinedCallFrames of the exception machinery
// (InlinedCallFrameMarker::ExceptionHandlingHelper) and does not report the runs beside the
// machinery: measured, not read in the source. Without anything to visit,
// Thread::StackWalkFramesEx answers SWA_FAILED, hence CoreCLR's E_FAIL.
//
// CoreCLR's contexts have the right ip, sp and rbp always. rbx and r12 to r15 are right from the
// first frame on that was reached through managed code, or through a Frame that saves the
// registers. An InlinedCallFrame does not (InlinedCallFrame::UpdateRegDisplay).
package oracle
