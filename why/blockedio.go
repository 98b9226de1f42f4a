package why

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// judgeBlockedIO looks for threads with one read or write all the time. A write waits for the reader at the other end,
// and nothing else; a read may be idle, unless others wait for the reader, or the process at the other end waits in
// turn.
func judgeBlockedIO(e *evidence) []profile.Verdict {
	var best []profile.Verdict
	most := -1
	for i := range e.Blocked {
		c := &e.Blocked[i]
		behind := e.behindCall(c)
		if slices.ContainsFunc(c.Ends, func(o gather.FarEnd) bool { return o.Ready }) {
			continue
		}
		if !c.Writes && !c.Circular(e.Process.PID) && len(behind.threads)-behind.queue < fewWaiters ||
			c.Awaited && behind.none() {
			continue
		}
		if n := behind.count(); n > most {
			most, best = n, []profile.Verdict{callVerdict(c, e, &behind)}
		}
	}
	return best
}

// blockedBehind are threads and async methods: none can go on before a call returns.
type blockedBehind struct {
	threads []snapshot.ThreadRef
	queue   int              // of threads: those that most likely wait for the thread of the call to take something
	example *snapshot.Thread // nil: no thread
	methods int              // async methods
	frames  []snapshot.Frame // of a method
}

func (v *blockedBehind) count() int { return len(v.threads) + v.methods }
func (v *blockedBehind) none() bool { return v.count() == 0 }

func (v *blockedBehind) add(t *snapshot.Thread) {
	v.threads = append(v.threads, gather.Ref(t))
	if v.example == nil || gather.OwnFrame(v.example.Frames) == nil {
		v.example = t
	}
}

// behindCall finds who waits for a call of the process, or for the end of a child.
func (e *evidence) behindCall(c *gather.BlockedCall) (v blockedBehind) {
	threads := e.Threads()
	if c.Awaited {
		for i := range threads {
			if w := &threads[i]; w.Unmoved &&
				w.All(func(t *snapshot.Thread) bool { return phrase.WaitsForExit(t.Frames) }) {
				v.add(w.Last())
			}
		}
		e.waitingMethods(&v, func(ch *snapshot.TaskChain) bool { return phrase.WaitsForExit(ch.Frames) })
		return v
	}
	snap := e.Last().Snap
	at := slices.IndexFunc(snap.Threads, func(t snapshot.Thread) bool { return t.OSThreadID == c.Thread.OSThreadID })
	if at < 0 {
		return v
	}
	unmoved := unmovedOf(threads)
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
	e.waitingMethods(&v, func(ch *snapshot.TaskChain) bool {
		own := gather.OwnFrame(ch.Frames)
		return gather.QueuedFor(ch.WaitsFor) != "" && own != nil && types[gather.OuterType(own.Method)]
	})
	return v
}

// waitingMethods counts the async methods that wait in chains of a kind.
func (e *evidence) waitingMethods(v *blockedBehind, is func(*snapshot.TaskChain) bool) {
	l := e.LastFlight()
	if l == nil {
		return
	}
	for i := range l.Tasks.Chains {
		if c := &l.Tasks.Chains[i]; c.State == snapshot.TaskWaiting && is(c) {
			if v.methods += c.Count; v.frames == nil {
				v.frames = c.Frames
			}
		}
	}
}

// queuesFor reports whether a thread most likely waits for another thread to take something, or to make room: the
// method that waits belongs to a type with a method on the other thread's stack.
func queuesFor(t *snapshot.Thread, types map[string]bool) bool {
	w := t.Wait
	if w == nil || gather.Resting(t) {
		return false
	}
	switch w.Kind {
	case snapshot.MonitorWait, snapshot.CollectionAdd, snapshot.SemaphoreWait:
	default:
		return false // an event may be anything, the end of the program for example
	}
	if !strings.Contains(w.Field, " ") && types[gather.OuterType(w.Field)] {
		return true
	}
	for i := range t.Frames {
		if f := &t.Frames[i]; f.Kind == snapshot.Managed && !waitsItself(f) {
			return types[gather.OuterType(f.Method)]
		}
	}
	return false
}

// waitsItself reports whether a method is .NET's own way of waiting.
func waitsItself(f *snapshot.Frame) bool {
	return f.Module == "System.Private.CoreLib" || f.Module == "System.Collections.Concurrent"
}

