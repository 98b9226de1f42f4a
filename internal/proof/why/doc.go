// Package why tries "clrsnap why" and "clrsnap locks" on programs in a known state: a web service with one of many
// diseases (testdata/apps/shop), and healthy programs under load (testdata/apps/workloads). The first verdict on a
// sick program must be its disease, with the code at fault, and nothing false may stand beside the verdict. A
// healthy program gets no verdict. docs/correctness.md, Why it is stuck, has the method and the results.
package why
