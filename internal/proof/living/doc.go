// Package living proves that unloadable code keeps its name as long as it lives, and loses the name when
// it is gone: a program that makes and drops unloadable code all the time is recorded under load. The
// stacks tell by themselves whether a name is right. docs/correctness.md, Code that can be unloaded, has
// the method and the results.
package living
