// Package perfmap proves names and tiers: each managed frame must match the entry for its
// instruction pointer in the runtime's own perf map, of blocked threads and of busy threads, on
// every build of .NET. docs/correctness.md, Oracle 3, has the results.
//
// The records are read in their binary form (jitdump, DOTNET_PerfMapEnabled=2). Unlike the text,
// jitdump has ReadyToRun code, and a time (CLOCK_MONOTONIC) and the compiling thread for each
// record. The runtime writes each record at once, without a buffer and under a lock
// (src/coreclr/vm/perfmap.cpp, src/coreclr/pal/src/misc/perfjitdump.cpp). Package judge has the
// rule for a name.
//
// TestSoak makes stale names likely. Every generation of unloadable code has names of its own, lives
// for a few milliseconds, and is unloaded. By itself the runtime gives out no address in its first
// 2 GB of code space twice. So the runs "code" start the program under a finite RLIMIT_AS with
// DOTNET_InitialExecMemoryPercent=0: code heaps then come from the kernel, and the kernel reuses
// freed addresses at once (ExecutableMemoryAllocator in pal/src/map/virtual.cpp). Such a run fails
// if no frame at a reused address was met. At the end of a run the judge gets up to 2,000 old
// frames again, whose addresses have been reused since, and must find each frame stale.
//
// One suspension is walked in three ways: as Snapshot, as the documented DoStackSnapshot (exactly
// the frames of Snapshot), and as CoreCLR (a subsequence).
package perfmap
