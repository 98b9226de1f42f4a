package why

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/profile"
)

// judgeBlockedIO looks for threads with one read or write all the time. A write waits for the reader at the other end,
// and nothing else; a read may be idle, unless others wait for the reader, or the process at the other end waits in
// turn.
func judgeBlockedIO(e *evidence) []profile.Verdict {
	var best []profile.Verdict
	most := -1
	for i := range e.blocked {
		c := &e.blocked[i]
		behind := e.behindCall(c)
		if slices.ContainsFunc(c.ends, func(o farEnd) bool { return o.ready }) {
			continue
		}
		if !c.Writes && !c.circular(e.process.PID) && len(behind.threads)-behind.queue < fewWaiters ||
			c.awaited && behind.none() {
			continue
		}
		if n := behind.count(); n > most {
			most, best = n, []profile.Verdict{c.verdict(e, &behind)}
		}
	}
	return best
}

// circular reports whether the process at the other end is blocked in turn, in a call to a process before: neither
// goes on.
func (c *blockedCall) circular(first int) bool {
	seen := map[int]bool{first: true, c.pid: true}
	for at := c; at != nil; {
		i := slices.IndexFunc(at.ends, func(o farEnd) bool { return o.next != nil })
		if i < 0 {
			return at != c && slices.ContainsFunc(at.ends, func(o farEnd) bool { return seen[o.pid] })
		}
		at = at.ends[i].next
		if seen[at.pid] {
			return true
		}
		seen[at.pid] = true
		if slices.ContainsFunc(at.ends, func(o farEnd) bool { return seen[o.pid] }) {
			return true
		}
	}
	return false
}

// blockedBehind are threads and async methods: none can go on before a call returns.
type blockedBehind struct {
	threads []profile.ThreadRef
	queue   int             // of threads: those that most likely wait for the thread of the call to take something
	example *profile.Thread // nil: no thread
	methods int             // async methods
	frames  []profile.Frame // of a method
}

func (v *blockedBehind) count() int { return len(v.threads) + v.methods }
func (v *blockedBehind) none() bool { return v.count() == 0 }

func (v *blockedBehind) add(t *profile.Thread) {
	v.threads = append(v.threads, ref(t))
	if v.example == nil || ownFrame(v.example.Frames) == nil {
		v.example = t
	}
}

// behindCall finds who waits for a call of the process, or for the end of a child.
func (e *evidence) behindCall(c *blockedCall) (v blockedBehind) {
	threads := e.threads()
	if c.awaited {
		for i := range threads {
			if w := &threads[i]; w.unmoved && w.all(func(t *profile.Thread) bool { return waitsForExit(t.Frames) }) {
				v.add(w.last())
			}
		}
		e.waitingMethods(&v, func(ch *profile.TaskChain) bool { return waitsForExit(ch.Frames) })
		return v
	}
	snap := e.last().snap
	at := slices.IndexFunc(snap.Threads, func(t profile.Thread) bool { return t.OSThreadID == c.thread.OSThreadID })
	if at < 0 {
		return v
	}
	unmoved := map[int]bool{}
	for i := range threads {
		unmoved[threads[i].last().OSThreadID] = threads[i].unmoved
	}
	types := typesOf(snap.Threads[at].Frames)
	behind := map[int]bool{at: true}
	for i := range snap.Threads {
		if t := &snap.Threads[i]; i != at && unmoved[t.OSThreadID] && queuesFor(t, types) {
			behind[i] = true
			v.queue++
			v.add(t)
		}
	}
	edges := snap.WaitGraph().Edges
	for more := true; more; {
		more = false
		for _, x := range edges {
			if t := &snap.Threads[x.Thread]; behind[x.For] && !behind[x.Thread] && unmoved[t.OSThreadID] {
				behind[x.Thread], more = true, true
				v.add(t)
			}
		}
	}
	e.waitingMethods(&v, func(ch *profile.TaskChain) bool {
		own := ownFrame(ch.Frames)
		return queuedFor(ch.WaitsFor) != "" && own != nil && types[outerType(own.Method)]
	})
	return v
}

