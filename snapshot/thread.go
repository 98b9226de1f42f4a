package snapshot

import "time"

// Thread is one thread and its stack.
type Thread struct {
	OSThreadID      int    // the kernel's thread id, in the PID namespace of clrsnap
	ManagedThreadID int    // Environment.CurrentManagedThreadId; 0: the runtime does not know this thread
	ThreadID        uint64 // address of the runtime's Thread object; 0 where ManagedThreadID is 0
	Name            string
	Role            string // "Main", "Finalizer", "ThreadPool worker", "GC", …; empty: an ordinary thread
	State           string // for example "running", "waiting (futex)", "sleeping"
	// Kernel is why the kernel does not let the thread run, whatever the thread itself waits for: "stopped by a
	// signal", "frozen by its control group", "in an uninterruptible wait (folio_wait_bit_common)". "": the kernel
	// lets the thread run, or the reason is not known.
	Kernel string
	Mode   string // the GC mode: "cooperative" or "preemptive"; empty for a native thread
	// Background: the process does not wait for the end of the thread (Thread.IsBackground).
	Background bool
	Wait       *Wait         // the thread's wait; nil: the thread does not wait, or the wait is not known
	Holds      []Wait        // the locks that the thread holds, as far as known; Kind is a waiter's kind
	Pause      time.Duration // the longest stop of this thread; 0: the thread was not stopped
	// Still: the thread proved not to have run while clrsnap read the waits of all threads with Still. So all of
	// these waits were true at the same time. Only snapshots for this purpose have Still.
	Still   bool
	Crashed bool // core dumps only: the signal that ended the process was for this thread
	// Exception is the newest exception in flight: an exception that is being thrown, or whose handler runs. For the
	// thread that the process died of, Exception is the exception that the thread threw last. nil: none.
	Exception *ExceptionInfo
	// Handling has the exceptions whose handlers were running when Exception was thrown, the newest first.
	Handling []*ExceptionInfo
	FailFast *FailFast // core dumps only: how the crashed thread ended the process; nil: otherwise
	Complete bool      // the walk reached the base of the stack
	Error    string    // why the walk is not complete, or why there is no stack
	Frames   []Frame   // the stack, leaf first
	// Packed is the stack in packed form, if clrsnap.Options.PackStacks is set; then Frames is nil. Methods Depth,
	// Frame and Stack serve both forms.
	Packed *PackedStack
}
