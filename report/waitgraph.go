package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// WaitGraphOptions are the options of WaitGraph. The zero value works.
type WaitGraphOptions struct {
	Text TextOptions // Color, Width, Full, Short and Link count
	All  bool        // with locks without waiters, and with every waiter
}

// WaitGraph writes for people who waits for whom in a snapshot: deadlocks, then what threads wait for, the most
// harmful first. The frames shown are the program's own code.
func WaitGraph(w io.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph, o WaitGraphOptions) error {
	p := &graphPrinter{printer: printer{w: bufio.NewWriterSize(w, 64<<10), o: o.Text}, s: s, g: g, all: o.All}
	p.process(s)
	for i := range g.Deadlocks {
		p.deadlock(&g.Deadlocks[i])
	}
	for i := range g.Suspected {
		p.deadlock(&g.Suspected[i])
	}
	for i := range g.Likely {
		p.likely(&g.Likely[i])
	}
	p.states()
	p.paint(dim, graphSummary(s, g))
	p.end()
	p.rest(s.Stop, changing(s))
	if s.Unsearched != "" {
		which := "Likely deadlocks"
		if s.Process.Core != nil { // the locks are missing, too
			which = "Deadlocks"
		}
		p.paint(dim, which+" may be missing: "+display.Clean(s.Unsearched))
		p.end()
	}
	return p.w.Flush()
}

// changing says how many threads' waits changed at each look; "": none.
func changing(s *snapshot.Snapshot) string {
	n := 0
	for i := range s.Threads {
		if w := s.Threads[i].Wait; w != nil && !w.Certain && snapshot.LockKindOf(w) != "" {
			n++
		}
	}
	if n == 0 || s.AtRest() {
		return ""
	}
	return counted(n, "wait", "waits") + " changed at each look"
}

// graphPrinter writes a WaitGraph.
type graphPrinter struct {
	printer
	s   *snapshot.Snapshot
	g   *snapshot.WaitGraph
	all bool
}

// DeadlockText says in one sentence who waits for whom in a deadlock.
func DeadlockText(s *snapshot.Snapshot, d *snapshot.Deadlock) string {
	text := "Deadlock: "
	switch {
	case !d.Certain:
		text = "Possible deadlock, not certain: "
	case d.Timeout == snapshot.Forever:
	case d.Ended:
		text = "Abandoned lock: "
	default:
		text = "Circle of waits: "
	}
	switch {
	case d.Ended:
		text += endedText(s, d)
	case d.Simple:
		text += circleText(s, d)
	default:
		text += tangleText(s, d)
	}
	switch {
	case d.Ended && d.Timeout > 0:
		text += ", but one thread waits for at most " + spanText(d.Timeout)
	case d.Timeout > 0:
		text += ": the circle ends by itself, because one thread waits for at most " + spanText(d.Timeout)
	case d.Timeout == 0:
		text += ": clrsnap does not know whether all threads wait without a timeout"
	}
	return text
}

// threadName names a thread of a snapshot: "orders-1 (4250)".
func threadName(s *snapshot.Snapshot, i int) string {
	t := &s.Threads[i]
	return threadText(&snapshot.ThreadRef{OSThreadID: t.OSThreadID, Name: t.Name})
}

// lockText names the object of a wait, in a sentence: "Shop.Order 0x7f10".
func lockText(w *snapshot.Wait) string {
	switch w.Kind {
	case snapshot.ThreadJoin:
		return "the end"
	case snapshot.WaitRuntime:
		return "the static constructor of " + display.Clean(display.ShortType(w.Type))
	}
	return thing(w)
}

// heldText says, after a wait, who holds the awaited object.
func heldText(s *snapshot.Snapshot, w *snapshot.Wait, owner int) string {
	if t := taskOf(w, s.Threads[owner].OSThreadID); t != nil {
		return fmt.Sprintf(verbs[w.Kind], lockText(w)) + ", among them " + thing(t) + ", " + hasIt(t) + " " +
			threadName(s, owner)
	}
	switch {
	case w.Kind == snapshot.ThreadJoin:
		return "waits for the end of " + threadName(s, owner)
	case isBehind(s, w, owner):
		return fmt.Sprintf(verbs[w.Kind], lockText(w)) + ", behind " + threadName(s, owner)
	case w.Owner == nil || w.Owner.OSThreadID != s.Threads[owner].OSThreadID:
		return "waits to write under " + lockText(w) + ", which is read by " + threadName(s, owner)
	}
	return "waits for " + lockText(w) + ", " + hasIt(w) + " " + threadName(s, owner)
}

