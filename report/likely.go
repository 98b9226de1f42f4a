package report

import (
	"fmt"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// LikelyText says in one sentence who waits for whom in a likely deadlock.
func LikelyText(s *snapshot.Snapshot, d *snapshot.LikelyDeadlock) string {
	var b strings.Builder
	b.WriteString("Likely deadlock: " + nodeName(s, d.Members[0]))
	for i, p := range d.Members {
		if i > 0 {
			b.WriteString(", which")
		}
		b.WriteString(" " + needText(s, p, d.Members[(i+1)%len(d.Members)]))
	}
	if n := len(d.Others); n > 0 {
		fmt.Fprintf(&b, "; %d more %s in it", n, display.Plural(n, "is", "are"))
	}
	if ends(s, d) {
		b.WriteString(", unless a token ends a wait")
	}
	return b.String()
}

// ends reports whether a wait of a member may be cancelled.
func ends(s *snapshot.Snapshot, d *snapshot.LikelyDeadlock) bool {
	for i := range d.Members {
		if n := s.LikelyEdgeOf(d.Members[i], d.Members[(i+1)%len(d.Members)]); n != nil && n.Ends {
			return true
		}
	}
	return false
}

// nodeName names a thread or a suspended method.
func nodeName(s *snapshot.Snapshot, p snapshot.WaitNode) string {
	if p.Thread >= 0 {
		return threadName(s, p.Thread)
	}
	a := &s.Awaits[p.Await]
	name := "an async method"
	if len(a.Frames) > 0 {
		name = "suspended " + display.Clean(a.Frames[0].Display)
	}
	if a.Object != 0 {
		name += " " + hex(a.Object)
	}
	return name
}

// needText says what one member waits for, and the next member's part in the wait.
func needText(s *snapshot.Snapshot, of, on snapshot.WaitNode) string {
	n := s.LikelyEdgeOf(of, on)
	if n == nil {
		if of.Thread >= 0 && on.Thread >= 0 && s.Threads[of.Thread].Wait != nil {
			return heldText(s, s.Threads[of.Thread].Wait, on.Thread)
		}
		return "waits for " + nodeName(s, on)
	}
	verb := "awaits "
	if of.Thread >= 0 {
		verb = "waits for "
	}
	switch n.Kind {
	case snapshot.SemaphoreLock:
		return verb + "a permit of " + needThing(n) + ", which " + nodeName(s, on) + " most likely holds"
	case snapshot.ContextLock:
		return "could go on, but most likely only through " + display.Clean(display.ShortType(n.Type)) + " on " +
			nodeName(s, on)
	case snapshot.CompletionLock:
		return verb + "a TaskCompletionSource" + needPlace(n) + ", which " + nodeName(s, on) + " most likely completes"
	}
	if on.Thread >= 0 {
		return verb + display.Clean(display.ShortType(n.Type)) + " " + hex(n.Object) + ", run by " + nodeName(s, on)
	}
	return verb + nodeName(s, on)
}

// needThing names the object of a likely wait edge: "SemaphoreSlim 0x7f10
// (Shop.Bank.Permits)".
func needThing(n *snapshot.LikelyEdge) string {
	return display.Clean(display.ShortType(n.Type)) + needPlace(n)
}

func needPlace(n *snapshot.LikelyEdge) string {
	text := " " + hex(n.Object)
	if n.Field != "" {
		text += " (" + display.Clean(display.Field(n.Field)) + ")"
	}
	return text
}

// likely prints a likely deadlock: a sentence, and the place of each member.
func (p *graphPrinter) likely(d *snapshot.LikelyDeadlock) {
	p.wrapped(yellow, LikelyText(p.s, d))
	shown := d.Members
	if !p.all {
		shown = shown[:min(len(shown), shownMembers)]
	}
	for _, m := range shown {
		p.node(m)
	}
	if left := len(d.Members) - len(shown); left > 0 {
		p.paint(dim, fmt.Sprintf("  and %d more (--all shows them)", left))
		p.end()
	}
	if n := len(d.Victims); n > 0 {
		threads := make([]*snapshot.Thread, n)
		for i, v := range d.Victims {
			threads[i] = &p.s.Threads[v]
		}
		p.list(fmt.Sprintf("  %d %s behind it:", n, display.Plural(n, "thread waits", "threads wait")), threads)
	}
	p.end()
}

// node prints a member of a likely deadlock.
func (p *graphPrinter) node(m snapshot.WaitNode) {
	if m.Thread >= 0 {
		p.member(m.Thread)
		return
	}
	a := &p.s.Awaits[m.Await]
	p.text("  ")
	p.paint(bold, nodeName(p.s, m))
	if a.WaitsFor != nil {
		p.property(plain, "awaits "+awaitedText(a.WaitsFor))
	}
	p.end()
	p.awaitFrames(a, 4)
}

// awaitFrames prints a suspended method, and the methods that await it.
func (p *graphPrinter) awaitFrames(a *snapshot.Await, indent int) {
	for i := range a.Frames[:min(len(a.Frames), shownFrames)] {
		p.text(strings.Repeat(" ", indent))
		if i > 0 {
			p.paint(dim, "awaited by ")
		}
		p.managed(&a.Frames[i], indent)
		p.end()
	}
}

// maxHolders is how many holders of a permit to name.
const maxHolders = 3

// holdersText names the likely holders of a semaphore's permits, or the likely
// completers of a task.
func holdersText(s *snapshot.Snapshot, kind snapshot.LockKind, holders []snapshot.WaitNode) string {
	var names []string
	for _, p := range holders[:min(len(holders), maxHolders)] {
		names = append(names, nodeName(s, p))
	}
	if left := len(holders) - maxHolders; left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	verb := "a permit is held, most likely, by "
	if kind == snapshot.TaskLock {
		verb = "needs, most likely, "
	}
	return verb + strings.Join(names, ", ")
}

// permitQueues prints the queues of async methods for permits.
func (p *graphPrinter) permitQueues() {
	if len(p.s.PermitQueues) == 0 {
		return
	}
	p.paint(bold, "Semaphores that async methods wait for:")
	p.end()
	for i := range p.s.PermitQueues {
		q := &p.s.PermitQueues[i]
		p.text("  ")
		p.paint(bold, needThing(&snapshot.LikelyEdge{Type: q.Type, Object: q.Object, Field: q.Field}))
		p.property(dim, counted(q.Awaits, "async waiter", "async waiters"))
		p.end()
		if len(q.Holders) > 0 {
			p.paint(plain, "    "+holdersText(p.s, snapshot.SemaphoreLock, q.Holders))
			if h := q.Holders[0]; h.Await >= 0 && p.s.Awaits[h.Await].WaitsFor != nil {
				p.property(plain, "awaits "+awaitedText(p.s.Awaits[h.Await].WaitsFor))
			}
			p.end()
			p.holder(q.Holders[0])
		}
		if len(q.Frames) > 0 {
			p.text("    the longest waiter:")
			p.end()
			p.awaitFrames(&snapshot.Await{Frames: q.Frames}, 6)
		}
	}
	p.end()
}

type jsonPermitQueue struct {
	Object  string         `json:"object"`
	Type    string         `json:"type"`
	Field   string         `json:"field,omitempty"`
	Awaits  int            `json:"awaits"`
	Holders []jsonWaitNode `json:"likelyHolders,omitempty"`
	Frames  []*jsonFrame   `json:"frames,omitempty"`
}

// permitQueues writes the queues of async methods for permits.
func (j *graphJSON) permitQueues(c *jsonwriter.Writer) {
	if len(j.s.PermitQueues) == 0 {
		return
	}
	c.Text(",")
	c.Key("permitQueues")
	c.List(len(j.s.PermitQueues), func(i int) {
		q := &j.s.PermitQueues[i]
		out := jsonPermitQueue{Object: address(q.Object), Type: q.Type, Field: q.Field, Awaits: q.Awaits}
		for _, h := range q.Holders[:min(len(q.Holders), maxListedHolders)] {
			out.Holders = append(out.Holders, j.node(h))
		}
		for k := range q.Frames {
			out.Frames = append(out.Frames, jsonFrameOf(&q.Frames[k]))
		}
		c.Value(out)
	})
}

// jsonWaitNode is a thread, or a suspended async method, with its wait.
type jsonWaitNode struct {
	jsonMember
	Method   string       `json:"method,omitempty"`
	Task     string       `json:"task,omitempty"`
	WaitsFor *jsonAwaited `json:"waitsFor,omitempty"`
	Need     *jsonNeed    `json:"need,omitempty"`
}

// jsonNeed is the likely wait edge from a member to the next.
type jsonNeed struct {
	Kind     snapshot.LockKind `json:"kind"`
	Object   string            `json:"object,omitempty"`
	Type     string            `json:"type,omitempty"`
	Field    string            `json:"field,omitempty"`
	MayBeEnd bool              `json:"cancellable,omitempty"`
}

type jsonLikely struct {
	Members []jsonWaitNode `json:"members"`
	Others  []jsonWaitNode `json:"others,omitempty"`
	Victims []jsonMember   `json:"victims,omitempty"`
	Text    string         `json:"text"`
}

func (j *graphJSON) likely(c *jsonwriter.Writer, list []snapshot.LikelyDeadlock) {
	c.Text(`,"likely":`)
	c.List(len(list), func(i int) {
		d := &list[i]
		out := jsonLikely{Members: []jsonWaitNode{}, Text: LikelyText(j.s, d)}
		for k, p := range d.Members {
			m := j.node(p)
			if n := j.s.LikelyEdgeOf(p, d.Members[(k+1)%len(d.Members)]); n != nil {
				m.Need = &jsonNeed{n.Kind, address(n.Object), n.Type, n.Field, n.Ends}
			}
			out.Members = append(out.Members, m)
		}
		for _, p := range d.Others {
			out.Others = append(out.Others, j.node(p))
		}
		for _, t := range d.Victims {
			out.Victims = append(out.Victims, j.member(t))
		}
		c.Value(out)
	})
}

// node describes a thread or a suspended method.
func (j *graphJSON) node(p snapshot.WaitNode) (out jsonWaitNode) {
	if p.Thread >= 0 {
		out.jsonMember = j.member(p.Thread)
		out.Wait = jsonWaitOf(j.s.Threads[p.Thread].Wait)
		return out
	}
	a := &j.s.Awaits[p.Await]
	out.Task = address(a.Object)
	for i := range a.Frames {
		out.Frames = append(out.Frames, jsonFrameOf(&a.Frames[i]))
	}
	if len(a.Frames) > 0 {
		out.Method = a.Frames[0].Display
	}
	out.WaitsFor = jsonAwaitedOf(a.WaitsFor)
	return out
}