// typesOf are the types of the methods on a stack, other than those of .NET's core.
func typesOf(frames []snapshot.Frame) map[string]bool {
	out := map[string]bool{}
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind != snapshot.Managed || waitsItself(f) || f.Module == "System.Console":
		case f.Origin() == snapshot.OfFramework && strings.HasPrefix(f.Module, "System."):
		default:
			out[gather.OuterType(f.Method)] = true
		}
	}
	delete(out, "")
	return out
}

func callVerdict(c *gather.BlockedCall, e *evidence, behind *blockedBehind) profile.Verdict {
	v := profile.Verdict{Cause: profile.CauseBlockedIO, Certainty: profile.Likely}
	if c.Awaited {
		v.Text = fmt.Sprintf("%s, a child of the process, %s %s, and has not moved.", c.Caller(), c.Verb(), c.What)
	} else {
		in := ""
		if c.Stack != nil {
			in = ", in " + gather.Place(c.Stack.Frames) + ","
		}
		v.Text = fmt.Sprintf("%s %s %s%s and has not moved for %s.", c.Caller(), c.Verb(), c.What, in,
			phrase.Seconds(e.Span()))
	}
	if n := e.likeCall(c); n > 0 {
		v.Text += fmt.Sprintf(" %s likewise blocked there.", phrase.Counted(n, "other thread is", "other threads are"))
	}
	v.Text += c.EndText()
	if c.Circular(e.Process.PID) {
		v.Text += " Each waits for the other."
	}
	v.Text += behind.text(c)
	if c.Stack != nil {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: phrase.ThreadName(c.Thread) + phrase.WaitPhrase(c.Stack) + ":", Frames: c.Stack.Frames,
			Threads: []snapshot.ThreadRef{c.Thread},
		})
	}
	v.Evidence = append(v.Evidence, c.EndEvidence()...)
	v.Evidence = append(v.Evidence, behind.evidence()...)
	v.Commands = append(v.Commands, "clrsnap stack "+e.Again())
	for _, p := range c.FarProcesses() {
		v.Commands = append(v.Commands, fmt.Sprintf("clrsnap why %d", p))
	}
	return v
}

// likeCall counts the other threads that have stayed in equal calls in all looks.
func (e *evidence) likeCall(c *gather.BlockedCall) (n int) {
	if c.Stack == nil || !c.Own {
		return 0
	}
	calls, threads := managed(c.Stack.Frames), e.Threads()
	for i := range threads {
		if t := threads[i].Last(); threads[i].Unmoved && t.OSThreadID != c.Thread.OSThreadID && t.Wait != nil &&
			t.Wait.Kind == snapshot.WaitIO && slices.Equal(managed(t.Frames), calls) {
			n++
		}
	}
	return n
}

// managed are the names of the managed methods on a stack.
func managed(frames []snapshot.Frame) (out []string) {
	for i := range frames {
		if frames[i].Kind == snapshot.Managed {
			out = append(out, frames[i].Method)
		}
	}
	return out
}

// text says who waits for the call. It begins with a blank.
func (v *blockedBehind) text(c *gather.BlockedCall) string {
	if v.none() {
		return ""
	}
	var words []string
	if n := len(v.threads); n > 0 {
		words = append(words, phrase.ThreadsOf(n))
	}
	if v.methods > 0 {
		words = append(words, phrase.Counted(v.methods, "async method", "async methods"))
	}
	who := phrase.List(words)
	if c.Awaited {
		text := fmt.Sprintf(" %s of this process %s for the end of a child", who,
			phrase.Verb(v.count(), "waits", "wait"))
		if v.example != nil {
			text += ", in " + gather.Place(v.example.Frames)
		} else {
			text += ", in " + gather.Place(v.frames)
		}
		return text + ". A child that cannot write does not end: its output is to be read while the process waits."
	}
	likely := ""
	if v.queue+v.methods > 0 {
		likely = " most likely"
	}
	return fmt.Sprintf(" %s%s %s for %s, directly or not.", who, likely, phrase.Verb(v.count(), "waits", "wait"),
		c.Caller())
}

func (v *blockedBehind) evidence() (out []profile.Evidence) {
	if v.example != nil {
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s, such as %s, which%s:", phrase.ThreadsWait(len(v.threads)),
				phrase.ThreadName(gather.Ref(v.example)),
				phrase.WaitPhrase(v.example)),
			Frames: v.example.Frames, Threads: v.threads,
		})
	}
	if v.methods > 0 {
		out = append(out, profile.Evidence{
			Text:   phrase.Counted(v.methods, "async method waits", "async methods wait") + " here:",
			Frames: v.frames,
		})
	}
	return out
}
