// Package living proves that code which can be unloaded keeps its name as long as it lives, and loses it
// when it is gone: a program that makes and drops such code all the time is recorded under load. Its
// stacks tell by themselves whether a name is right. docs/correctness.md, Code that can be unloaded, has
// the method and the results.
package living
