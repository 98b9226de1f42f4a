// Package instant proves that the stacks of SnapshotAtOnce belong to one instant, beside processes
// that keep all CPUs busy. docs/correctness.md, "One instant", has the method and the results.
package instant
