package snapshot

import "time"

// HeapStop says how a process was stopped for the reading of its heap, tasks, requests or waits at one moment.
type HeapStop struct {
	// Exact: everything is as at CapturedAt. Otherwise the process was read while it ran, and Reason says why.
	Exact   bool
	Reason  string
	Pause   time.Duration // how long threads stood still, in all stops together
	Stops   int           // more than 1 if, at a stop, objects were being moved or threads started
	Threads int           // stopped threads
	// Unfinished is how many of the stopped threads were in the middle of an allocation. For each of these, the
	// object to be made is missing, or lacks elements.
	Unfinished int
	// Needed is for how long the process would have to be stopped, roughly, if the pause was too short; else 0.
	Needed time.Duration
}
