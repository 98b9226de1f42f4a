// Package cost has the benchmarks of what clrsnap costs the program that it looks at, and of
// what it uses itself: docs/costs.md has their figures. "make bench" runs those that BENCH matches,
// "make bench-server" those of recordings.
//
// Each benchmark has a floor: what the kernel or the runtime alone costs in the same run. What
// is observed and what is not take turns, so that both meet the same machine.
package cost
