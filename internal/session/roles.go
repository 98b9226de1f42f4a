package session

import (
	"cmp"

	"clrsnap/internal/clr/thread"
)

// commLen is the length to which the kernel cuts names (TASK_COMM_LEN, without the 0).
const commLen = 15

// cut returns the kernel's form of a name.
func cut(name string) string { return name[:min(len(name), commLen)] }

// Roles that need more facts than a name.
const (
	finalizer = "Finalizer"
	worker    = "ThreadPool worker"
)

// namedRoles are the roles of threads that the framework's managed code starts, by the threads' managed names in the
// kernel's form (System.Private.CoreLib: PortableThreadPool.*, TimerQueue.Portable.cs, ThreadPoolTaskScheduler.cs;
// System.Net.Sockets: SocketAsyncEngine.Unix.cs).
var namedRoles = map[string]string{
	".NET TP Worker":  worker,
	".NET TP Gate":    "ThreadPool gate",
	".NET TP Wait":    "ThreadPool waiter",
	".NET Timer":      "Timer",
	".NET Sockets":    "Socket events",
	".NET Long Runni": "Long-running task",
	".NET Long Task":  "Long-running task", // the name from .NET 11 on
}

// nativeRoles are the roles of threads that native code of the runtime starts, by the kernel's name.
var nativeRoles = map[string]string{
	".NET Tiered Com": "Tiered compilation",
	".NET Tiered JIT": "Tiered compilation", // the name from .NET 11 on
	".NET SigHandler": "Signal handler",
	".NET SIGTERM":    "Signal handler",
	".NET SynchManag": "Synchronisation manager",
	".NET EventPipe":  "EventPipe",
	".NET DebugPipe":  "Debugger transport",
	".NET Debugger":   "Debugger",
	".NET Server GC":  "GC",
	".NET BGC":        "Background GC",
}

// finalizerComm is the kernel's name of the finalizer.
const finalizerComm = ".NET Finalizer"

// inherited are the possible names, in the kernel, of a thread of the program: Linux gives a new thread the name of
// its creator, and .NET changes the name only for a thread with a managed name.
var inherited = func() map[string]bool {
	out := map[string]bool{finalizerComm: true, ".NET SIGTERM": true, ".NET SigHandler": true, ".NET SynchManag": true}
	for name := range namedRoles {
		out[name] = true
	}
	return out
}()

// RoleOfEnded is the role of a thread that has ended before the runtime was asked, by the kernel's name. The possible
// names of a thread of the program decide nothing.
func RoleOfEnded(comm string) string {
	if inherited[comm] {
		return ""
	}
	return nativeRoles[comm]
}

// roleFacts are the facts that decide a thread's role.
type roleFacts struct {
	main      bool
	comm      string         // the kernel's name
	thread    *thread.Thread // nil: the runtime does not know the thread
	name      string         // the managed name; "": the thread has none
	nameKnown bool           // the managed name could be read
}

// role is the runtime's use of a thread; "" for a thread of the program. The kernel's name decides only if the
// runtime cannot tell.
func (p *Process) role(f roleFacts) string {
	switch {
	case f.main:
		return "Main"
	case f.thread == nil && (p.Managed == nil || p.unlisted != nil):
		return roleOfComm(f.comm)
	case f.thread == nil:
		return nativeRoles[f.comm]
	}
	at, err := p.Managed.Threads.Finalizer()
	if err == nil && f.thread.Address == at || err != nil && f.comm == finalizerComm {
		return finalizer
	}
	name := f.comm
	if f.nameKnown {
		name = cut(f.name)
	}
	role := namedRoles[name]
	switch state := f.thread.State; {
	case state&thread.StateThreadPool != 0:
		return cmp.Or(role, worker)
	case role != "" && role != worker:
		return role
	case f.name == "" && (state&thread.StateStarted == 0 || !inherited[f.comm]):
		return nativeRoles[f.comm]
	}
	return ""
}

// roleOfComm is the role of a thread by the kernel's name alone.
func roleOfComm(comm string) string {
	if comm == finalizerComm {
		return finalizer
	}
	return cmp.Or(namedRoles[comm], nativeRoles[comm])
}
