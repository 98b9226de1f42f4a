// Package perfmap proves names and tiers: each managed frame must match the entry for its
// instruction pointer in the runtime's own perf map, of blocked threads and of busy threads, on
// every build of .NET. docs/correctness.md, oracle 3, has the method and the results.
package perfmap
