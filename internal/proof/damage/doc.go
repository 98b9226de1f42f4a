// Package damage proves that a damaged core dump gives a result or an error: no panic, no hang, no
// memory without bound. docs/correctness.md, "Core dumps", has the method and the results.
package damage
