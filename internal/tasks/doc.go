// Package tasks finds the async methods that have not ended, and what each waits for.
//
// Suspended methods are objects on the heap: boxes of state machines, and the tasks of methods that the runtime itself
// has suspended (package clr/async). A Walk of the heap finds the objects while the program runs. Then each chain of
// awaiting methods is read at one moment, with the object that the innermost method awaits (awaited.go). A method that
// a thread runs is known by the thread's stack (running.go). A Walk also finds failed tasks, timers and the work of
// the thread pool. Packages requests and deadlock take Walks of their own.
package tasks

const (
	// coreLib is the assembly of the classes that are known here by name.
	coreLib = "System.Private.CoreLib"
	// taskName is the class of tasks.
	taskName = "System.Threading.Tasks.Task"
)
