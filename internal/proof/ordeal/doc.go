// Package ordeal proves that the agent does not harm its process. Each test has live programs do
// what has broken profilers (faults by the hundred thousand, collections all the time, threads
// with a very short life, every way to die) or treats the reader badly (killed, stopped, gone and
// back a hundred times). There must be no crash, no hang and no result that contradicts the
// program's own knowledge. docs/correctness.md, Notifications, has the results.
package ordeal
