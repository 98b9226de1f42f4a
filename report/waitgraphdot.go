package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// WaitGraphDOT writes a WaitGraph in the language of Graphviz. Threads are boxes; locks without a known owner are
// ellipses. An edge leads from a waiter to a holder. Deadlocks are red. Likely deadlocks are orange, with dashed
// edges; suspended methods in likely deadlocks are rounded orange boxes.
func WaitGraphDOT(w io.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph) error {
	b := bufio.NewWriter(w)
	deadlocked := membersOf(g.Deadlocks)
	knots := knotsOf(s, g)
	likely := likelyThreads(knots)
	fmt.Fprintf(b, "digraph locks {\n  rankdir=LR;\n  label=%s;\n  node [shape=box, fontname=\"sans-serif\"];\n"+
		"  edge [fontname=\"sans-serif\"];\n", dotString(graphTitle(s)))
	shown := map[int]bool{}
	node := func(i int) {
		if shown[i] {
			return
		}
		shown[i] = true
		style := ""
		if deadlocked[i] {
			style = ", color=red, penwidth=2"
		} else if _, ok := likely[i]; ok {
			style = ", color=orange"
		}
		fmt.Fprintf(b, "  t%d [label=%s%s];\n", s.Threads[i].OSThreadID, dotString(nodeText(s, i)), style)
	}
	for _, e := range g.Edges {
		node(e.Thread)
		node(e.For)
		style := ""
		if deadlocked[e.Thread] && deadlocked[e.For] {
			style = ", color=red, penwidth=2"
		} else if sameKnot(likely, e) {
			style = ", color=orange"
		}
		fmt.Fprintf(b, "  t%d -> t%d [label=%s%s];\n", s.Threads[e.Thread].OSThreadID, s.Threads[e.For].OSThreadID,
			dotString(edgeText(s.Threads[e.Thread].Wait)+doubt(s.Threads[e.Thread].Wait.Certain)), style)
	}
	for i := range g.Locks {
		l := &g.Locks[i]
		if !apart(l) {
			continue
		}
		fmt.Fprintf(b, "  l%d [shape=ellipse, label=%s];\n", i, dotString(stateName(l)+"\n"+apartText(l)))
		for _, w := range l.Waiters {
			node(w.Thread)
			label := ""
			if !w.Wait.Certain {
				label = ` [label="uncertain"]`
			}
			fmt.Fprintf(b, "  t%d -> l%d%s;\n", s.Threads[w.Thread].OSThreadID, i, label)
		}
	}
	likelyDOT(b, s, knots, node)
	b.WriteString("}\n")
	return b.Flush()
}

// likelyDOT writes the likely deadlocks.
func likelyDOT(b *bufio.Writer, s *snapshot.Snapshot, knots []knot, node func(int)) {
	shown := map[int]bool{}
	name := func(p snapshot.WaitNode) string {
		if p.Thread >= 0 {
			node(p.Thread)
			return fmt.Sprintf("t%d", s.Threads[p.Thread].OSThreadID)
		}
		if !shown[p.Await] {
			shown[p.Await] = true
			lines := strings.Join(awaitLines(&s.Awaits[p.Await]), "\n")
			fmt.Fprintf(b, "  a%d [style=\"rounded,dashed\", color=orange, label=%s];\n", p.Await, dotString(lines))
		}
		return fmt.Sprintf("a%d", p.Await)
	}
	for i := range knots {
		for _, a := range knots[i].needs {
			from, to := name(a.from), name(a.to)
			fmt.Fprintf(b, "  %s -> %s [style=dashed, color=orange, label=%s];\n", from, to,
				dotString(needEdgeText(a.need)))
		}
	}
}

// sameKnot reports whether an edge lies in a likely deadlock.
func sameKnot(likely map[int]int, e snapshot.WaitEdge) bool {
	from, ok1 := likely[e.Thread]
	to, ok2 := likely[e.For]
	return ok1 && ok2 && from == to
}

// membersOf are the members of deadlocks: indices in Snapshot.Threads.
func membersOf(list []snapshot.Deadlock) map[int]bool {
	out := map[int]bool{}
	for i := range list {
		for _, t := range list[i].Threads {
			out[t] = true
		}
	}
	return out
}

// apart reports whether an awaited lock has a box of its own in a picture, because no thread stands for the lock.
func apart(l *snapshot.LockState) bool {
	return len(l.Waiters) > 0 && (l.Ended() || len(l.Readers) == 0 && l.Owner == nil)
}

// apartText says below the name of such a lock why no thread stands for the lock.
func apartText(l *snapshot.LockState) string {
	if l.Ended() && l.Owner == nil {
		return "a reader has ended"
	}
	if l.Ended() {
		return "its owner has ended" + doubt(l.Certain)
	}
	if l.Detail != "" {
		return display.Clean(l.Detail)
	}
	return "no owner is known"
}

// doubt marks what is not certain.
func doubt(certain bool) string {
	if certain {
		return ""
	}
	return " (uncertain)"
}

// graphTitle is the title of a picture.
func graphTitle(s *snapshot.Snapshot) string {
	title := fmt.Sprintf("Who waits for whom in process %d", s.Process.PID)
	if name := s.Process.Program(); name != "" {
		title = fmt.Sprintf("Who waits for whom in %s (process %d)", display.Elide(display.Clean(name), 60),
			s.Process.PID)
	}
	return title + " · " + s.CapturedAt.Format("2006-01-02 15:04:05")
}

// nodeText describes a thread in a picture: its name, and below its place.
func nodeText(s *snapshot.Snapshot, i int) string {
	text := threadName(s, i)
	for _, f := range ownFrames(&s.Threads[i], 1) {
		text += "\n" + frameText(f)
	}
	return text
}

// frameText is the name of a frame with its line, short.
func frameText(f *snapshot.Frame) string {
	name := f.Short
	if name == "" {
		name = f.Display
	}
	text := display.Clean(name)
	if f.Line != nil {
		text += "  " + display.SourceFile(f.Line)
	}
	return text
}

// edgeText describes a thread's wait in a picture.
func edgeText(w *snapshot.Wait) string {
	switch w.Kind {
	case snapshot.ThreadJoin:
		return "Thread.Join"
	case snapshot.ReadLock:
		return "to read: " + lockText(w)
	case snapshot.WriteLock:
		return "to write: " + lockText(w)
	}
	return lockText(w)
}

// dotString quotes text for Graphviz.
func dotString(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(display.Clean(lines[i]))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
