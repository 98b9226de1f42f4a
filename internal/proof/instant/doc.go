// Package instant proves the promise of SnapshotAtOnce: all stacks belong to a single instant,
// even while other processes keep all CPUs busy. docs/correctness.md, "One instant", has the
// method and the results.
package instant
