package profile

import (
	"time"

	"clrsnap/snapshot"
)

// Cause is a kind of trouble that a program can have.
type Cause string

// The causes, the gravest first.
const (
	CauseStopped  Cause = "stopped"  // a signal or the freezer of the cgroup holds the process
	CauseDebugger Cause = "debugger" // another process traces the process
	CauseDeadlock Cause = "deadlock" // threads wait for one another
	// the runtime waits for a thread that cannot be stopped
	CauseSuspension     Cause = "suspension"
	CauseFinalizer      Cause = "finalizer"              // a finalizer does not return
	CauseShutdown       Cause = "shutdown"               // the process is to end, and does not end
	CauseThrottled      Cause = "throttled"              // the cgroup's quota of CPU time is used up
	CauseMemoryPressure Cause = "memory-pressure"        // the cgroup's memory is used up
	CauseDescriptors    Cause = "descriptors"            // the limit of open files is reached
	CauseBlockedIO      Cause = "blocked-io"             // nobody reads what a thread writes, or writes what it reads
	CauseRemoteCall     Cause = "remote-call"            // many wait for the same remote address
	CauseLockContention Cause = "lock-contention"        // many wait for a lock that its holders keep too long
	CausePoolStarvation Cause = "thread-pool-starvation" // all workers are blocked while work is queued
	CauseStalled        Cause = "stalled"                // requests neither end nor go on
	CauseCPU            Cause = "cpu"                    // threads use whole CPUs in one method
	CauseGC             Cause = "gc-pressure"            // garbage collections take the program's time
	CauseExceptions     Cause = "exceptions"             // exceptions are thrown all the time
	CauseHeapGrowth     Cause = "heap-growth"            // the objects become ever more
	CauseNativeGrowth   Cause = "native-growth"          // memory outside the managed heap grows
)

// Causes are all causes, the gravest first.
var Causes = [...]Cause{
	CauseStopped, CauseDebugger, CauseDeadlock, CauseSuspension, CauseFinalizer, CauseShutdown, CauseThrottled,
	CauseMemoryPressure, CauseDescriptors, CauseBlockedIO, CauseRemoteCall, CauseLockContention, CausePoolStarvation,
	CauseStalled, CauseCPU, CauseGC, CauseExceptions, CauseHeapGrowth, CauseNativeGrowth,
}

// Certainty says how sure a verdict is.
type Certainty string

// The certainties.
const (
	Certain  Certainty = "certain"  // the evidence admits no other explanation
	Likely   Certainty = "likely"   // another explanation would be unusual
	Possible Certainty = "possible" // the evidence fits
)

// Verdict says what is wrong with a program, in plain words, and what shows the trouble.
type Verdict struct {
	Cause     Cause
	Certainty Certainty
	Text      string // some sentences; names in the text come from the program, with any characters
	Evidence  []Evidence
	Commands  []string // commands that show more
}

// Evidence is a fact that supports a verdict.
type Evidence struct {
	Text    string
	Frames  []snapshot.Frame     // a stack that shows the fact, leaf first; nil: none
	Threads []snapshot.ThreadRef // the threads of the fact; nil: none, or all
}

// Findings is the answer to why a program is stuck, or slow.
type Findings struct {
	Process  snapshot.Process
	At       time.Time     // when the first look began; for a core dump when its file was written
	Took     time.Duration // from At to the end of the last look; 0: a core dump
	Verdicts []Verdict     // the gravest first; nil: nothing wrong was found in what was looked at
	// Waits is what threads have waited for in own code during the whole time, and what suspended async methods wait
	// for, with the threads. The waits need not be wrong.
	Waits []Evidence
	// Exceptions are failed tasks whose exceptions nobody has observed and, if there are verdicts, the exceptions of
	// the time of the look. The exceptions need not be wrong.
	Exceptions []Evidence
	Activity   *Activity // what the process did; nil: not known, or of a core dump
	Stops      int       // how often clrsnap stopped a thread
	Looked     []string  // what was looked at: a phrase each
	Missing    []string  // what could not be looked at, and why: a sentence each
	// Incomplete: the look was cut short, the process has ended, or a core dump lacks the managed heap. Then no
	// verdicts do not mean that nothing is wrong. Missing says why.
	Incomplete bool
}
