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

// pulses is threads that have waited in Monitor.Wait of one object, without a time limit, in all looks.
type pulses struct {
	object *snapshot.Wait
	in     []string // own methods, in the order of the threads
	by     map[string][]*snapshot.Thread
	n      int
}

// judgePulses looks for threads that wait in several methods for a Pulse of one monitor, which they themselves would
// pulse. Consumers alone may wait for work. If producers wait as well, both wait for one another.
func judgePulses(e *evidence) []profile.Verdict {
	if e.Core() || e.Held() || len(e.Looks) < 2 || e.Span() < gather.Enough {
		return nil
	}
	by := map[uint64]*pulses{}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		own := gather.OwnFrame(t.Frames)
		if own == nil || !w.Unmoved || t.Wait == nil || t.Wait.Kind != snapshot.MonitorWait || t.Wait.Object == 0 ||
			t.Wait.Timeout > 0 || !e.Pulses[t.OSThreadID] {
			continue
		}
		p := by[t.Wait.Object]
		if p == nil {
			p = &pulses{object: t.Wait, by: map[string][]*snapshot.Thread{}}
			by[t.Wait.Object] = p
		}
		key := own.Module + "!" + own.Method
		if p.by[key] == nil {
			p.in = append(p.in, key)
		}
		p.by[key], p.n = append(p.by[key], t), p.n+1
	}
	list := slices.SortedFunc(maps.Values(by), func(a, b *pulses) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.object.Object, b.object.Object))
	})
	for _, p := range list {
		if len(p.in) > 1 && !e.pulsed(p) {
			return []profile.Verdict{p.verdict(e)}
		}
	}
	return nil
}

// pulsed reports whether somebody else is there who may pulse: a thread or an async method in the code of a class in
// which the threads wait, or a timer with a callback there.
func (e *evidence) pulsed(p *pulses) bool {
	var all []*snapshot.Thread
	for _, list := range p.by {
		all = append(all, list...)
	}
	if e.inside(all) {
		return true
	}
	classes, l := classesOf(all), e.LastFlight()
	return l != nil && (slices.ContainsFunc(l.Tasks.Chains, func(c snapshot.TaskChain) bool {
		return gather.HasCodeOf(classes, c.Frames)
	}) || slices.ContainsFunc(l.Tasks.Timers, func(t snapshot.Timer) bool {
		return gather.MemberOf(classes, t.Callback)
	}))
}

func (p *pulses) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Commands: []string{"clrsnap stack " + e.Again() + " --group"},
	}
	var places []string
	for _, in := range p.in {
		list := p.by[in]
		own := gather.OwnFrame(list[0].Frames)
		places = append(places, fmt.Sprintf("%d in %s", len(list), phrase.Method(own)))
		ev := profile.Evidence{Text: fmt.Sprintf("One of those in %s:", phrase.Method(own)), Frames: list[0].Frames}
		for _, t := range list {
			ev.Threads = append(ev.Threads, gather.Ref(t))
		}
		v.Evidence = append(v.Evidence, ev)
	}
	v.Text = fmt.Sprintf("%d threads wait in Monitor.Wait of %s, and none has gone on in %s: %s. Each of these "+
		"methods pulses a monitor when the method goes on, and no other code of the classes runs or is suspended: "+
		"the threads may wait for one another. Monitor.Pulse wakes only one thread, perhaps one that can do nothing; "+
		"PulseAll wakes all. Threads of two kinds that wait for work look the same.",
		p.n, phrase.ObjectOf(p.object, "an object"), phrase.Seconds(e.Span()), phrase.List(places))
	return v
}
