// Package recordsoak proves that long recordings stay right: a program is recorded in both modes
// under load. Names are held against the runtime's own perf map, memory must stay bounded, and the
// samples must stand for as much time at the end as at the beginning. docs/correctness.md,
// Recordings over time, has the results.
package recordsoak
