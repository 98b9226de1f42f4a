package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// fullQueue is threads that wait in one own method for room in a BlockingCollection, and have not moved in any look.
type fullQueue struct {
	example *snapshot.Thread
	threads []snapshot.ThreadRef
	types   map[string]bool // of the methods on the threads' stacks
}

// judgeFullQueue looks for threads that wait for room in a full queue, and nobody makes room: each taken item would
// let a thread go on. A slow consumer may be at work on one item all the time, so that the verdict is only possible if
// a thread may be the consumer.
func judgeFullQueue(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 || e.Core() || e.Span() < gather.Enough {
		return nil
	}
	adds := func(t *snapshot.Thread) bool { return t.Wait != nil && t.Wait.Kind == snapshot.CollectionAdd }
	queues := map[string]*fullQueue{}
	moving := map[string]bool{}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		k := slices.IndexFunc(w.Looks, adds)
		if k < 0 || gather.OwnFrame(w.Looks[k].Frames) == nil {
			continue
		}
		t, own := w.Last(), gather.OwnFrame(w.Looks[k].Frames)
		key := own.Module + "!" + own.Method
		if !w.Unmoved || !w.All(adds) || t.Wait.Timeout > 0 {
			moving[key] = true // the thread got room, or did not wait before
			continue
		}
		if queues[key] == nil {
			queues[key] = &fullQueue{example: t, types: typesOf(t.Frames)}
		}
		queues[key].threads = append(queues[key].threads, gather.Ref(t))
	}
	for key := range moving {
		delete(queues, key)
	}
	if len(moving) == 0 {
		if v := e.takersWait(threads); v != nil {
			return v
		}
	}
	list := slices.SortedFunc(maps.Values(queues), func(a, b *fullQueue) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)),
			cmp.Compare(a.example.OSThreadID, b.example.OSThreadID))
	})
	if len(list) == 0 || len(list[0].threads) < fewWaiters {
		return nil
	}
	return []profile.Verdict{list[0].verdict(e, threads)}
}

// takersWait looks for threads that wait for room in a full queue, and that alone take from queues, by their code. A
// thread that takes and does not wait may make room.
func (e *evidence) takersWait(threads []gather.Watched) []profile.Verdict {
	var takers, others []*snapshot.Thread
	types := map[string]bool{}
	stand := map[int]bool{} // that have waited for room since the first look
	starve := starving(threads)
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		stand[t.OSThreadID] = w.Unmoved && kindOf(t) == string(snapshot.CollectionAdd) && t.Wait.Timeout <= 0
	}
	list := e.Last().Snap.Threads
	for i := range list {
		switch t := &list[i]; {
		case e.Takers[t.OSThreadID] && !stand[t.OSThreadID] && !starve[t.OSThreadID]:
			return nil
		case e.Takers[t.OSThreadID] && stand[t.OSThreadID]:
			takers = append(takers, t)
			maps.Copy(types, typesOf(t.Frames))
		case stand[t.OSThreadID] && gather.OwnFrame(t.Frames) != nil:
			others = append(others, t)
		}
	}
	if len(takers) == 0 {
		return nil
	}
	var words []string
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Likely,
		Commands: []string{fmt.Sprintf("clrsnap stack %s --group", e.Again())},
	}
	for _, t := range takers[:min(len(takers), maxShown)] {
		words = append(words, fmt.Sprintf("%s %s, in %s", phrase.ThreadName(gather.Ref(t)), phrase.Doing(t),
			gather.Place(t.Frames)))
		v.Evidence = append(v.Evidence, waitEvidence(t))
	}
	v.Text = fmt.Sprintf("%s for room in a full queue, although nobody else is seen who takes from full queues, and "+
		"none has got room in %s: %s. ", phrase.ThreadsWait(len(takers)), phrase.Seconds(e.Span()), phrase.List(words))
	if len(takers) == 1 {
		v.Text += "Most likely the thread adds to the queue that only the thread takes from."
	} else {
		v.Text += "Most likely these threads wait for one another."
	}
	if n := len(others); n > 0 {
		v.Text += fmt.Sprintf(" %s for room as well, such as %s, in %s.", more(n),
			phrase.ThreadName(gather.Ref(others[0])), gather.Place(others[0].Frames))
	}
	l, q := e.LastFlight(), fullQueue{types: types}
	if l != nil && l.Tasks.Methods > 0 || q.consumer(e, threads) != nil {
		v.Certainty = profile.Possible
		v.Text += " Or somebody takes in a way that is not seen, and is slow with one item."
	}
	return []profile.Verdict{v}
}

