// Package living proves that unloadable code keeps its name throughout its life, and loses the name
// afterwards: under load, the test records a program that makes and drops unloadable code all the time.
// docs/correctness.md, Code that can be unloaded, has the rule and the results.
//
// The program (testdata/apps/living) keeps 90 methods alive: compiled expressions, dynamic methods and methods of
// collectible assemblies. The program makes other methods, calls each for 2 ms, and drops the method; the addresses are
// used again. A method has a number in its name, and calls a method with the same number, so each
// stack tells whether a name is right. Every second recording has all events, and two busy processes
// for each CPU keep samples waiting. A recorder that trusts every name fails, and so does a recorder that trusts
// names read within 5 ms.
package living
