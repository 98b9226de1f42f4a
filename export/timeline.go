package export

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"clrsnap/profile"
)

// A track has the samples of one thread in one mode, in the order of time.
type track struct {
	thread  int32
	mode    profile.Mode
	samples []*profile.Sample
	weight  int64 // of all samples
	running int64 // of samples that were not waiting
}

// tracks returns the samples of a recording by mode, and in each mode by thread, the
// busiest first.
func tracks(r *profile.Recording) []*track {
	type key struct {
		thread int32
		mode   profile.Mode
	}
	byKey := map[key]*track{}
	var out []*track
	for i := range r.Samples {
		s := &r.Samples[i]
		k := key{s.Thread, s.Mode}
		t := byKey[k]
		if t == nil {
			t = &track{thread: s.Thread, mode: s.Mode}
			byKey[k] = t
			out = append(out, t)
		}
		t.samples = append(t.samples, s)
		t.weight += s.Weight
		if s.State == profile.Running {
			t.running += s.Weight
		}
	}
	for _, t := range out {
		slices.SortStableFunc(t.samples, func(a, b *profile.Sample) int { return cmp.Compare(a.At, b.At) })
	}
	slices.SortFunc(out, func(a, b *track) int {
		return cmp.Or(cmp.Compare(a.mode, b.mode), cmp.Compare(b.running, a.running),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.thread, b.thread))
	})
	return out
}

// lasts reports whether the weights of a track are times. Then its samples have a duration.
func (t *track) lasts() bool { return t.mode.Unit() == profile.Nanoseconds }

// A span is a sample on a time line.
type span struct {
	start, end time.Duration
	*profile.Sample
}

// spans places the samples of a track on a time line. Each sample ends when it was taken and lasts as
// long as its weight.
//
// If a sample begins later than the end of the sample before, by more than its own weight, there is a
// gap: the thread did not run, or was not sampled. A smaller gap is jitter. It is closed by moving the
// sample, because the gap would cut one slice into slivers. Events are not moved. Spans never overlap.
func (t *track) spans() iter.Seq[span] {
	return func(yield func(span) bool) {
		now := time.Duration(0)
		for _, s := range t.samples {
			length := time.Duration(s.Weight)
			if start := s.At - length; start-now > length || start > now && t.mode.OfEvents() {
				now = start
			}
			sp := span{now, now + length, s}
			if now = sp.end; s.Weight > 0 && !yield(sp) {
				return
			}
		}
	}
}

// path returns the functions of a node's stack, base first. It reuses buf.
func path(r *profile.Recording, node int32, buf []int32) []int32 {
	buf = buf[:0]
	for l := range r.Stack(node) {
		buf = append(buf, l.Function)
	}
	slices.Reverse(buf)
	return buf
}
