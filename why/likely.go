package why

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// judgeLikely looks for deadlocks with likely wait edges.
func judgeLikely(e *evidence) []profile.Verdict {
	if e.Likely == nil {
		return nil
	}
	var out []profile.Verdict
	list := e.Likely.WaitGraph().Likely
	for i := range list {
		if len(out) == maxDeadlocks {
			break
		}
		if d := &list[i]; e.lasts(d) {
			out = append(out, e.likelyVerdict(d))
		}
	}
	return out
}

// lasts reports whether the members of a likely deadlock were there before, and whether its threads have waited in
// all looks.
func (e *evidence) lasts(d *snapshot.LikelyDeadlock) bool {
	if e.Core() {
		return true
	}
	if e.LikelyBefore == nil {
		return false
	}
	key := partiesKey(e.Likely, d)
	before := e.LikelyBefore.WaitGraph().Likely
	if !slices.ContainsFunc(before, func(o snapshot.LikelyDeadlock) bool {
		return partiesKey(e.LikelyBefore, &o) == key
	}) {
		return false
	}
	still := e.stillWaiting()
	return !slices.ContainsFunc(d.Members, func(p snapshot.WaitNode) bool {
		return p.Thread >= 0 && !still[e.Likely.Threads[p.Thread].OSThreadID]
	})
}

