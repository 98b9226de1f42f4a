package export

import "clrsnap/profile"

// Grouping says which threads with equal stacks share one entry of the text.
type Grouping uint8

// The groupings.
const (
	// GroupAuto folds a stack that at least autoGroup threads have, at the place
	// of the first of them.
	GroupAuto Grouping = iota
	// GroupAlways folds every stack that two threads have, the largest groups
	// first.
	GroupAlways
	// GroupNever shows each thread by itself.
	GroupNever
)

// autoGroup is how many threads must have a stack before the default view
// shows it once: two or three are quickly read, and their own headers say more.
const autoGroup = 4

// Group is the threads that have one stack.
type Group []*profile.Thread

// GroupThreads puts threads with equal stacks together, in the order of the
// first of each. Stacks are equal if they consist of the same methods of the
// same modules; where exactly a thread is within a method, and what its registers
// hold, does not matter. Frames without a name are told apart by their offset in
// the module: otherwise different stacks could look equal. Incomplete stacks,
// empty ones, and that of a thread that crashed, equal nothing.
func GroupThreads(threads []*profile.Thread) []Group {
	var groups []Group
	byStack := map[string]int{}
	var key []byte
	for _, t := range threads {
		if !t.Complete || t.Crashed || len(t.Frames) == 0 {
			groups = append(groups, Group{t})
			continue
		}
		key = key[:0]
		for i := range t.Frames {
			key = identify(key, &t.Frames[i])
		}
		i, ok := byStack[string(key)]
		if !ok {
			byStack[string(key)] = len(groups)
			groups = append(groups, Group{t})
			continue
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}

// identify appends what makes a frame equal to another one.
func identify(key []byte, f *profile.Frame) []byte {
	key = append(append(key, f.Module...), 0)
	key = append(append(key, f.Display...), 0) // tells instantiations apart, which Method does not
	key = append(key, f.Signature...)
	if f.Display == "" {
		key = append(key, hex(f.Offset)...)
		if f.Module == "" {
			key = append(key, hex(f.IP)...)
		}
	}
	return append(key, 1)
}

// repeat is a piece of a stack that comes several times in a row.
type repeat struct{ period, times int }

const (
	maxPeriod = 8
	minSaved  = 4 // lines that a fold must save to be worth its own
)

// repeatAt finds the recursion that starts at line i: period lines that come
// times times. times is 1 where nothing repeats.
func repeatAt(lines []line, i int) repeat {
	best := repeat{1, 1}
	for period := 1; period <= maxPeriod && i+2*period <= len(lines); period++ {
		n := 1
		for end := i + period; end+period <= len(lines) && sameLines(lines, i, end, period); end += period {
			n++
		}
		if saved := (n - 1) * period; saved >= minSaved && saved > (best.times-1)*best.period {
			best = repeat{period, n}
		}
	}
	return best
}

func sameLines(lines []line, a, b, n int) bool {
	for k := range n {
		if !lines[a+k].equal(&lines[b+k]) {
			return false
		}
	}
	return true
}
