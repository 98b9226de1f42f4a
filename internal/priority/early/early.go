// Package early raises the priority of a program before the program begins, if permitted. Among 200 threads that
// compute, each wait for a CPU takes 50 ms and more, and the start of a program otherwise has several waits. Only a
// command may import the package: a library must not change a program.
//
// The earliest place is the program's first instruction, before Go's own start: the linker's flag -E clrsnap_entry
// leads there. Without the flag the place is the package's initialisation. Go initialises packages in the order of the
// packages' dependencies and paths. The package imports nothing but the runtime and syscall, so that nearly all other
// packages come later.
package early

import (
	"runtime"
	"syscall"
)

// Nice values, and the results of getpriority(2), which are 20 minus the nice value.
const (
	highest = -20
	notNice = 20
)

// entered: the program's first instructions have raised the priority.
var entered bool

// begun: the priority is raised.
var begun = begin()

// begin gives the main thread the highest nice value. Threads that the main thread starts inherit the value, for
// instance the thread for signals, which the main goroutine waits for. The main goroutine stays on the main thread: the
// Go runtime would take the goroutine from a thread that others have kept waiting, and give the goroutine to a new
// thread. A priority that somebody has chosen for the process stays.
func begin() bool {
	if !entered && !raise() {
		return false
	}
	runtime.LockOSThread()
	return true
}

func raise() bool {
	nice, _, err := syscall.RawSyscall(syscall.SYS_GETPRIORITY, syscall.PRIO_PROCESS, 0, 0)
	policy, _, err2 := syscall.RawSyscall(syscall.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	const normal = 0 // SCHED_NORMAL
	return err == 0 && err2 == 0 && nice == notNice && policy == normal &&
		syscall.Setpriority(syscall.PRIO_PROCESS, 0, highest) == nil
}

// Begun reports whether the priority is raised.
func Begun() bool { return begun }

// Release lets the main goroutine leave the main thread. The priority stays.
func Release() {
	if begun {
		runtime.UnlockOSThread()
	}
}
