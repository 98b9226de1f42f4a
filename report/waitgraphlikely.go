package report

import (
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// knot is a likely deadlock for pictures.
type knot struct {
	nodes []snapshot.WaitNode // members, then others
	needs []needArrow
}

// needArrow is a likely wait edge between two nodes of a knot.
type needArrow struct {
	from, to snapshot.WaitNode
	need     *snapshot.LikelyEdge
}

// mostNeeds bounds the arrows for one likely wait edge with several holders.
const mostNeeds = 4

// mostArrows bounds the arrows of one knot.
const mostArrows = 1 << 10

// knotsOf returns the likely deadlocks of a graph. An ordinary wait between members is not a need: the wait is an
// edge of the graph.
func knotsOf(s *snapshot.Snapshot, g *snapshot.WaitGraph) []knot {
	out := make([]knot, len(g.Likely))
	in := map[snapshot.WaitNode]int{}
	for i := range g.Likely {
		d, k := &g.Likely[i], &out[i]
		k.nodes = slices.Concat(d.Members, d.Others)
		for _, p := range k.nodes {
			in[p] = i
		}
		for m, p := range d.Members {
			next := d.Members[(m+1)%len(d.Members)]
			if m == mostArrows {
				break
			}
			if n := s.LikelyEdgeOf(p, next); n != nil {
				k.needs = append(k.needs, needArrow{p, next, n})
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	for i := range s.LikelyEdges {
		n := &s.LikelyEdges[i]
		if at, ok := in[n.Waiter]; ok {
			out[at].add(n, func(p snapshot.WaitNode) bool { other, ok := in[p]; return ok && other == at })
		}
	}
	return out
}

// add adds the arrows of a likely wait edge to a knot.
func (k *knot) add(n *snapshot.LikelyEdge, in func(snapshot.WaitNode) bool) {
	count := 0
	for _, on := range n.Holders {
		if !in(on) {
			continue
		}
		if count++; count > mostNeeds || len(k.needs) >= mostArrows {
			return
		}
		if !slices.ContainsFunc(k.needs, func(a needArrow) bool { return a.from == n.Waiter && a.to == on }) {
			k.needs = append(k.needs, needArrow{n.Waiter, on, n})
		}
	}
}

// likelyThreads are the threads in likely deadlocks, with the number of the deadlock.
func likelyThreads(knots []knot) map[int]int {
	out := map[int]int{}
	for i := range knots {
		for _, p := range knots[i].nodes {
			if p.Thread >= 0 {
				out[p.Thread] = i
			}
		}
	}
	return out
}

// awaitLines describe a suspended method in a picture: its kind, the awaited object, and its place.
func awaitLines(a *snapshot.Await) []string {
	lines := []string{"suspended method"}
	if a.Object != 0 {
		lines[0] += " " + hex(a.Object)
	}
	if a.WaitsFor != nil {
		lines = append(lines, "awaits "+awaitedText(a.WaitsFor))
	}
	if len(a.Frames) > 0 {
		lines = append(lines, frameText(&a.Frames[0]))
	}
	return lines
}

// awaitTitle is the text of awaitLines, with the methods that await the suspended method.
func awaitTitle(a *snapshot.Await) (text string) {
	text = strings.Join(awaitLines(a), "\n")
	const most = 20
	for i := 1; i < len(a.Frames) && i < most; i++ {
		text += "\n  awaited by " + frameText(&a.Frames[i])
	}
	return text
}

// needEdgeText describes a likely wait edge in a picture.
func needEdgeText(n *snapshot.LikelyEdge) string {
	text := "likely: "
	switch n.Kind {
	case snapshot.SemaphoreLock:
		text += "a permit of "
	case snapshot.CompletionLock:
		text += "completion of "
	}
	text += needThing(n)
	if n.Ends {
		text += ", unless a token ends the wait"
	}
	return display.Clean(text)
}
