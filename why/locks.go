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

const (
	// A lock is a trouble with so many waiters on average, and at least so many in each look. One look of four may
	// have met a moment with fewer waiters if, by the samples, so many threads waited on average.
	manyWaiters = 3.0
	fewWaiters  = 2
	// The waiters' share of the busy threads.
	muchWaiting = 0.4
)

// convoy is a lock with waiters.
type convoy struct {
	kind     snapshot.LockKind
	typ      string
	field    string       // the field with the lock, if known
	of       string       // as in snapshot.Wait
	waiters  []int        // of the type's most wanted lock, by look
	busy     []int        // busy threads, by look
	in       gather.Tally // own methods in which threads wait
	example  *snapshot.Thread
	object   uint64
	holders  []*snapshot.Thread // in looks with a holder
	owners   []*snapshot.Thread // that the lock names, in the other looks
	threads  []snapshot.ThreadRef
	stuck    []snapshot.ThreadRef // threads that have waited the whole time and have not moved
	standing bool                 // neither has the holder moved, which does not wait for work in turn
	pooled   bool                 // one of the stuck threads is a worker of the pool
}

// stands reports whether threads have waited for the lock all the time: several threads, or one behind a holder that
// has not moved either.
func (c *convoy) stands() bool { return len(c.stuck) >= fewWaiters || len(c.stuck) > 0 && c.standing }

// judgeLocks looks for a lock that many threads wait for most of the time, or that a few threads wait for all the
// time.
func judgeLocks(e *evidence) []profile.Verdict {
	if len(e.Looks) < 3 {
		return nil
	}
	waiting, known := e.waitingForLocks()
	var worst *convoy
	for _, c := range e.convoys() {
		if (c.harmful(waiting) || c.stands()) &&
			(worst == nil || mean(c.waiters) > mean(worst.waiters)) {
			worst = c
		}
	}
	if worst == nil {
		return nil
	}
	if known && waiting < manyWaiters/2 && !worst.stands() {
		return nil // the looks found a rare state
	}
	return []profile.Verdict{worst.verdict(e, waiting, known)}
}

// convoys are the locks of all looks, by type.
func (e *evidence) convoys() map[string]*convoy {
	out := map[string]*convoy{}
	for i := range e.Looks {
		l := &e.Looks[i]
		busy := l.Busy()
		g := l.Snap.WaitGraph()
		for k := range g.Locks {
			lock := &g.Locks[k]
			var waiters []*snapshot.Thread
			for _, w := range lock.Waiters {
				if isLock(w.Wait) {
					waiters = append(waiters, &l.Snap.Threads[w.Thread])
				}
			}
			if len(waiters) == 0 {
				continue
			}
			key := string(lock.Kind) + " " + lock.Type + " " + lock.Of
			c := out[key]
			if c == nil {
				c = &convoy{kind: lock.Kind, typ: lock.Type, in: gather.Tally{}}
				out[key] = c
			}
			c.add(l, lock, waiters, i, busy)
		}
	}
	threads := e.Threads()
	for _, c := range out {
		for i := len(c.waiters); i < len(e.Looks); i++ {
			c.waiters, c.busy = append(c.waiters, 0), append(c.busy, e.Looks[i].Busy())
		}
		c.findStuck(threads)
	}
	return out
}

// findStuck finds the waiters of the last look that have not moved since the first look.
func (c *convoy) findStuck(threads []gather.Watched) {
	if c.waiters[len(c.waiters)-1] == 0 {
		return
	}
	for i := range threads {
		w := &threads[i]
		if t := gather.Ref(w.Last()); w.Unmoved && w.All(func(t *snapshot.Thread) bool { return isLock(t.Wait) }) &&
			slices.ContainsFunc(c.threads, func(o snapshot.ThreadRef) bool { return o.OSThreadID == t.OSThreadID }) {
			c.stuck = append(c.stuck, t)
			c.pooled = c.pooled || w.Last().Role == gather.WorkerRole
		}
	}
	c.alwaysOwned(len(c.waiters))
	if len(c.holders) == 0 || c.takesTurns() {
		return
	}
	holder := c.holders[len(c.holders)-1].OSThreadID
	c.standing = slices.ContainsFunc(threads, func(w gather.Watched) bool {
		wait := w.Last().Wait
		return w.Unmoved && w.Last().OSThreadID == holder && wait != nil && wait.Kind != snapshot.ThreadSleep &&
			wait.Timeout <= 0
	})
}

