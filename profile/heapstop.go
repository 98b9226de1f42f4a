package profile

import "time"

// HeapStop is how a process was stopped so that its heap could be read at one moment.
type HeapStop struct {
	// Exact: the heap is that of Heap.CapturedAt. If not, Reason says why, and it was read while the process ran.
	Exact   bool
	Reason  string
	Pause   time.Duration // how long threads stood still, in all stops together
	Stops   int           // more than 1 if objects were being moved, or threads started, just then
	Threads int           // that were stopped
	// Unfinished is how many of them were in the middle of an allocation. The object that each was about to make is
	// missing, or lacks elements.
	Unfinished int
	// Needed is for how long the process would have to be stopped, roughly, if the pause was too short; else 0.
	Needed time.Duration
}
