// Package churn proves who holds locks and who waits for them, while locks are taken, replaced, inflated and deflated,
// objects are moved and threads come and go. docs/correctness.md, "Locks", has the method and the results.
package churn
