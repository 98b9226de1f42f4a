package snapshot

import "time"

// Found is a .NET process of this machine.
type Found struct {
	PID     int
	UID     int
	User    string // name of UID, or the number of a UID without a name
	Command string // command line, arguments separated by spaces
	// Program is the running program, without its folder: the assembly of "dotnet exec … app.dll 80". Arguments is
	// "80", the first 4 KB of the arguments. Both come from the command line, as Command does.
	Program, Arguments string
	// Threads is how many there are. 0: the kernel does not tell, nor Age, CPU and RSS.
	Threads int
	Age     time.Duration // since the process started
	CPU     time.Duration // of all threads since the process started, in user and kernel mode
	RSS     int64         // bytes of memory in RAM, shared memory included
	// Runtime describes the runtime. Runtime is zero if this process may not read the other process.
	Runtime Runtime
	// Err says why the process cannot be opened and what to do; nil if it can.
	Err error
}
