// Package deadlock finds who waits for whom: proved deadlocks, likely deadlocks, and semaphores whose permits are lost.
//
// Snapshot takes a snapshot as its Observer (session.Observer). Waits for locks are proved by captures of the same
// threads once more (proofs.go). Holders of permits, and of tasks to complete, are only likely: the IL of a method says
// what the method is going to release or complete (package clr/permits, duties.go). The frames of threads show the
// running methods, and a walk of the heap finds the suspended methods (likely.go, suspended.go, saved.go). A semaphore
// that nobody is going to release is lost (lost.go, leases.go).
package deadlock

const (
	// coreLib is the assembly of the classes that are known here by name.
	coreLib = "System.Private.CoreLib"
	// waitAsync begins the class name of Task.WaitAsync's promise.
	waitAsync = "System.Threading.Tasks.Task+CancellationPromise<"
)