// add adds a look's state of the lock. Of several locks of one type the lock with the most waiters counts.
func (c *convoy) add(l *gather.Look, lock *snapshot.LockState, waiters []*snapshot.Thread, look, busy int) {
	for len(c.waiters) <= look {
		c.waiters, c.busy = append(c.waiters, 0), append(c.busy, busy)
	}
	if len(waiters) <= c.waiters[look] {
		return
	}
	c.waiters[look], c.busy[look] = len(waiters), busy
	if lock.Field != "" || lock.Object != c.object {
		c.field, c.of = lock.Field, lock.Of
	}
	c.object, c.example, c.threads = lock.Object, waiters[0], nil
	for _, t := range waiters {
		c.threads = append(c.threads, gather.Ref(t))
		c.in[gather.OwnMethod(t)]++
	}
	if h := l.Holder(lock.Object); h != nil {
		c.holders = append(c.holders, h)
	} else if lock.Owner != nil {
		c.owners = append(c.owners, l.ByID()[lock.Owner.OSThreadID])
	}
}

// alwaysOwned takes the owner that the lock names as the holder, if the lock names the same owner in all looks, and
// waiters stand.
func (c *convoy) alwaysOwned(looks int) {
	if len(c.holders) > 0 || len(c.stuck) == 0 || len(c.owners) < looks || slices.ContainsFunc(c.owners,
		func(t *snapshot.Thread) bool { return t == nil || t.OSThreadID != c.owners[0].OSThreadID }) {
		return
	}
	c.holders = c.owners
}

// harmful reports whether the lock has many waiters. waiting is how many threads waited for locks on average, by the
// samples.
func (c *convoy) harmful(waiting float64) bool {
	few := 0
	for _, n := range c.waiters {
		if n < fewWaiters {
			few++
		}
	}
	if few > 0 && (waiting < manyWaiters || few > max(len(c.waiters)/4, 1)) {
		return false
	}
	return mean(c.waiters) >= manyWaiters && mean(c.waiters) >= muchWaiting*mean(c.busy)
}

func mean(n []int) float64 {
	sum := 0
	for _, v := range n {
		sum += v
	}
	return float64(sum) / float64(max(len(n), 1))
}

// waitingForLocks is how many threads waited for locks on average, by the samples; false: not known.
func (e *evidence) waitingForLocks() (float64, bool) {
	if !gather.HasMode(e.Samples, profile.Wall) {
		return 0, false
	}
	r := e.Samples
	weight := int64(0)
	for i := range r.Samples {
		if x := &r.Samples[i]; gather.WaitsForLock(r, x) {
			weight += x.Weight
		}
	}
	return gather.AtOnce(weight, r.Duration), true
}

func (c *convoy) verdict(e *evidence, waiting float64, known bool) profile.Verdict {
	elsewhere := len(c.in) > 1
	if delete(c.in, ""); len(c.in) == 0 { // code of .NET or of packages
		elsewhere = false
	}
	in, _ := c.in.Top()
	own := gather.OwnFrame(c.example.Frames)
	place := in
	if own != nil && own.Display == in {
		place = phrase.Method(own)
	}
	if place == "" {
		place = phrase.Method(own)
	}
	if elsewhere {
		place = "in " + place + " and elsewhere"
	} else {
		place = "in " + place
	}
	lock := phrase.ObjectOf(&snapshot.Wait{Type: c.typ, Of: c.of, Object: c.object, Field: c.field}, "a lock")
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("Threads queue for a lock: %.0f of %.0f threads that are not idle wait for %s, %s.",
			mean(c.waiters), mean(c.busy), lock, place),
		Commands: []string{"clrsnap locks " + e.Again(),
			fmt.Sprintf("clrsnap record %s --event contention", e.Again())},
	}
	if n := len(c.stuck); !c.harmful(waiting) {
		v.Text = fmt.Sprintf("%s %s waited for %s for the whole look of %s, %s, and no thread has got it.",
			phrase.ThreadsOf(n), phrase.Verb(n, "has", "have"), lock, phrase.Seconds(e.Whole()), place)
	}
	v.Text += c.ofTimers(e)
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text: fmt.Sprintf("In %s, %s waited for the lock, such as %s:", phrase.Counted(len(c.waiters), "look", "looks"),
			numbers(c.waiters), phrase.ThreadName(gather.Ref(c.example))),
		Frames: c.example.Frames, Threads: c.threads,
	})
	if known {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("By samples over %s, %.1f threads waited for locks on average.",
				phrase.Seconds(e.Samples.Duration), waiting),
		})
	}
	switch seen := c.addHolder(e, &v); {
	case !seen:
		c.addInside(e, in, &v)
	case c.takesTurns(), !c.harmful(waiting) && len(c.stuck) < fewWaiters:
		v.Certainty = profile.Possible
	case c.isStandby():
		v.Certainty = profile.Possible
		v.Text += " Standbys that wait for their leader's end look the same."
	case known && waiting >= manyWaiters:
		v.Certainty = profile.Certain
	}
	c.addWaits(e, &v)
	return v
}