// partiesKey is equal for circles of the same threads and methods. The collector may have moved the objects.
func partiesKey(s *snapshot.Snapshot, d *snapshot.LikelyDeadlock) string {
	var names []string
	for _, p := range d.Members {
		if p.Thread >= 0 {
			names = append(names, fmt.Sprint(s.Threads[p.Thread].OSThreadID))
		} else {
			names = append(names, awaitName(&s.Awaits[p.Await]))
		}
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

func awaitName(a *snapshot.Await) string {
	if len(a.Frames) == 0 {
		return "an async method"
	}
	return a.Frames[0].Display
}

func (e *evidence) likelyVerdict(d *snapshot.LikelyDeadlock) profile.Verdict {
	s := e.Likely
	var words []string
	chains := chainsOf(s, d.Members)
	for i, c := range chains {
		words = append(words, chainText(s, c, chains[(i+1)%len(chains)][0]))
	}
	v := profile.Verdict{
		Cause: profile.CauseDeadlock, Certainty: profile.Likely,
		Text:     "Deadlock, most likely: " + strings.Join(words, "; ") + ".",
		Commands: []string{"clrsnap locks " + e.Again(), "clrsnap tasks " + e.Again()},
	}
	if !e.Core() {
		over := gather.LikelyGap
		if still := e.stillWaiting(); !slices.ContainsFunc(d.Members, func(m snapshot.WaitNode) bool {
			return m.Thread >= 0 && !still[s.Threads[m.Thread].OSThreadID]
		}) && slices.ContainsFunc(d.Members, func(m snapshot.WaitNode) bool { return m.Thread >= 0 }) {
			over = e.Span()
		}
		v.Text += fmt.Sprintf(" None of them has gone on for at least %s.", phrase.Seconds(over))
	}
	for _, c := range chains[:min(len(chains), maxShown)] {
		v.Evidence = append(v.Evidence, partyEvidence(s, c[len(c)-1])) // it has the stack of all
	}
	for _, p := range d.Others[:min(len(d.Others), maxShown)] {
		v.Evidence = append(v.Evidence, partyEvidence(s, p))
	}
	if n := len(d.Victims); n > 0 {
		v.Text += fmt.Sprintf(" %s for them.", more(n))
		v.Evidence = append(v.Evidence, victims(s, d.Victims))
	}
	return v
}

// chainsOf divides the members of a circle: a chain is suspended methods, each of which awaits the next one's task, or
// a single thread.
func chainsOf(s *snapshot.Snapshot, members []snapshot.WaitNode) (out [][]snapshot.WaitNode) {
	awaits := func(p, next snapshot.WaitNode) bool {
		n := s.LikelyEdgeOf(p, next)
		return p.Thread < 0 && next.Thread < 0 && n != nil && n.Kind == snapshot.TaskLock
	}
	n := len(members)
	first := 0 // of a chain
	for first < n-1 && awaits(members[(first+n-1)%n], members[first]) {
		first++
	}
	for i := range n {
		p := members[(first+i)%n]
		if i > 0 && awaits(members[(first+i+n-1)%n], p) {
			out[len(out)-1] = append(out[len(out)-1], p)
		} else {
			out = append(out, []snapshot.WaitNode{p})
		}
	}
	return out
}

// chainText describes the wait of a chain, and the next member's part in the wait. .NET's own methods are left out.
func chainText(s *snapshot.Snapshot, c []snapshot.WaitNode, next snapshot.WaitNode) string {
	var names []string
	last := c[len(c)-1]
	who, does := partyText(s, last, next)
	if last.Thread >= 0 {
		return who + does
	}
	for _, p := range c {
		if a := &s.Awaits[p.Await]; len(a.Frames) > 0 && a.Frames[0].Origin() != snapshot.OfFramework {
			names = append(names, phrase.Method(&a.Frames[0]))
		}
	}
	switch len(names) {
	case 0:
		return who + does
	case 1:
		return "the suspended method " + names[0] + does
	}
	others := strings.Join(names[1:], ", which awaits ")
	return "the suspended method " + names[0] + " awaits " + others + ", which" + does
}

// partyText names a member, and describes the member's wait and the next member's part in the wait.
func partyText(s *snapshot.Snapshot, p, next snapshot.WaitNode) (who, does string) {
	n := s.LikelyEdgeOf(p, next)
	if p.Thread >= 0 {
		t := &s.Threads[p.Thread]
		named := t.Wait != nil && t.Wait.Field != ""
		need := needPhrase(s, n, next, !named)
		if n != nil && n.Kind == snapshot.TaskLock && t.Wait != nil && t.Wait.Method != "" {
			need = "" // already named
		}
		return threadIn(t), phrase.WaitPhrase(t) + need
	}
	a := &s.Awaits[p.Await]
	who = "the suspended method " + awaitName(a)
	if len(a.Frames) > 0 {
		who = "the suspended method " + phrase.Method(&a.Frames[0])
	}
	if n == nil {
		return who, " waits"
	}
	switch n.Kind {
	case snapshot.SemaphoreLock, snapshot.CompletionLock:
		does = " awaits " + phrase.Object(n.Type, n.Object, "an object")
	case snapshot.TaskLock:
		does = " awaits a task"
	}
	return who, does + needPhrase(s, n, next, true)
}

// needPhrase describes the holder's part in a likely wait edge: ", a permit of which … most likely holds". name: the
// field comes first, because no text has named the field yet.
func needPhrase(s *snapshot.Snapshot, n *snapshot.LikelyEdge, next snapshot.WaitNode, name bool) string {
	if n == nil {
		return "" // the wait says enough
	}
	who := "the next one"
	if next.Thread >= 0 {
		who = phrase.ThreadName(gather.Ref(&s.Threads[next.Thread]))
	} else {
		who = awaitName(&s.Awaits[next.Await])
	}
	switch n.Kind {
	case snapshot.SemaphoreLock:
		field := ""
		if n.Field != "" && name {
			field = " (" + display.Field(n.Field) + ")"
		}
		return fmt.Sprintf("%s, a permit of which %s most likely holds", field, who)
	case snapshot.ContextLock:
		return fmt.Sprintf(" could go on, but most likely only through %s on %s, which is blocked",
			display.ShortType(n.Type), who)
	case snapshot.CompletionLock:
		return fmt.Sprintf(", which %s most likely completes", who)
	}
	if next.Thread >= 0 {
		return ", run by " + who
	}
	return " of " + who
}

// partyEvidence shows the place of a member.
func partyEvidence(s *snapshot.Snapshot, p snapshot.WaitNode) profile.Evidence {
	if p.Thread >= 0 {
		return waitEvidence(&s.Threads[p.Thread])
	}
	a := &s.Awaits[p.Await]
	return profile.Evidence{Text: "The suspended method " + awaitName(a) + ", and those that await it:",
		Frames: a.Frames}
}

// holders names the likely holders of the semaphore that a thread waits for; "": nobody is known.
func (e *evidence) holders(t *snapshot.Thread) string {
	if e.Likely == nil {
		return ""
	}
	var names []string
	for i := range e.Likely.LikelyEdges {
		n := &e.Likely.LikelyEdges[i]
		if n.Waiter.Thread < 0 || e.Likely.Threads[n.Waiter.Thread].OSThreadID != t.OSThreadID {
			continue
		}
		for _, p := range n.Holders[:min(len(n.Holders), maxShown)] {
			if p.Thread >= 0 {
				names = append(names, phrase.ThreadName(gather.Ref(&e.Likely.Threads[p.Thread])))
			} else {
				names = append(names, "the suspended method "+awaitName(&e.Likely.Awaits[p.Await]))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return phrase.List(names)
}