// waitingMethods counts the async methods that wait in chains of a kind.
func (e *evidence) waitingMethods(v *blockedBehind, is func(*profile.TaskChain) bool) {
	l := e.lastFlight()
	if l == nil {
		return
	}
	for i := range l.Tasks.Chains {
		if c := &l.Tasks.Chains[i]; c.State == profile.TaskWaiting && is(c) {
			if v.methods += c.Count; v.frames == nil {
				v.frames = c.Frames
			}
		}
	}
}

// queuesFor reports whether a thread most likely waits for another thread to take something, or to make room: the
// method that waits belongs to a type with a method on the other thread's stack.
func queuesFor(t *profile.Thread, types map[string]bool) bool {
	w := t.Wait
	if w == nil || resting(t) {
		return false
	}
	switch w.Kind {
	case profile.MonitorWait, profile.CollectionAdd, profile.SemaphoreWait:
	default:
		return false // an event may be anything, the end of the program for example
	}
	if !strings.Contains(w.Field, " ") && types[outerType(w.Field)] {
		return true
	}
	for i := range t.Frames {
		if f := &t.Frames[i]; f.Kind == profile.Managed && !waitsItself(f) {
			return types[outerType(f.Method)]
		}
	}
	return false
}

// waitsItself reports whether a method is .NET's own way of waiting.
func waitsItself(f *profile.Frame) bool {
	return f.Module == "System.Private.CoreLib" || f.Module == "System.Collections.Concurrent"
}

// typesOf are the types of the methods on a stack, other than those of .NET's core.
func typesOf(frames []profile.Frame) map[string]bool {
	out := map[string]bool{}
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind != profile.Managed || waitsItself(f) || f.Module == "System.Console":
		case f.Origin() == profile.OfFramework && strings.HasPrefix(f.Module, "System."):
		default:
			out[outerType(f.Method)] = true
		}
	}
	delete(out, "")
	return out
}

// outerType is the type of a member's name, without the types inside: "Shop.Log" of "Shop.Log+<>c.<Run>b__0".
func outerType(member string) string {
	if outer, _, nested := strings.Cut(member, "+"); nested {
		return outer
	}
	owner, _, _ := cutLast(strings.TrimSuffix(member, ".ctor"), ".")
	return owner
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// caller names the thread or the process of a call.
func (c *blockedCall) caller() string {
	if c.own {
		return threadName(c.thread)
	}
	return fmt.Sprintf("%s (%d)", c.command, c.pid)
}

func (c *blockedCall) verb() string { return c.either("writes to", "reads from") }

// either chooses a word by what the call does.
func (c *blockedCall) either(writes, reads string) string {
	if c.Writes {
		return writes
	}
	return reads
}

func (c *blockedCall) verdict(e *evidence, behind *blockedBehind) profile.Verdict {
	v := profile.Verdict{Cause: profile.CauseBlockedIO, Certainty: profile.Likely}
	if c.awaited {
		v.Text = fmt.Sprintf("%s, a child of the process, %s %s, and has not moved.", c.caller(), c.verb(), c.what)
	} else {
		in := ""
		if c.stack != nil {
			in = ", in " + method(ownFrame(c.stack.Frames)) + ","
		}
		v.Text = fmt.Sprintf("%s %s %s%s and has not moved for %s.", c.caller(), c.verb(), c.what, in,
			seconds(e.span()))
	}
	v.Text += c.endText()
	if c.circular(e.process.PID) {
		v.Text += " Each waits for the other."
	}
	v.Text += behind.text(c)
	if c.stack != nil {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: threadName(c.thread) + waitPhrase(c.stack) + ":", Frames: c.stack.Frames,
			Threads: []profile.ThreadRef{c.thread},
		})
	}
	v.Evidence = append(v.Evidence, c.endEvidence()...)
	v.Evidence = append(v.Evidence, behind.evidence()...)
	v.Commands = append(v.Commands, "clrsnap stack "+e.again())
	for _, p := range c.farProcesses() {
		v.Commands = append(v.Commands, fmt.Sprintf("clrsnap why %d", p))
	}
	return v
}