// timerClass begins the names of the classes of .NET whose methods call the callbacks of timers, TimerQueueTimer and
// TimerQueue (System.Private.CoreLib, Timer.cs). The JIT may inline the methods of one into those of the other.
const timerClass = "System.Threading.TimerQueue"

// ofTimers says that callbacks of timers wait for the lock. The text begins with a blank; "": no callbacks wait.
func (c *convoy) ofTimers(e *evidence) string {
	n := 0
	threads := e.Last().Snap.Threads
	for i := range threads {
		t := &threads[i]
		waits := slices.ContainsFunc(c.threads, func(o snapshot.ThreadRef) bool { return o.OSThreadID == t.OSThreadID })
		if waits && isLock(t.Wait) && gather.CallsFramework(t, timerClass) {
			n++
		}
	}
	if n < fewWaiters {
		return ""
	}
	return fmt.Sprintf(" In the last look, %d callbacks of timers wait. Callbacks pile up if they take longer than "+
		"the timer's period.", n)
}

// takesTurns reports whether the threads look like consumers of a queue that wait for work in turn.
func (c *convoy) takesTurns() bool {
	return !slices.ContainsFunc(c.holders, func(h *snapshot.Thread) bool {
		return !waitsForPermit(h) || takesElsewhere(c.example, h)
	})
}

// mostStandbys bounds the standbys of a leader.
const mostStandbys = 8

// isStandby reports whether the threads look like standbys of the holder: all have waited the whole time, in a method
// in which the holder is as well.
func (c *convoy) isStandby() bool {
	in := func(f snapshot.Frame) bool { return f.Display == gather.OwnMethod(c.example) }
	n := len(c.stuck)
	return !c.standing && !c.pooled && n <= mostStandbys && n == c.waiters[len(c.waiters)-1] && len(c.in) == 1 &&
		!slices.ContainsFunc(c.holders, func(h *snapshot.Thread) bool {
			return h.OSThreadID != c.holders[0].OSThreadID || !slices.ContainsFunc(h.Frames, in)
		})
}

// addHolder adds what the holder of the lock does.
func (c *convoy) addHolder(e *evidence, v *profile.Verdict) bool {
	if len(c.holders) == 0 {
		return false
	}
	does, exactly := gather.Tally{}, gather.Tally{}
	for _, h := range c.holders {
		does[holderDoes(h, false)]++
		exactly[holderDoes(h, true)]++
	}
	what, n := does.Top()
	for _, h := range c.holders {
		if holderDoes(h, false) != what {
			continue
		}
		exact := holderDoes(h, true)
		if exactly[exact] == n { // in no look another object
			what = exact
		}
		v.Text += fmt.Sprintf(" The holder %s, in %s (%d of %s).", what, phrase.Method(gather.OwnFrame(h.Frames)), n,
			phrase.Counted(len(c.holders), "look", "looks"))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text:   fmt.Sprintf("%s held the lock and %s:", phrase.ThreadName(gather.Ref(h)), exact),
			Frames: h.Frames, Threads: []snapshot.ThreadRef{gather.Ref(h)},
		})
		return true
	}
	return false
}

// inside is the work of threads in the method that takes the lock, outside their waits.
type inside struct {
	callee string // the callee of the own method
	node   int32  // of the own method
	leaf   int32
	weight int64
}

