package report

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"

	"clrsnap/snapshot"
)

// Grouping says when threads with equal stacks share one entry of the text.
type Grouping uint8

// The groupings.
const (
	// GroupAuto shows a stack once if four or more threads have the stack, at the place of the
	// first of these threads.
	GroupAuto Grouping = iota
	// GroupAlways shows every stack once, the most frequent stack first.
	GroupAlways
	// GroupNever shows each thread by itself.
	GroupNever
)

// autoGroup is from how many threads on GroupAuto shows a stack once. Two or three stacks are
// quickly read, and the threads' own headers say more.
const autoGroup = 4

// Group is threads with equal stacks.
type Group []*snapshot.Thread

// GroupThreads groups threads with equal stacks, in the order of the first thread of each group.
// Two stacks are equal if they have the same methods of the same modules, wherever in a method the
// thread is. Frames without a name are compared by their offset in the module; otherwise different
// stacks would look equal. A stack that is incomplete or empty, or belongs to a thread that
// crashed or has an exception in flight, equals no other stack.
func GroupThreads(threads []*snapshot.Thread) []Group {
	return groupThreads(threads, func([]snapshot.Frame) []snapshot.Fold { return nil }, false)
}

// groupThreads is GroupThreads for folded stacks: runs of framework frames are equal if the runs
// have the same parts. byLine: equal methods at different source lines are not equal.
func groupThreads(threads []*snapshot.Thread, folds func([]snapshot.Frame) []snapshot.Fold, byLine bool) []Group {
	var groups []Group
	k := stackKeys{folds: folds, byLine: byLine, seed: maphash.MakeSeed()}
	byHash := map[uint64][]int{}
	var key, other []byte
	for _, t := range threads {
		if !t.Complete || t.Crashed || t.Exception != nil || t.Depth() == 0 {
			groups = append(groups, Group{t})
			continue
		}
		key = k.of(t, key[:0])
		hash := maphash.Bytes(k.seed, key)
		at := slices.IndexFunc(byHash[hash], func(i int) bool {
			other = k.of(groups[i][0], other[:0])
			return bytes.Equal(key, other)
		})
		if at < 0 {
			byHash[hash] = append(byHash[hash], len(groups))
			groups = append(groups, Group{t})
			continue
		}
		i := byHash[hash][at]
		groups[i] = append(groups[i], t)
	}
	return groups
}

// stackKeys makes keys of stacks. Keys are long, so hashes of keys find the groups.
type stackKeys struct {
	folds  func([]snapshot.Frame) []snapshot.Fold
	byLine bool
	seed   maphash.Seed
	buf    []snapshot.Frame
}

// of appends the key of a thread's stack: equal stacks have equal keys.
func (k *stackKeys) of(t *snapshot.Thread, key []byte) []byte {
	frames := t.Stack(&k.buf)
	folded := k.folds(frames)
	for i := 0; i < len(frames); i++ {
		if len(folded) > 0 && folded[0].First == i {
			key = append(append(append(key, "\x00\x00"...), folded[0].Parts...), 1)
			i += folded[0].Frames - 1
			folded = folded[1:]
			continue
		}
		key = identify(key, &frames[i])
		if l := frames[i].Line; k.byLine && l != nil {
			key = strconv.AppendInt(append(append(key, l.File...), 0), int64(l.Line), 10)
		}
	}
	return key
}

// identify appends the key of a frame: equal frames have equal keys.
func identify(key []byte, f *snapshot.Frame) []byte {
	if f.Kind == snapshot.Async {
		key = append(key, 2)
		if f.Waiter != nil {
			key = strconv.AppendInt(key, int64(f.Waiter.OSThreadID), 10)
		}
	}
	key = append(append(key, f.Module...), 0)
	key = append(append(key, f.Display...), 0) // unlike Method, Display differs between instantiations
	key = append(key, f.Signature...)
	if f.Display == "" {
		key = append(key, hex(f.Offset)...)
		if f.Module == "" {
			key = append(key, hex(f.IP)...)
		}
	}
	return append(key, 1)
}

// repeat is a repeated part of a stack: period lines, times times.
type repeat struct{ period, times int }

const (
	maxPeriod = 8
	minSaved  = 4 // lines that folding a recursion must save
)

// repeatAt finds the recursion that starts at line i. times is 1 if nothing repeats.
func repeatAt[T any](lines []T, i int, equal func(a, b *T) bool) repeat {
	best := repeat{1, 1}
	for period := 1; period <= maxPeriod && i+2*period <= len(lines); period++ {
		n := 1
		for end := i + period; end+period <= len(lines) && sameLines(lines, i, end, period, equal); end += period {
			n++
		}
		if saved := (n - 1) * period; saved >= minSaved && saved > (best.times-1)*best.period {
			best = repeat{period, n}
		}
	}
	return best
}

func sameLines[T any](lines []T, a, b, n int, equal func(a, b *T) bool) bool {
	for k := range n {
		if !equal(&lines[a+k], &lines[b+k]) {
			return false
		}
	}
	return true
}