// starving are the threads that have waited for an item in some look, by id: the queue of that item was empty, and so
// is not the full one.
func starving(threads []gather.Watched) map[int]bool {
	out := map[int]bool{}
	for i := range threads {
		out[threads[i].Last().OSThreadID] = slices.ContainsFunc(threads[i].Looks, func(t *snapshot.Thread) bool {
			return kindOf(t) == string(snapshot.CollectionTake)
		})
	}
	return out
}

func (q *fullQueue) verdict(e *evidence, threads []gather.Watched) profile.Verdict {
	n := len(q.threads)
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for room in a full queue, in %s, and none has got room in %s. One of them, %s, %s.",
			phrase.ThreadsWait(n), gather.Place(q.example.Frames), phrase.Seconds(e.Span()),
			phrase.ThreadName(gather.Ref(q.example)),
			phrase.Doing(q.example)),
		Evidence: []profile.Evidence{{
			Text: "One of them, " + phrase.ThreadName(gather.Ref(q.example)) + ":", Frames: q.example.Frames,
			Threads: q.threads,
		}},
		Commands: []string{fmt.Sprintf("clrsnap stack %s --group", e.Again())},
	}
	if t := q.consumer(e, threads); t != nil {
		v.Certainty = profile.Possible
		v.Text += fmt.Sprintf(" Perhaps %s takes from the queue, and is slow with one item: %s in %s.",
			phrase.ThreadName(gather.Ref(t)), phrase.Doing(t), gather.Place(t.Frames))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: "What may take from the queue, " + phrase.ThreadName(gather.Ref(t)) + ":", Frames: t.Frames,
			Threads: []snapshot.ThreadRef{gather.Ref(t)},
		})
		return v
	}
	v.Text += " Nobody is seen who would take from the queue: most likely the thread that did has ended."
	if l := e.LastFlight(); l != nil && l.Tasks.Methods > 0 {
		v.Certainty = profile.Possible
		v.Text += fmt.Sprintf(" But %s suspended, and may take from the queue later.", phrase.Counted(l.Tasks.Methods,
			"async method is", "async methods are"))
	}
	return v
}

// consumer is a thread that may be at work on an item of the queue; nil: none. A thread in methods of the same class
// comes first.
func (q *fullQueue) consumer(e *evidence, threads []gather.Watched) (found *snapshot.Thread) {
	unmoved, starve := unmovedOf(threads), starving(threads)
	list := e.Last().Snap.Threads
	for i := range list {
		t := &list[i]
		own := gather.OwnFrame(t.Frames)
		switch {
		case own == nil || gather.Resting(t) || kindOf(t) == string(snapshot.CollectionAdd) || starve[t.OSThreadID]:
		case q.types[gather.OuterType(own.Method)]:
			return t
		case found == nil && (t.Wait == nil || !unmoved[t.OSThreadID] || !waitsForOthers(t.Wait)):
			found = t
		}
	}
	return found
}

// waitsForOthers reports whether a thread that has not moved waits for what others do or send, or for the time. A
// consumer at work does not, most often.
func waitsForOthers(w *snapshot.Wait) bool {
	switch w.Kind {
	case snapshot.CollectionTake, snapshot.EventWait, snapshot.WaitIO, snapshot.ThreadJoin, snapshot.ThreadSleep:
		return true
	}
	return w.Kind.OfTasks()
}