// taskOf returns the task of a wait that a thread runs; nil: none.
func taskOf(w *snapshot.Wait, thread int) *snapshot.Wait {
	for i := range w.Tasks {
		if o := w.Tasks[i].Owner; o != nil && o.OSThreadID == thread {
			return &w.Tasks[i]
		}
	}
	return nil
}

// isBehind reports whether a reader waits for a thread that waits to write.
func isBehind(s *snapshot.Snapshot, w *snapshot.Wait, writer int) bool {
	return slices.ContainsFunc(w.Behind, func(r snapshot.ThreadRef) bool {
		return r.OSThreadID == s.Threads[writer].OSThreadID
	})
}

// circleText tells a simple circle: "a holds X and waits for Y, held by b, which waits for X, held by a".
func circleText(s *snapshot.Snapshot, d *snapshot.Deadlock) string {
	first, last := d.Threads[0], d.Threads[len(d.Threads)-1]
	var b strings.Builder
	b.WriteString(threadName(s, first))
	switch w := s.Threads[last].Wait; {
	case !isHeld(w) || isBehind(s, w, first):
	case w.Owner == nil:
		b.WriteString(" reads under " + lockText(w) + " and")
	default:
		b.WriteString(" holds " + lockText(w) + " and")
	}
	for i, t := range d.Threads {
		if i > 0 {
			b.WriteString(", which")
		}
		b.WriteString(" " + heldText(s, s.Threads[t].Wait, d.Threads[(i+1)%len(d.Threads)]))
	}
	return b.String()
}

// isHeld reports whether a wait is for an object that the owner holds.
func isHeld(w *snapshot.Wait) bool {
	switch w.Kind {
	case snapshot.ThreadJoin, snapshot.WaitRuntime:
		return false
	}
	return !w.Kind.OfTasks()
}

// tangleText says what each member waits for.
func tangleText(s *snapshot.Snapshot, d *snapshot.Deadlock) string {
	var parts []string
	member := map[int]int{} // indices by ids
	for _, t := range d.Threads {
		member[s.Threads[t].OSThreadID] = t
	}
	for _, t := range d.Threads {
		w := s.Threads[t].Wait
		refs := slices.Concat(w.Readers, w.Behind)
		if w.Owner != nil {
			refs = append([]snapshot.ThreadRef{*w.Owner}, refs...)
		}
		for k := range w.Tasks {
			if o := w.Tasks[k].Owner; o != nil {
				refs = append(refs, *o)
			}
		}
		var whom []string
		text := ""
		for k := range refs {
			if at, ok := member[refs[k].OSThreadID]; ok && text == "" {
				text = heldText(s, w, at)
			} else if ok {
				whom = append(whom, threadName(s, at))
			}
		}
		parts = append(parts, threadName(s, t)+" "+strings.Join(append([]string{text}, whom...), " and "))
	}
	return strings.Join(parts, "; ")
}

// endedText tells who waits for a lock whose owner has ended.
func endedText(s *snapshot.Snapshot, d *snapshot.Deadlock) string {
	const most = 3
	var names []string
	for _, t := range d.Threads[:min(most, len(d.Threads))] {
		names = append(names, threadName(s, t))
	}
	if left := len(d.Threads) - most; left > 0 {
		names = append(names, fmt.Sprintf("%d more threads", left))
	}
	verb := " waits for "
	if len(d.Threads) > 1 {
		verb = " wait for "
	}
	last := len(names) - 1
	text := names[last]
	if last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + text
	}
	w := s.Threads[d.Threads[0]].Wait
	text += verb + lockText(w)
	if w.Owner == nil {
		return text + ": a thread has ended without leaving the read lock, so nobody will ever write under the lock"
	}
	return text + ": the owner has ended without leaving the lock, so the lock will never be free"
}

