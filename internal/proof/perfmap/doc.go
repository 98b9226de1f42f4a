// Package perfmap proves names and tiers: each managed frame must be what the runtime's own perf
// map says of its instruction pointer, of blocked threads and of busy ones, on every build of .NET.
// docs/correctness.md, oracle 3, has the method and the results.
package perfmap
