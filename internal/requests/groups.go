package requests

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
)

// result describes the requests and calls.
func (w *walk) result(c *heap.Census) *profile.Requests {
	out := &profile.Requests{
		Process: w.p.Info(), CapturedAt: w.p.CapturedAt(w.Begin), ConsistentShare: tasks.ConsistentShare(c),
		Partial: c.Stopped || w.Full || w.Ended,
	}
	out.Requests = w.requestGroups()
	out.Calls = w.callGroups()
	out.Pools = w.poolList()
	out.Unproven, out.CallsUnread = w.Unproven+w.lost, w.callsUnread
	return out
}

// doing describes what a request or a call does, by its chains.
func (w *walk) doing(chains []*profile.TaskChain) profile.Doing {
	if len(chains) == 0 {
		return profile.Doing{}
	}
	best := slices.MaxFunc(chains, func(a, b *profile.TaskChain) int {
		return cmp.Or(cmp.Compare(tells(a), tells(b)), cmp.Compare(len(a.Frames), len(b.Frames)),
			// requests with the same action show the same chain
			cmp.Compare(tasks.KeyOf(b, true), tasks.KeyOf(a, true)))
	})
	d := profile.Doing{State: best.State, WaitsFor: best.WaitsFor, Frames: best.Frames, Branches: len(chains) - 1}
	if c := w.makes[best]; c != nil && best.State == profile.TaskWaiting {
		d.Call = &profile.CallTo{Authority: c.server, Phase: c.phase}
	}
	return d
}

// tells orders chains: a chain that waits for something known tells most.
func tells(c *profile.TaskChain) int {
	switch {
	case c.State != profile.TaskWaiting:
		return 0
	case c.WaitsFor == nil || c.WaitsFor.Kind == profile.AwaitsYield:
		return 1
	}
	return 2
}

// requestGroups groups requests by their paths and actions.
func (w *walk) requestGroups() []profile.RequestGroup {
	by := map[string]*profile.RequestGroup{}
	var list []*profile.RequestGroup
	for _, s := range w.requests {
		r, d := w.describe(s)
		path := cmp.Or(s.Route, s.Path)
		key := r.Method + "\x00" + path + "\x00" + doingKey(&d)
		g := by[key]
		if g == nil {
			g = &profile.RequestGroup{Method: r.Method, Path: path, Doing: d}
			by[key], list = g, append(list, g)
		} else {
			joinDoing(&g.Doing, &d)
		}
		g.Requests = append(g.Requests, r)
	}
	out := make([]profile.RequestGroup, len(list))
	for i, g := range list {
		slices.SortFunc(g.Requests, func(a, b profile.Request) int {
			return cmp.Or(compareSince(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
		})
		out[i] = *g
	}
	slices.SortFunc(out, func(a, b profile.RequestGroup) int {
		return cmp.Or(cmp.Compare(len(b.Requests), len(a.Requests)), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Requests[0].ID, b.Requests[0].ID))
	})
	return out
}

// compareSince orders times, unknown times last.
func compareSince(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

// doingKey is equal for actions in one group.
func doingKey(d *profile.Doing) string {
	if c := d.Call; c != nil { // the methods of HttpClient make no difference
		own := slices.IndexFunc(d.Frames, func(f profile.Frame) bool { return f.Module != httpAssembly })
		if own < 0 {
			own = len(d.Frames)
		}
		key := tasks.KeyOf(&profile.TaskChain{Frames: d.Frames[own:], State: d.State}, false)
		return key + "\x00" + c.Authority + "\x00" + string(c.Phase)
	}
	if d.Wait != nil { // the methods of .NET make no difference
		own := slices.IndexFunc(d.Frames, func(f profile.Frame) bool { return f.Module != coreLib })
		frames := unnumbered(d.Frames[max(own, 0):])
		return tasks.KeyOf(&profile.TaskChain{Frames: frames, State: d.State}, false) + "\x00" + waitKey(d.Wait)
	}
	return tasks.KeyOf(&profile.TaskChain{Frames: unnumbered(d.Frames), State: d.State, WaitsFor: d.WaitsFor}, true)
}

// unnumbered leaves out the numbers of methods made at run time: an action of a controller may have several methods,
// if the first requests come together.
func unnumbered(frames []profile.Frame) []profile.Frame {
	out := slices.Clone(frames)
	for i := range out {
		if f := &out[i]; f.Module == "" {
			f.Display = strings.TrimRight(f.Display, "0123456789")
		}
	}
	return out
}

// joinDoing adds the action of another request or call of a group.
func joinDoing(to, d *profile.Doing) {
	a, b := profile.TaskChain{WaitsFor: to.WaitsFor}, profile.TaskChain{WaitsFor: d.WaitsFor}
	tasks.Merge(&a, &b)
	if to.Wait != nil && d.Wait != nil {
		joinWait(to.Wait, d.Wait)
	}
	to.Branches = max(to.Branches, d.Branches)
}

// describe describes a request and its action.
func (w *walk) describe(s *served) (profile.Request, profile.Doing) {
	r := profile.Request{
		ID: s.ID, Method: s.Method, Path: s.Path, Query: s.Query, Protocol: s.Protocol, Remote: addressText(s.Remote),
		Since: w.since(s.Start), Aborted: s.Aborted, Answering: s.Answering,
	}
	d := w.doing(s.chains)
	if t := w.threads.by[s.ID]; t != nil && (d.State == "" || d.State == profile.TaskRunning || awaitsRunning(&d)) {
		branches := d.Branches
		d = threadDoing(t)
		d.Branches = branches
		r.Thread = &profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
	}
	return r, d
}

// awaitsRunning reports whether a request, as far as known, waits for something that a thread may run: a task that
// runs code, or an unknown method. A running method after a suspension by the runtime is unknown.
func awaitsRunning(d *profile.Doing) bool {
	w := d.WaitsFor
	return d.State == profile.TaskWaiting && w != nil &&
		(w.Kind == profile.AwaitsTask || w.Kind == profile.AwaitsMethod && w.Target == "")
}
