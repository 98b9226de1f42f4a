package why

import (
	"fmt"
	"strings"

	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of starvation.
const (
	fewWorkers    = 2    // fewer blocked workers trouble nobody
	blockedShare  = 0.75 // of the workers: the blocked workers
	longQueue     = 5    // work items that wait, in each look
	manyWaiting   = 8    // workers that wait for tasks, while nothing is queued
	mostlyBlocked = 0.5  // of the blocked workers that wait in a task, for the word sync-over-async
)

// workers is what the workers of the pool do in one look.
type workers struct {
	all, idle, blocked int
	bodies             int          // of the blocked workers: read the body of a request
	in                 gather.Tally // own methods of the blocked workers
	kinds              gather.Tally // snapshot.WaitKind of the blocked workers
	list               []*snapshot.Thread
}

// workersOf sums up the workers of a look.
func workersOf(l *gather.Look) workers {
	w := workers{in: gather.Tally{}, kinds: gather.Tally{}}
	for i := range l.Snap.Threads {
		t := &l.Snap.Threads[i]
		if t.Role != gather.WorkerRole {
			continue
		}
		w.all++
		switch {
		case t.Idle() == snapshot.IdleWorker:
			w.idle++
		case gather.Blocked(t):
			w.blocked++
			if gather.ReadsBody(t.Frames) {
				w.bodies++
			}
			w.list = append(w.list, t)
			w.kinds[kindOf(t)]++
			if m := gather.OwnMethod(t); m != "" {
				w.in[m]++
			}
		}
	}
	return w
}

func kindOf(t *snapshot.Thread) string {
	if t.Wait == nil {
		return ""
	}
	return string(t.Wait.Kind)
}

// judgePool looks for a thread pool with all workers blocked while work is queued, or with workers that wait for
// tasks, so that soon all may be blocked.
func judgePool(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 {
		return nil
	}
	if v := judgeStarvation(e); v != nil {
		return v
	}
	if v := judgeSyncOverAsync(e); v != nil {
		return v
	}
	return judgeTimerCallbacks(e)
}

// judgeTimerCallbacks looks for callbacks of timers that take the workers of the pool: a timer calls again, whether the
// last callback has ended or not.
func judgeTimerCallbacks(e *evidence) []profile.Verdict {
	in := map[string][]snapshot.ThreadRef{}
	most := ""
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		if m := gather.OwnMethod(t); m != "" && t.Role == gather.WorkerRole && gather.Blocked(t) &&
			threads[i].Stays(timerClass) {
			if in[m] = append(in[m], gather.Ref(t)); len(in[m]) > len(in[most]) {
				most = m
			}
		}
	}
	if len(in[most]) < manyWaiting {
		return nil
	}
	first, last := workersOf(e.First()), workersOf(e.Last())
	example := e.Last().ByID()[in[most][0].OSThreadID]
	text := fmt.Sprintf("%d callbacks of timers run at the same time, in %s, and none has gone on in %s. A timer "+
		"calls again although the last callback has not ended. Each callback takes one of the %d workers of the "+
		"thread pool.",
		len(in[most]), gather.Place(example.Frames), phrase.Seconds(e.Span()), last.all)
	if added := last.all - first.all; added > 0 {
		text += fmt.Sprintf(" The pool has added %s.", phrase.Counted(added, "worker", "workers"))
	}
	return []profile.Verdict{{
		Cause: profile.CausePoolStarvation, Certainty: profile.Likely, Text: text,
		Evidence: []profile.Evidence{{
			Text:   fmt.Sprintf("One of them, %s, %s:", phrase.ThreadName(in[most][0]), phrase.Doing(example)),
			Frames: example.Frames, Threads: in[most],
		}},
		Commands: []string{fmt.Sprintf("clrsnap stack %s --managed --group", e.Again())},
	}}
}

