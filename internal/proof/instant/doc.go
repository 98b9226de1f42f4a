// Package instant proves the promise of SnapshotAtOnce: all stacks belong to a single instant,
// even while other processes keep all CPUs busy. docs/correctness.md, One instant, has the
// results.
//
// In TestAtOnceIsOneInstant, rings of threads pass a token around: at every instant one thread or two
// neighbours are in Carry, and at most one thread is in Own. The control captures the same threads one
// after the other, and must show impossible states. The test fails within a few instants if the counts of
// runs (schedstat) are not read, or are read before the running threads are asked to stop. TestStopAll
// runs the command on 1,000 threads in monitors, semaphores, events, joins and sleeps, and on 40 threads that
// sleep for 50 ms at a time, compute, or pass tokens.
package instant
