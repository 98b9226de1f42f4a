// Package record samples the stacks of a process's threads over time. It has three sources:
//
//   - the kernel's samples show which code uses the CPUs (profile.CPU);
//   - regular looks at every thread show where time passes, waiting included (profile.Wall);
//   - notifications of the runtime show which code allocates, throws or waits for a lock
//     (Options.Events).
//
// Record records a running process, and Command a program from its start:
//
//	r, err := record.Record(ctx, p, record.Options{
//		Modes:    []profile.Mode{profile.CPU, profile.Wall},
//		Duration: 10 * time.Second,
//	})
//
// The result is a profile.Recording: clrsnap/report shows it as tables, and clrsnap/export writes it
// in many formats.
package record
