package export

import (
	"fmt"
	"math"
	"time"

	"clrsnap/profile"
)

// Bounds of written recordings: far more than a profile.Builder allows. recordingBudget bounds read
// recordings as well.
const (
	maxSamples   = 1 << 24
	maxNodes     = 1 << 24
	maxLocations = 1 << 22
	maxFunctions = 1 << 20
	maxThreads   = 1 << 20
	maxProcesses = 1 << 16
	maxNotes     = 1 << 12
	maxMessages  = 1 << 16
	maxMethods   = 1 << 20
	maxFiles     = 1 << 18
	maxLines     = 1 << 22
)

// maxWeight bounds every weight and number of events, and their sums in each mode, so that no
// computation can overflow.
const maxWeight = math.MaxInt64 / 2

// maxTime bounds every time, for the same reason: 146 years.
const maxTime = time.Duration(maxWeight)

// checkRecording returns an error unless every index, time and number in r is valid. A recording from
// a file has passed the check, so nobody has to check again.
func checkRecording(r *profile.Recording) error {
	if y := r.Start.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("it begins in the year %d", y) // RFC 3339 cannot write the year
	}
	for _, t := range [...]time.Duration{r.Duration, r.Cost.TargetCPU, r.Cost.OwnCPU} {
		if t < 0 || t > maxTime {
			return fmt.Errorf("a duration of %d ns is negative or too long", t)
		}
	}
	for _, check := range [...]func(*profile.Recording) error{
		checkSizes, checkModes, checkMessages, checkTables, checkSources, checkNodes, checkSamples, checkHolds,
	} {
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
		{"notes", len(r.Notes), maxNotes}, {"messages", len(r.Messages.Counts), maxMessages},
		{"holds", len(r.Holds), profile.MaxHolds},
		{"assemblies", len(r.Assemblies), profile.MaxAssemblies}, {"methods", len(r.Methods), maxMethods},
		{"libraries", len(r.Libraries), profile.MaxLibraries},
		{"sites", len(r.Sites), profile.MaxSites},
		{"files", len(r.Files), maxFiles}, {"lines", len(r.Lines), maxLines},
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
			return fmt.Errorf("mode %d is unknown, or listed twice", m.Mode)
		case !finite(m.Rate) || !finite(m.Got) || m.Rate < 0 || m.Got < 0:
			return fmt.Errorf("mode %v: the rate %v or the rate that was got, %v, is negative or not finite",
				m.Mode, m.Rate, m.Got)
		case min(m.Samples, m.Lost, m.Missed, m.Late, m.Broken, m.Repaired, m.Pauses.Count, m.Released) < 0:
			return fmt.Errorf("mode %v: a count of samples or pauses is negative", m.Mode)
		case min(m.Seen, m.Rethrown, m.Every) < 0 || max(m.Seen, m.Rethrown, m.Every) > maxWeight:
			return fmt.Errorf("mode %v: the number of events, %d, of rethrows, %d, or the interval, %d, is negative "+
				"or too large", m.Mode, m.Seen, m.Rethrown, m.Every)
		case min(m.Pauses.P50, m.Pauses.P99, m.Pauses.Max) < 0:
			return fmt.Errorf("mode %v: a pause is negative", m.Mode)
		}
		seen[m.Mode] = true
	}
	return nil
}

func checkMessages(r *profile.Recording) error {
	sum := r.Messages.Others
	for _, m := range r.Messages.Counts {
		if m.Count < 0 || m.Count > maxWeight || sum < 0 || sum > maxWeight {
			return fmt.Errorf("the counts of messages are negative or too large")
		}
		sum += m.Count
	}
	if sum < 0 || sum > maxWeight {
		return fmt.Errorf("the counts of messages are negative or too large")
	}
	return nil
}

func checkTables(r *profile.Recording) error {
	for i := range r.Threads {
		if !within(r.Threads[i].Process, len(r.Processes)) {
			return fmt.Errorf("thread %d: %w", i, outOfRange("process", int64(r.Threads[i].Process), len(r.Processes)))
		}
	}
	for i := range r.Functions {
		if kindNumber(r.Functions[i].Kind) < 0 {
			return fmt.Errorf("function %d: there is no kind %q", i, r.Functions[i].Kind)
		}
	}
	for i := range r.Locations {
		if !within(r.Locations[i].Function, len(r.Functions)) {
			return fmt.Errorf("location %d: %w", i,
				outOfRange("function", int64(r.Locations[i].Function), len(r.Functions)))
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
			return fmt.Errorf("node %d has the parent %d: a parent must come before its children", i, n.Parent)
		}
		if depth[i] = depth[n.Parent] + 1; depth[i] > profile.MaxDepth {
			return errTooDeep
		}
		if !within(n.Location, len(r.Locations)) {
			return fmt.Errorf("node %d: %w", i, outOfRange("location", int64(n.Location), len(r.Locations)))
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
			return fmt.Errorf("sample %d: %w", i, outOfRange("thread", int64(s.Thread), len(r.Threads)))
		case !within(s.Node, len(r.Nodes)):
			return fmt.Errorf("sample %d: %w", i, outOfRange("node", int64(s.Node), len(r.Nodes)))
		case !s.Mode.Known() || s.State > profile.Waiting:
			return fmt.Errorf("sample %d: there is no mode %d, or no state %d", i, s.Mode, s.State)
		case s.Count < 1:
			return fmt.Errorf("sample %d: a count of %d is less than 1", i, s.Count)
		case s.At < 0 || s.At > maxTime:
			return fmt.Errorf("sample %d: the time %d ns is negative or too late", i, s.At)
		case min(s.Weight, s.Events) < 0 || max(s.Weight, s.Events) > maxWeight:
			return fmt.Errorf("sample %d: the weight %d or the number of events, %d, is negative or too large",
				i, s.Weight, s.Events)
		}
		weight[s.Mode] += s.Weight
		events[s.Mode] += s.Events
		if max(weight[s.Mode], events[s.Mode]) > maxWeight {
			return fmt.Errorf("the sum of the weights or events of all %s samples is more than %d",
				s.Mode, int64(maxWeight))
		}
	}
	return nil
}

func checkHolds(r *profile.Recording) error {
	for i := range r.Holds {
		h := &r.Holds[i]
		if min(h.At, h.Waited) < 0 || max(h.At, h.Waited) > maxTime {
			return fmt.Errorf("hold %d: the time %d ns or %d ns is negative or too late", i, h.At, h.Waited)
		}
		for _, x := range [...]struct {
			what string
			at   int32
			n    int
		}{
			{"lock", h.Lock, len(r.Functions)}, {"holder", h.Holder, len(r.Functions)},
			{"waiter", h.Waiter, len(r.Threads)}, {"thread", h.Thread, len(r.Threads)}, {"node", h.Node, len(r.Nodes)},
		} {
			if !within(x.at, x.n) {
				return fmt.Errorf("hold %d: %w", i, outOfRange(x.what, int64(x.at), x.n))
			}
		}
	}
	return nil
}

// within reports whether i is an index of a list of n.
func within(i int32, n int) bool { return i >= 0 && int(i) < n }

// outOfRange is the error of an index outside a list of n.
func outOfRange(what string, i int64, n int) error {
	return fmt.Errorf("%s index %d is out of range [0, %d)", what, i, n)
}