// addInside says what threads do in the method of their wait while they do not wait, by the samples. The work need
// not happen under the lock.
func (c *convoy) addInside(e *evidence, in string, v *profile.Verdict) {
	r := e.Samples
	if in == "" || !gather.HasMode(r, profile.Wall) {
		return
	}
	by, all := map[string]*inside{}, int64(0)
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Wall || gather.InLock(r, x.Node) || !below(r, x.Node, in) {
			continue
		}
		all += x.Weight
		callee, own := calledByOwn(r, x.Node)
		key := callee + " in " + r.Function(own).Display
		if by[key] == nil {
			by[key] = &inside{callee: callee, node: own, leaf: x.Node}
		}
		by[key].weight += x.Weight
	}
	var most *inside
	for _, s := range by {
		if most == nil || s.weight > most.weight || s.weight == most.weight && s.node < most.node {
			most = s
		}
	}
	if most == nil || 2*most.weight < all || most.callee == "" {
		return
	}
	own := (&gather.Site{Node: most.node}).Frame(r)
	share := phrase.Percent(float64(most.weight) / float64(all))
	v.Text += fmt.Sprintf(" Besides waiting for the lock, threads in that method spend %s of the time in %s, "+
		"below %s.", share,
		most.callee, phrase.Method(own))
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text:   fmt.Sprintf("%s of what %s does besides waiting for the lock, by samples:", share, in),
		Frames: gather.Frames(r, most.leaf),
	})
}

// below reports whether a stack has a method.
func below(r *profile.Recording, leaf int32, display string) bool {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		if r.Function(n).Display == display {
			return true
		}
	}
	return false
}

// calledByOwn returns the callee of the own code nearest to the leaf, "" if there is no callee, and the node of the
// own code.
func calledByOwn(r *profile.Recording, leaf int32) (callee string, own int32) {
	own = gather.OwnNode(r, leaf)
	for n := leaf; n > 0 && n != own; n = r.Nodes[n].Parent {
		if f := r.Function(n); f.Kind == snapshot.Managed {
			callee = f.Display
		}
	}
	return callee, own
}

// holderDoes says what a thread does, without the details of the moment. The address of the awaited object is part of
// the text if exactly is set.
func holderDoes(t *snapshot.Thread, exactly bool) string {
	w := t.Wait
	switch {
	case w == nil && t.State == "running":
		return "runs"
	case w == nil:
		return "is " + t.State
	case w.Kind == snapshot.ThreadSleep:
		return "sleeps"
	case w.Kind == snapshot.WaitIO && w.Target != "":
		return "waits for input or output (" + w.Target + ")"
	case w.Kind == snapshot.TaskWait:
		return "waits for a task"
	case w.Kind.OfTasks():
		return "waits for several tasks"
	case w.Kind == snapshot.ThreadJoin:
		return "waits for the end of a thread"
	case phrase.WaitPhrases[w.Kind] != "":
		thing := *w
		if !exactly {
			thing.Object = 0
		}
		return strings.Replace(phrase.WaitPhrases[w.Kind], "%s", phrase.ObjectOf(&thing, display.Things[w.Kind]),
			1) + phrase.Unsure(w)
	}
	return "is " + t.State
}

// addWaits adds the durations of the waits for locks of the type, if the agent has reported waits.
func (c *convoy) addWaits(e *evidence, v *profile.Verdict) {
	if !gather.HasMode(e.Samples, profile.Contention) {
		return
	}
	r := e.Samples
	locks := slices.DeleteFunc(r.Locks(), func(l profile.LockTotal) bool {
		name, ok := strings.CutPrefix(r.Functions[l.Function].Display, "lock "+c.typ)
		return l.Waits.Events == 0 || !ok || name != "" && name[0] != ' '
	})
	if len(locks) != 1 {
		return // none, or several of one type
	}
	l := &locks[0]
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text: fmt.Sprintf("%s for %s ended in %s, %s each on average.", phrase.Counted(int(l.Waits.Events), "wait",
			"waits"),
			r.Functions[l.Function].Display, phrase.Seconds(r.Duration), phrase.Seconds(l.Mean())),
	})
	if len(l.Holders) > 0 && len(l.Holders[0].Stacks) > 0 {
		s := &l.Holders[0].Stacks[0]
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text:   fmt.Sprintf("The holder was seen here %s:", phrase.Counted(int(s.Looks), "time", "times")),
			Frames: gather.Frames(r, s.Node),
		})
	}
}

func numbers(n []int) string {
	var words []string
	for _, v := range n {
		words = append(words, fmt.Sprint(v))
	}
	return phrase.List(words)
}
