// Package living proves that unloadable code keeps its name throughout its life, and loses the name
// afterwards: under load, the test records a program that makes and drops unloadable code all the time.
// The stacks tell whether a name is right. docs/correctness.md, Code that can be unloaded, has the
// method and the results.
package living
