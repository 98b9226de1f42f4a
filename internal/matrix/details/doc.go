// Package details tests the facts about frames and threads besides their names: source lines, type arguments, inlined
// methods, exceptions and the waits of threads.
package details
