package export

import (
	"cmp"
	"slices"
	"strconv"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// frameTree is the tree of functions in a flame graph of one mode. frames[0] is the root. There can be
// millions of frames.
type frameTree struct {
	frames []treeFrame
	errors []treeError // of frames; nil: the sums are exact
	sorted []int32     // indices of frames; the children of a frame are contiguous
}

type treeFrame struct {
	function    *profile.Function // nil: the root, or the parent of incomplete stacks
	self, total profile.Amount
	parent      int32
	first, n    int32 // its children in sorted, the heaviest first
	lines       lineRange
}

// lineRange are the source lines of a frame: the lines of one file, if there are several files.
type lineRange struct {
	file        int32 // index in Recording.Files; 0: no line is known
	first, last int32
	approximate bool // the lines are not certain
}

// add adds the line of a location.
func (l *lineRange) add(r *profile.Recording, at *profile.Location) {
	if at.Line <= 0 {
		return
	}
	line := &r.Lines[at.Line]
	switch l.file {
	case 0:
		*l = lineRange{line.File, line.Line, line.Line, line.Approximate}
	case line.File:
		l.first, l.last = min(l.first, line.Line), max(l.last, line.Line)
		l.approximate = l.approximate || line.Approximate
	}
}

// text is the range for people; empty: there is none.
func (l *lineRange) text(r *profile.Recording) string {
	if l.file == 0 {
		return ""
	}
	out := display.Source(&snapshot.SourceLine{
		File: r.Files[l.file].Title(), Line: int(l.first), Approximate: l.approximate,
	}, false)
	if l.last > l.first {
		out += "–" + strconv.Itoa(int(l.last))
	}
	return out
}

// treeError are the variances of a frame's sums.
type treeError struct{ self, total profile.Variance }

// errorOf returns the variances of a frame.
func (t *frameTree) errorOf(frame int32) treeError {
	if t.errors == nil {
		return treeError{}
	}
	return t.errors[frame]
}

type treeKey struct {
	parent     int32
	incomplete bool
	function   int32
}

// newFrameTree sums up one mode of r. Incomplete stacks are below a frame of their own.
func newFrameTree(r *profile.Recording, m profile.Mode) *frameTree {
	used := usedNodes(r, m)
	t := &frameTree{frames: make([]treeFrame, 1, 2+used[0].n+used[1].n)}
	index := make(map[treeKey]int32, cap(t.frames))
	child := func(k treeKey, f *profile.Function) int32 {
		at, ok := index[k]
		if !ok {
			at = int32(len(t.frames))
			index[k] = at
			t.frames = append(t.frames, treeFrame{function: f, parent: k.parent})
		}
		return at
	}
	roots := [2]int32{}
	if used[1].n > 0 {
		roots[1] = child(treeKey{incomplete: true}, nil)
	}
	places := [2][]int32{used[0].places(r, roots[0], child), used[1].places(r, roots[1], child)}
	for _, frames := range places {
		for n, at := range frames {
			if n > 0 && at > 0 {
				t.frames[at].lines.add(r, &r.Locations[r.Nodes[n].Location])
			}
		}
	}
	if r.Estimated(m) {
		t.errors = make([]treeError, len(t.frames))
	}
	for _, s := range r.Samples {
		if s.Mode == m {
			at := places[completeness(&s)][s.Node]
			f := &t.frames[at]
			f.self.Add(profile.Amount{Weight: s.Weight, Events: s.Events, Samples: int(s.Count)})
			if t.errors != nil {
				t.errors[at].self.Add(s.Variance())
			}
		}
	}
	t.sum()
	return t
}

// nodeSet is a set of nodes of a recording.
type nodeSet struct {
	has []bool
	n   int
}

// completeness returns 0 for a complete stack, and 1 for an incomplete one.
func completeness(s *profile.Sample) int {
	if s.Incomplete {
		return 1
	}
	return 0
}

// usedNodes returns the nodes of complete and of incomplete stacks.
func usedNodes(r *profile.Recording, m profile.Mode) [2]nodeSet {
	var used [2]nodeSet
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Mode != m {
			continue
		}
		u := &used[completeness(s)]
		if u.has == nil {
			u.has, u.n = make([]bool, len(r.Nodes)), 1
		}
		for n := s.Node; n > 0 && !u.has[n]; n = r.Nodes[n].Parent {
			u.has[n] = true
			u.n++
		}
	}
	return used
}

// places adds a frame below root for each node, and returns the frame of each node. Parents must come
// before their children.
func (u *nodeSet) places(r *profile.Recording, root int32, child func(treeKey, *profile.Function) int32) []int32 {
	if u.n == 0 {
		return nil
	}
	places := make([]int32, len(r.Nodes))
	places[0] = root
	for n := 1; n < len(r.Nodes); n++ {
		if u.has[n] {
			f := r.Locations[r.Nodes[n].Location].Function
			places[n] = child(treeKey{parent: places[r.Nodes[n].Parent], function: f}, &r.Functions[f])
		}
	}
	return places
}

// sum fills in the totals, and sorts children by total.
func (t *frameTree) sum() {
	for i := len(t.frames) - 1; i >= 0; i-- { // children come after their parents
		f := &t.frames[i]
		f.total.Add(f.self)
		if t.errors != nil {
			t.errors[i].total.Add(t.errors[i].self)
		}
		if i > 0 {
			t.frames[f.parent].total.Add(f.total)
			if t.errors != nil {
				t.errors[f.parent].total.Add(t.errors[i].total)
			}
			t.frames[f.parent].n++
		}
	}
	next := int32(0)
	for i := range t.frames {
		f := &t.frames[i]
		f.first, next = next, next+f.n
		f.n = 0 // and counts again
	}
	t.sorted = make([]int32, next)
	for i := 1; i < len(t.frames); i++ {
		p := &t.frames[t.frames[i].parent]
		t.sorted[p.first+p.n] = int32(i)
		p.n++
	}
	for i := range t.frames {
		slices.SortFunc(t.children(int32(i)), func(a, b int32) int {
			return cmp.Or(cmp.Compare(t.frames[b].total.Weight, t.frames[a].total.Weight), cmp.Compare(a, b))
		})
	}
}

// children returns the children of a frame, the heaviest first.
func (t *frameTree) children(i int32) []int32 {
	f := &t.frames[i]
	return t.sorted[f.first : f.first+f.n]
}

// label returns the name of a frame without a function.
func (t *frameTree) label(f *treeFrame) string {
	if f == &t.frames[0] {
		return "all"
	}
	return incompleteFrame
}
