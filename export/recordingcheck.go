package export

import (
	"fmt"
	"math"
	"time"

	"clrsnap/profile"
)

// Bounds of what is written: far more than a profile.Builder lets a recording become. Of
// what is read there may be no more than recordingBudget has room for.
const (
	maxSamples   = 1 << 24
	maxNodes     = 1 << 24
	maxLocations = 1 << 22
	maxFunctions = 1 << 20
	maxThreads   = 1 << 20
	maxProcesses = 1 << 16
	maxNotes     = 1 << 12
)

// maxWeight bounds every weight and number of events, and the sums of each mode,
// so that nothing that is worked out from them can overflow.
const maxWeight = math.MaxInt64 / 2

// maxTime bounds every time likewise: 146 years.
const maxTime = time.Duration(maxWeight)

// checkRecording returns an error unless everything in r that is an index, a time
// or a number can be relied on. Whoever gets a recording that was read need not
// look again.
func checkRecording(r *profile.Recording) error {
	if y := r.Start.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("it begins in the year %d", y) // which RFC 3339 cannot write
	}
	for _, t := range [...]time.Duration{r.Duration, r.Cost.TargetCPU, r.Cost.OwnCPU} {
		if t < 0 || t > maxTime {
			return fmt.Errorf("a time of %d ns", t)
		}
	}
	for _, check := range [...]func(*profile.Recording) error{checkSizes, checkModes, checkTables, checkNodes, checkSamples} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

func checkSizes(r *profile.Recording) error {
	for _, s := range [...]struct {
		what    string
		n, most int
	}{
		{"processes", len(r.Processes), maxProcesses}, {"threads", len(r.Threads), maxThreads},
		{"functions", len(r.Functions), maxFunctions}, {"locations", len(r.Locations), maxLocations},
		{"nodes", len(r.Nodes), maxNodes}, {"samples", len(r.Samples), maxSamples},
		{"notes", len(r.Notes), maxNotes},
	} {
		if s.n > s.most {
			return fmt.Errorf("more than %d %s", s.most, s.what)
		}
	}
	return nil
}

func checkModes(r *profile.Recording) error {
	var seen [len(profile.Modes)]bool
	for i := range r.Modes {
		m := &r.Modes[i]
		switch {
		case !m.Mode.Known() || seen[m.Mode]:
			return fmt.Errorf("mode %d is there twice or unknown", m.Mode)
		case !finite(m.Rate) || !finite(m.Got) || m.Rate < 0 || m.Got < 0:
			return fmt.Errorf("a rate of %v, of which %v was reached", m.Rate, m.Got)
		case min(m.Samples, m.Lost, m.Late, m.Broken, m.Repaired, m.Pauses.Count, m.Released) < 0:
			return fmt.Errorf("a count of samples or pauses that is negative")
		case min(m.Seen, m.Every) < 0 || max(m.Seen, m.Every) > maxWeight:
			return fmt.Errorf("%d events, of which every %d was sampled", m.Seen, m.Every)
		case min(m.Pauses.P50, m.Pauses.P99, m.Pauses.Max) < 0:
			return fmt.Errorf("a pause that is negative")
		}
		seen[m.Mode] = true
	}
	return nil
}

func checkTables(r *profile.Recording) error {
	for i := range r.Threads {
		if !within(r.Threads[i].Process, len(r.Processes)) {
			return fmt.Errorf("thread %d is of process %d of %d", i, r.Threads[i].Process, len(r.Processes))
		}
	}
	for i := range r.Functions {
		if kindNumber(r.Functions[i].Kind) < 0 {
			return fmt.Errorf("function %d is of kind %q", i, r.Functions[i].Kind)
		}
	}
	for i := range r.Locations {
		if !within(r.Locations[i].Function, len(r.Functions)) {
			return fmt.Errorf("location %d is in function %d of %d", i, r.Locations[i].Function, len(r.Functions))
		}
	}
	return nil
}

func checkNodes(r *profile.Recording) error {
	if len(r.Nodes) == 0 || r.Nodes[0] != (profile.Node{Parent: -1, Location: -1}) {
		return fmt.Errorf("node 0 is not the root")
	}
	depth := make([]int32, len(r.Nodes))
	for i := 1; i < len(r.Nodes); i++ {
		n := r.Nodes[i]
		if !within(n.Parent, i) {
			return fmt.Errorf("node %d is called by node %d", i, n.Parent)
		}
		if depth[i] = depth[n.Parent] + 1; depth[i] > profile.MaxDepth {
			return errTooDeep
		}
		if !within(n.Location, len(r.Locations)) {
			return fmt.Errorf("node %d is at location %d of %d", i, n.Location, len(r.Locations))
		}
	}
	return nil
}

var errTooDeep = fmt.Errorf("a stack has more than %d frames", profile.MaxDepth)

func checkSamples(r *profile.Recording) error {
	var weight, events [len(profile.Modes)]int64
	for i := range r.Samples {
		s := &r.Samples[i]
		switch {
		case !within(s.Thread, len(r.Threads)):
			return fmt.Errorf("sample %d is of thread %d of %d", i, s.Thread, len(r.Threads))
		case !within(s.Node, len(r.Nodes)):
			return fmt.Errorf("sample %d is at node %d of %d", i, s.Node, len(r.Nodes))
		case !s.Mode.Known() || s.State > profile.Waiting:
			return fmt.Errorf("sample %d has mode %d and state %d", i, s.Mode, s.State)
		case s.Count < 1:
			return fmt.Errorf("sample %d stands for %d samples", i, s.Count)
		case s.At < 0 || s.At > maxTime:
			return fmt.Errorf("sample %d is at %d ns", i, s.At)
		case min(s.Weight, s.Events) < 0 || max(s.Weight, s.Events) > maxWeight:
			return fmt.Errorf("sample %d stands for %d, and for %d events", i, s.Weight, s.Events)
		}
		weight[s.Mode] += s.Weight
		events[s.Mode] += s.Events
		if max(weight[s.Mode], events[s.Mode]) > maxWeight {
			return fmt.Errorf("the %s samples stand for more than %d", s.Mode, int64(maxWeight))
		}
	}
	return nil
}

// within reports whether i is an index of a list of n.
func within(i int32, n int) bool { return i >= 0 && int(i) < n }
