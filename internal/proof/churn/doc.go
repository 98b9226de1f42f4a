// Package churn proves who holds locks and who waits for them, while locks are taken, replaced, inflated and deflated,
// objects are moved and threads come and go. Each thread writes before and after each step to a mapped file, the
// journal. docs/correctness.md, Locks, has the results.
package churn
