// Package cost has the benchmarks of what clrsnap costs the observed program, and of clrsnap's own
// use of CPU and memory: docs/costs.md has the figures. "make bench" runs the benchmarks that BENCH
// matches, "make bench-server" the benchmarks of recordings.
//
// Each benchmark has a floor: what the kernel or the runtime alone costs in the same run. Phases
// with and without an observer take turns, so that both meet the same machine.
package cost
