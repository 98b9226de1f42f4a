// Package proof has no code. The packages below prove clrsnap's promises; docs/correctness.md
// has the results. Nothing else imports the packages.
//
//	oracle      the CLR's own DoStackSnapshot of the same moment
//	singlestep  each call and return of a thread that executes one instruction at a time
//	perfmap     the runtime's own records of code, under load
//	judge       holds walks against the runtime's records, for perfmap and others
//	instant     stacks of all threads belong to one instant
//	churn       the holders of locks and the waiters, while locks, threads and objects come and go
//	damage      damaged core dumps
//	heap        all objects by type, under pressure, at one moment and without a stop
//	shares      recordings of programs with measurements and event counts of their own
//	ordeal      a program with the agent goes on, whatever the program and the agent's reader do
//	recordsoak  a long recording, against the runtime's records
//	inlined     inlined methods, against the runtime's optional records of inlining
//	lines       source lines, at every kind of place of a source text
//	requests    requests and calls in flight, as the other ends know them
//	why         sick services get the name of their disease, and healthy programs no verdict
//	living      unloadable code, before and after the unloading
//	cost        benchmarks of clrsnap's own cost; docs/costs.md
//	observer    processes that look at a target, for cost and recordsoak
//
// The packages are in the layer proof: "make proof" runs the short forms, "make proof FORM=full" the
// long forms, with the tags proof and full; PROOF=oracle runs a single package. See
// internal/testenv/layer. A proof that needs private parts of a package is in the package itself:
// the faults of internal/target/live, the attacks of internal/replay, the walks without a stop of
// internal/session.
package proof
