// Package details tests what is said of frames and threads besides their names: source lines, type arguments,
// inlined methods, exceptions and what threads wait for.
package details
