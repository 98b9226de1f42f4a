// Package oracle proves walks with a witness: the CLR's own DoStackSnapshot of the same thread at
// the same moment. docs/correctness.md, oracle 1, has the method and the results. The comparison
// is exported for other proofs that have the CLR's walk.
package oracle
