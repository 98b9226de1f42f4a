// Package why tries "clrsnap why" and "clrsnap locks" on programs whose state is known: a web service that has one
// of many diseases (testdata/apps/shop), and programs under load that are well (testdata/apps/workloads). The first
// verdict on a sick one must be its disease, with the code that causes it, and nothing false may stand beside. A
// healthy one gets no verdict. docs/correctness.md, Why it is stuck, has the method and the results.
package why
