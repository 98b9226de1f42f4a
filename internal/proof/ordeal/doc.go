// Package ordeal proves that the agent does not harm the process that it is in. Each test has live
// programs do what has broken profilers (faults by the hundred thousand, collections all the time,
// threads that last for a moment, every way to die) or treats the reader badly (killed, stopped,
// gone and back a hundred times). There must be no crash, no hang and no result that differs from
// what the program knows itself. docs/correctness.md, Notifications, has the results.
package ordeal