func judgeStarvation(e *evidence) []profile.Verdict {
	var looks []workers
	for i := range e.Looks {
		w := workersOf(&e.Looks[i])
		p := e.Looks[i].Pool
		if w.blocked < fewWorkers || w.idle > 0 && !keepsBack(p) ||
			float64(w.blocked) < blockedShare*float64(w.all-w.idle) {
			return nil
		}
		if p != nil && w.blocked < p.Minimum {
			return nil // another worker would start at once
		}
		looks = append(looks, w)
	}
	queue := e.queues()
	first, last := &looks[0], &looks[len(looks)-1]
	added := last.all - first.all
	switch {
	case queue != nil && min2(queue) < longQueue:
		return nil // nothing waits for a worker
	case queue == nil && added < 1:
		return nil // as far as can be seen, nothing waits
	}
	certainty := profile.Likely
	if queue != nil && queue[len(queue)-1] >= longQueue && (added > 0 || queue[len(queue)-1] >= queue[0]) {
		certainty = profile.Certain
	}
	return []profile.Verdict{starvation(e, first, last, queue, certainty)}
}

// judgeSyncOverAsync looks for a pool most of whose workers wait for tasks all the time: more workers than the pool
// adds at once. As long as nothing is queued, the trouble is yet to come.
func judgeSyncOverAsync(e *evidence) []profile.Verdict {
	p := e.Last().Pool
	if p == nil {
		return nil
	}
	waiting := func(t *snapshot.Thread) bool {
		return t.Role == gather.WorkerRole && t.Wait != nil && t.Wait.Kind.OfTasks()
	}
	all := workersOf(e.Last())
	w := workers{all: all.all, in: gather.Tally{}}
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		if !threads[i].Unmoved || !threads[i].All(waiting) || gather.OwnMethod(t) == "" {
			continue
		}
		w.blocked++
		w.in[gather.OwnMethod(t)]++
		w.list = append(w.list, t)
	}
	if w.blocked < manyWaiting || w.blocked <= p.Minimum ||
		float64(w.blocked) < blockedShare*float64(all.all-all.idle) {
		return nil
	}
	in, n := w.in.Top()
	example := w.example(in, string(snapshot.TaskWait))
	v := profile.Verdict{
		Cause: profile.CausePoolStarvation, Certainty: profile.Likely,
		Text: fmt.Sprintf("%d of the %d workers of the thread pool wait for tasks with .Result, Wait() or "+
			"GetAwaiter().GetResult(): sync over async; %s of them are in %s.", w.blocked, w.all,
			phrase.SomeOf(n, w.blocked), gather.Place(example.Frames)),
		Commands: []string{fmt.Sprintf("clrsnap stack %s --managed --group", e.Again())},
	}
	if p.HasQueue {
		v.Text += " " + phrase.Counted(p.Queued, "work item is", "work items are") + " queued now."
	}
	v.Text += fmt.Sprintf(" The minimum of workers is %d: when more comes, the pool adds one or two workers a second, "+
		"and what comes waits for them.", p.Minimum)
	ev := profile.Evidence{
		Text: fmt.Sprintf("They have waited in all looks, such as %s, which%s:", phrase.ThreadName(gather.Ref(example)),
			phrase.WaitPhrase(example)),
		Frames: example.Frames,
	}
	for _, t := range w.list {
		ev.Threads = append(ev.Threads, gather.Ref(t))
	}
	v.Evidence = []profile.Evidence{ev, {Text: poolText(p)}}
	return []profile.Verdict{v}
}

// keepsBack reports whether the pool lets no more workers work than now, although work is queued. The pool lowers its
// goal if more workers did not get more done, and then has idle workers that take nothing
// (PortableThreadPool.HillClimbing.cs; PortableThreadPool.WorkerThread.cs, ShouldStopProcessingWorkNow).
func keepsBack(p *threadpool.State) bool {
	return p != nil && p.HasQueue && p.Queued >= longQueue && p.Goal > 0 && p.Working >= p.Goal
}

func min2(n []int) int {
	out := n[0]
	for _, v := range n {
		out = min(out, v)
	}
	return out
}

// queues are the lengths of the queue in all looks; nil: not known.
func (e *evidence) queues() []int {
	var out []int
	for i := range e.Looks {
		p := e.Looks[i].Pool
		if p == nil || !p.HasQueue {
			return nil
		}
		out = append(out, p.Queued)
	}
	return out
}

