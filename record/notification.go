package record

import (
	"time"

	"clrsnap/events"
	"clrsnap/internal/agent"
)

// eventCounts say how many samples and events of a mode there were.
type eventCounts struct {
	samples, broken int
	lost, seen      int64 // of processes whose agent has left
}

// lifetimes are the lifetimes of ended threads.
type lifetimes struct {
	created, ended int
	unknown        int // created threads without a recorded beginning
	known          []time.Duration
}

// notification is a notification of the runtime, with the agent's record of it.
type notification struct {
	*events.Notification
	record *agent.Record
}

// linkStats are the statistics of one mode.
type linkStats struct {
	seen, lost int64
}

// agentCounts are the counters of an agent.
type agentCounts = [agent.EventTypes]agent.Counts
