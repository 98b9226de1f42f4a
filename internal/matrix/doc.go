// Package matrix tests stacks where they may differ: on every runtime, in every shape of a program, in every place
// where a program can run, and in every kind of core dump. docs/runtimes.md has the result.
package matrix