func starvation(e *evidence, first, last *workers, queue []int, c profile.Certainty) profile.Verdict {
	in, n := last.in.Top()
	kind, of := last.kinds.Top()
	example := last.example(in, kind)
	v := profile.Verdict{
		Cause: profile.CausePoolStarvation, Certainty: c,
		Text:     fmt.Sprintf("The thread pool is starved: %d of its %d workers are blocked", last.blocked, last.all),
		Commands: []string{fmt.Sprintf("clrsnap stack %s --managed --group", e.Again())},
	}
	if last.idle > 0 {
		v.Text += fmt.Sprintf(", and it lets no more work at a time: %d %s idle", last.idle,
			display.Plural(last.idle, "is", "are"))
	}
	like, wait := "Workers", "; they wait"
	if n > 0 {
		v.Text += fmt.Sprintf(", %s of them in %s", phrase.SomeOf(n, last.blocked), gather.Place(example.Frames))
		like, wait = fmt.Sprintf("%s in that method", phrase.Counted(n, "worker", "workers")), ", which waits"
	}
	const task = string(snapshot.TaskWait)
	switch {
	case float64(last.bodies) >= mostlyBlocked*float64(last.blocked):
		v.Text += wait + " for the rest of requests' bodies with a synchronous read: sync over async. A client that " +
			"sends slowly takes a worker all the time."
	case kind == task && kindOf(example) == task && float64(of) >= mostlyBlocked*float64(last.blocked):
		v.Text += wait + " for a task with .Result, Wait() or GetAwaiter().GetResult(): sync over async. " +
			"If the task needs a worker to end, there is none."
	default:
		v.Text += fmt.Sprintf(". One of them, %s, %s.", phrase.ThreadName(gather.Ref(example)), phrase.Doing(example))
	}
	v.Text += growth(e, first, last, queue)
	ev := profile.Evidence{
		Text: fmt.Sprintf("%s are blocked, such as %s, which%s:", like, phrase.ThreadName(gather.Ref(example)),
			phrase.WaitPhrase(example)),
		Frames: example.Frames,
	}
	for _, t := range last.list {
		if n == 0 || gather.OwnMethod(t) == in {
			ev.Threads = append(ev.Threads, gather.Ref(t))
		}
	}
	v.Evidence = append(v.Evidence, ev)
	if p := e.Last().Pool; p != nil {
		v.Evidence = append(v.Evidence, profile.Evidence{Text: poolText(p)})
	}
	return v
}

// example is a worker blocked in an own method, of the given kind if there is one.
func (w *workers) example(in, kind string) *snapshot.Thread {
	out := w.list[0]
	for _, t := range w.list {
		switch {
		case gather.OwnMethod(t) == in && kindOf(t) == kind:
			return t
		case gather.OwnMethod(t) == in && gather.OwnMethod(out) != in:
			out = t
		}
	}
	return out
}

// growth says how much work waits, and how slowly the pool grows.
func growth(e *evidence, first, last *workers, queue []int) string {
	var words []string
	if queue != nil {
		words = append(words, fmt.Sprintf("%s (%d at first)",
			phrase.Counted(queue[len(queue)-1], "work item is queued", "work items are queued"), queue[0]))
	}
	if p := e.Last().Pool; p != nil {
		words = append(words, fmt.Sprintf("the minimum of workers is %d", p.Minimum))
	}
	if added := last.all - first.all; added > 0 {
		words = append(words,
			fmt.Sprintf("the pool has added %s in %s", phrase.Counted(added, "worker", "workers"),
				phrase.Seconds(e.Span())))
	}
	if len(words) == 0 {
		return ""
	}
	text := phrase.List(words)
	return " " + strings.ToUpper(text[:1]) + text[1:] + "."
}

func poolText(p *threadpool.State) string {
	s := fmt.Sprintf("The pool says: %s, %d with a work item, wants %d, minimum %d, maximum %d",
		phrase.Counted(p.Workers, "worker", "workers"), p.Working, p.Goal, p.Minimum, p.Maximum)
	if p.Blocked > 0 {
		s += fmt.Sprintf("; %d wait for tasks", p.Blocked)
	}
	return s + "."
}