// deadlock prints a deadlock: a sentence, and each member's waits.
func (p *graphPrinter) deadlock(d *snapshot.Deadlock) {
	st := red
	if !d.Certain || d.Timeout != snapshot.Forever {
		st = yellow
	}
	p.wrapped(st, DeadlockText(p.s, d))
	shown := d.Threads
	if !p.all {
		shown = shown[:min(len(shown), shownMembers)]
	}
	for _, t := range shown {
		p.member(t)
	}
	if left := len(d.Threads) - len(shown); left > 0 {
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

// How much is shown without --all.
const (
	shownMembers = 12
	shownWaiters = 4
	shownFrames  = 3
)

// member prints a thread of a deadlock: the thread's wait, its locks, and its place.
func (p *graphPrinter) member(i int) {
	t := &p.s.Threads[i]
	p.text("  ")
	p.paint(bold, threadName(p.s, i))
	p.property(plain, waitText(t.Wait))
	p.end()
	p.where(t, 4)
	for k := range t.Holds {
		p.paint(yellow, "    "+holdText(&t.Holds[k]))
		p.end()
	}
}

// where prints a thread's frames of the program's own code.
func (p *graphPrinter) where(t *snapshot.Thread, indent int) {
	for _, f := range ownFrames(t, shownFrames) {
		p.text(strings.Repeat(" ", indent))
		p.managed(f, indent)
		p.end()
	}
}

// ownFrames returns the frames nearest to the leaf that are the program's own code. If there are none, ownFrames
// returns the first frame of a package, or the first managed frame outside the wait's own frames.
func ownFrames(t *snapshot.Thread, most int) (out []*snapshot.Frame) {
	var other, any, waits *snapshot.Frame
	var buf []snapshot.Frame
	frames := t.Stack(&buf)
	primitive := snapshot.PrimitiveOf(frames).Outer
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Managed {
			continue
		}
		switch f.Origin() {
		case snapshot.OfUser:
			if len(out) < most {
				out = append(out, f)
			}
		case snapshot.OfPackage:
			other = first(other, f)
		}
		if waits = first(waits, f); i > primitive {
			any = first(any, f)
		}
	}
	if len(out) == 0 {
		if f := first(first(other, any), waits); f != nil {
			out = append(out, f)
		}
	}
	return out
}

func first(a, b *snapshot.Frame) *snapshot.Frame {
	if a != nil {
		return a
	}
	return b
}

// states prints what threads wait for: locks first.
func (p *graphPrinter) states() {
	var locks, others, ends, held []*snapshot.LockState
	for i := range p.g.Locks {
		switch l := &p.g.Locks[i]; {
		case len(l.Waiters) == 0:
			held = append(held, l)
		case l.IsLock():
			locks = append(locks, l)
		case isEnd(p.s, l):
			ends = append(ends, l)
		default:
			others = append(others, l)
		}
	}
	p.section("Locks that threads wait for:", locks)
	p.permitQueues()
	p.section("What else threads wait for:", others)
	if p.all {
		p.section("The main thread waits for the end of Main:", ends)
		p.section("Locks that nobody waits for:", held)
	}
}

// isEnd reports whether the only waiter is the idle main thread of a program with an asynchronous Main: this thread
// waits as long as the program runs.
func isEnd(s *snapshot.Snapshot, l *snapshot.LockState) bool {
	return len(l.Waiters) == 1 && l.Blocked <= 1 && s.Threads[l.Waiters[0].Thread].Idle() == snapshot.IdleMain
}

func (p *graphPrinter) section(title string, list []*snapshot.LockState) {
	if len(list) == 0 {
		return
	}
	p.paint(bold, title)
	p.end()
	for _, l := range list {
		p.state(l)
	}
	p.end()
}

// state prints a lock, its owner and its waiters.
func (p *graphPrinter) state(l *snapshot.LockState) {
	p.text("  ")
	p.paint(bold, stateName(l))
	if l.Owner != nil && l.Kind != snapshot.ThreadLock {
		p.property(plain, ownerText(l))
	}
	if len(l.Readers) > 0 {
		p.property(plain, readersText(l))
	}
	if notes := stateNotes(l); notes != "" {
		p.property(dim, notes)
	}
	p.end()
	if len(l.Holders) > 0 {
		p.paint(plain, "    "+holdersText(p.s, l.Kind, l.Holders))
		p.end()
		p.holder(l.Holders[0])
	}
	if l.Owner != nil {
		if t := p.thread(l.Owner.OSThreadID); t != nil {
			p.where(t, 6)
		}
	}
	shown := l.Waiters
	if !p.all {
		shown = shown[:min(len(shown), shownWaiters)]
	}
	for i := range shown {
		p.waiter(l, &shown[i])
	}
	if left := len(l.Waiters) - len(shown); left > 0 {
		p.paint(dim, fmt.Sprintf("    and %d more (--all shows them)", left))
		p.end()
	}
}

// holder prints the place of a permit's holder.
func (p *graphPrinter) holder(of snapshot.WaitNode) {
	if of.Thread >= 0 {
		p.where(&p.s.Threads[of.Thread], 6)
		return
	}
	p.awaitFrames(&p.s.Awaits[of.Await], 6)
}

// waiter prints a thread that waits for a lock, and the thread's first frame of own code.
func (p *graphPrinter) waiter(l *snapshot.LockState, w *snapshot.Waiter) {
	p.text("    " + threadName(p.s, w.Thread) + " waits")
	var notes []string
	if k := w.Wait.Kind; l.Kind == snapshot.ReaderWriterLock || k == snapshot.MonitorWait {
		notes = append(notes, string(k))
	}
	if w.Wait.Timeout > 0 {
		notes = append(notes, "at most "+spanText(w.Wait.Timeout))
	}
	if !w.Wait.Certain {
		notes = append(notes, "uncertain")
	}
	if len(notes) > 0 {
		p.paint(dim, " ("+strings.Join(notes, ", ")+")")
	}
	p.end()
	if text := tasksText(w.Wait); text != "" {
		p.text("      for" + strings.TrimPrefix(text, ":"))
		p.end()
	}
	for _, f := range ownFrames(&p.s.Threads[w.Thread], 1) {
		p.text("      ")
		p.managed(f, 6)
		p.end()
	}
}

func (p *graphPrinter) thread(id int) *snapshot.Thread {
	for i := range p.s.Threads {
		if t := &p.s.Threads[i]; t.OSThreadID == id && id != 0 {
			return t
		}
	}
	return nil
}

// stateName names a lock: "Monitor of Shop.Order 0x7f10".
func stateName(l *snapshot.LockState) string {
	name := lockText(stateWait(l))
	switch l.Kind {
	case snapshot.MonitorLock:
		return "Monitor of " + name
	case snapshot.ThreadLock:
		if l.Owner == nil {
			return "the end of a thread"
		}
		return "the end of " + threadText(l.Owner)
	}
	return name
}

// stateWait is a wait for a lock, made to name the lock.
func stateWait(l *snapshot.LockState) *snapshot.Wait {
	w := &snapshot.Wait{Object: l.Object, Type: l.Type, Of: l.Of, Field: l.Field, Method: l.Method}
	switch {
	case l.Kind == snapshot.StaticConstructor:
		w.Kind = snapshot.WaitRuntime
	case len(l.Waiters) > 0:
		w.Kind = l.Waiters[0].Wait.Kind
	case l.Kind == snapshot.MonitorLock:
		w.Kind = snapshot.MonitorEnter
	}
	return w
}

func ownerText(l *snapshot.LockState) string {
	return certainOwnerText(l) + doubt(l.Certain)
}

func certainOwnerText(l *snapshot.LockState) string {
	switch {
	case l.Owner.OSThreadID == 0 && l.Ended():
		return "held by a thread that has ended"
	case l.Kind == snapshot.TaskLock || l.Kind == snapshot.StaticConstructor:
		return hasIt(l.Waiters[0].Wait) + " " + threadText(l.Owner)
	case l.Recursion > 1:
		return "held by " + threadText(l.Owner) + fmt.Sprintf(" %d times", l.Recursion)
	}
	return "held by " + threadText(l.Owner)
}

// readersText names the threads that hold a lock to read.
func readersText(l *snapshot.LockState) string {
	const most = 4
	var names []string
	for i := range l.Readers[:min(most, len(l.Readers))] {
		names = append(names, threadText(&l.Readers[i]))
	}
	if left := len(l.Readers) - most; left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return "read by " + strings.Join(names, ", ")
}

func stateNotes(l *snapshot.LockState) string {
	var notes []string
	if n := len(l.Waiters); n > 0 {
		notes = append(notes, strconv.Itoa(n)+display.Plural(n, " waiter", " waiters"))
	}
	if l.Blocked > len(l.Waiters) {
		notes = append(notes, strconv.Itoa(l.Blocked)+" threads cannot go on")
	}
	if l.Detail != "" && l.Kind != snapshot.StaticConstructor {
		notes = append(notes, display.Clean(l.Detail))
	}
	return strings.Join(notes, ", ")
}

// graphSummary is the last line.
func graphSummary(s *snapshot.Snapshot, g *snapshot.WaitGraph) string {
	locks, waited, held := 0, 0, 0
	for i := range g.Locks {
		switch l := &g.Locks[i]; {
		case len(l.Waiters) == 0:
			held++
		case l.IsLock():
			locks++
		case isEnd(s, l):
		default:
			waited++
		}
	}
	out := "no deadlock"
	if n := len(g.Deadlocks); n > 0 {
		out = strconv.Itoa(n) + display.Plural(n, " deadlock", " deadlocks")
	}
	if n := len(g.Suspected); n > 0 {
		out += fmt.Sprintf(", %d suspected", n)
	}
	if n := len(g.Likely); n > 0 {
		out += fmt.Sprintf(", %d likely", n)
	}
	out += fmt.Sprintf(" · %d %s waited for", locks, display.Plural(locks, "lock is", "locks are"))
	if waited > 0 {
		out += fmt.Sprintf(", and %d other %s", waited, display.Plural(waited, "thing", "things"))
	}
	if held > 0 {
		out += fmt.Sprintf("; %d more %s held", held, display.Plural(held, "lock is", "locks are"))
	}
	out += fmt.Sprintf(" · %d threads", len(s.Threads))
	if n := s.Missing(); n > 0 {
		out += fmt.Sprintf(", %d without a stack", n)
	}
	return out + partialHolds(s)
}
