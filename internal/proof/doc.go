// Package proof has no code. The packages below it prove what clrsnap promises; docs/correctness.md
// has their methods and results. Nothing imports them but one another.
//
//	oracle      the CLR's own DoStackSnapshot of the same moment
//	singlestep  each call and return of a thread that executes one instruction at a time
//	perfmap     the runtime's own records of its code, under load
//	judge       holds walks against these records, for perfmap and others
//	instant     stacks of all threads belong to one instant
//	churn       who holds locks and who waits, while locks, threads and objects come and go
//	damage      core dumps that are damaged
//	heap        all objects by type, under pressure, at one moment and without a stop
//	shares      recordings of programs that measure themselves, and that count their events
//	ordeal      a program goes on whatever it does with the agent in it, and whatever its reader does
//	recordsoak  a long recording, against the runtime's records
//	inlined     inlined methods, against what the runtime records of them if it is asked to
//	lines       source lines, at every kind of place of a source text
//	why         sick services get the name of their disease, and healthy programs no verdict
//	living      code that can be unloaded, while it lives and when it is gone
//	cost        benchmarks: what clrsnap costs; docs/costs.md
//	observer    processes that look at a target, for cost and recordsoak
//
// They are in the layer proof: "make proof" runs their short forms, "make proof FORM=full" the long
// ones, with the tags proof and full; PROOF=oracle runs one. See internal/testenv/layer. Proofs that
// need what a package hides are in that package: the faults of internal/target/live, the attacks of
// internal/replay.
package proof
