// Package record samples the stacks of a process's threads over time. The kernel's own samples
// tell what uses the CPUs; looks at the threads that are blocked tell what the time passes
// with; notifications of the runtime tell who allocates, throws or waits for a lock.
//
//	r, err := record.Record(ctx, p, record.Options{
//		Modes:    []profile.Mode{profile.CPU, profile.Wall},
//		Duration: 10 * time.Second,
//	})
//
// The result is a profile.Recording, which clrsnap/export writes in many formats.
package record