// farProcesses are the other .NET processes at the ends.
func (c *blockedCall) farProcesses() (out []int) {
	for i := range c.ends {
		o := &c.ends[i]
		if o.stack != nil && !o.own {
			out = append(out, o.pid)
		}
		if o.next != nil {
			out = append(out, o.next.farProcesses()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// endText says in sentences who has the other end, and does what. Each begins with a blank.
func (c *blockedCall) endText() string {
	if len(c.ends) == 0 {
		switch {
		case c.IsTerminal():
			return " The terminal takes nothing: its output is stopped (Ctrl-S), or the program that shows " +
				"the output does not read."
		case c.IsSocket() && c.hidden:
			return " The other end was not found on this machine, and " + c.either("takes nothing.", "sends nothing.")
		}
		return c.either(" Nobody reads what it writes", " Nobody writes what it reads") +
			", as far as can be seen from here."
	}
	var text strings.Builder
	for i := range c.ends[:min(len(c.ends), maxEnds)] {
		o := &c.ends[i]
		who := fmt.Sprintf("%s (%d), at the other end,", o.command, o.pid)
		switch {
		case o.own:
			fmt.Fprintf(&text, " This process has the other end, and none of its threads %s it.",
				c.either("reads", "writes to"))
		case o.next != nil:
			fmt.Fprintf(&text, " %s is itself blocked: it %s %s.", who, o.next.verb(), o.next.what)
			text.WriteString(o.next.endText())
		default:
			fmt.Fprintf(&text, " %s %s: it %s.", who, c.either("does not read", "writes nothing"), o.does)
		}
	}
	if left := len(c.ends) - maxEnds; left > 0 {
		fmt.Fprintf(&text, " %s the other end as well.", counted(left, "more process has", "more processes have"))
	}
	return text.String()
}

// maxEnds bounds the processes that are named at one end.
const maxEnds = 2

// endEvidence are the stacks at the other ends.
func (c *blockedCall) endEvidence() (out []profile.Evidence) {
	for i := range c.ends[:min(len(c.ends), maxEnds)] {
		o := &c.ends[i]
		if o.stack != nil {
			out = append(out, profile.Evidence{
				Text: fmt.Sprintf("%s of %s (%d)%s:", threadName(ref(o.stack)), o.command, o.pid,
					waitPhrase(o.stack)),
				Frames: o.stack.Frames,
			})
		}
		if o.next != nil {
			out = append(out, o.next.endEvidence()...)
		}
	}
	return out
}

// text says who waits for the call. It begins with a blank.
func (v *blockedBehind) text(c *blockedCall) string {
	if v.none() {
		return ""
	}
	var words []string
	if n := len(v.threads); n > 0 {
		words = append(words, threadsOf(n))
	}
	if v.methods > 0 {
		words = append(words, counted(v.methods, "async method", "async methods"))
	}
	who := list(words)
	if c.awaited {
		text := fmt.Sprintf(" %s of this process %s for the end of a child", who, verb(v.count(), "waits", "wait"))
		if v.example != nil {
			text += ", in " + method(ownFrame(v.example.Frames))
		} else {
			text += ", in " + method(ownFrame(v.frames))
		}
		return text + ". A child that cannot write does not end: its output is to be read while the process waits."
	}
	likely := ""
	if v.queue+v.methods > 0 {
		likely = " most likely"
	}
	return fmt.Sprintf(" %s%s %s for %s, directly or not.", who, likely, verb(v.count(), "waits", "wait"), c.caller())
}

func (v *blockedBehind) evidence() (out []profile.Evidence) {
	if v.example != nil {
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s, such as %s, which%s:", waitNow(len(v.threads)), threadName(ref(v.example)),
				waitPhrase(v.example)),
			Frames: v.example.Frames, Threads: v.threads,
		})
	}
	if v.methods > 0 {
		out = append(out, profile.Evidence{
			Text:   counted(v.methods, "async method waits", "async methods wait") + " here:",
			Frames: v.frames,
		})
	}
	return out
}
