package requests

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// result describes the requests and calls.
func (w *walk) result(c *heap.Census) *snapshot.Requests {
	out := &snapshot.Requests{
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
func (w *walk) doing(chains []*snapshot.TaskChain) snapshot.Doing {
	if len(chains) == 0 {
		return snapshot.Doing{}
	}
	best := slices.MaxFunc(chains, func(a, b *snapshot.TaskChain) int {
		return cmp.Or(cmp.Compare(tells(a), tells(b)), cmp.Compare(len(a.Frames), len(b.Frames)),
			// requests with the same action show the same chain
			cmp.Compare(tasks.KeyOf(b, true), tasks.KeyOf(a, true)))
	})
	d := snapshot.Doing{State: best.State, WaitsFor: best.WaitsFor, Frames: best.Frames, Branches: len(chains) - 1}
	if c := w.makes[best]; c != nil && best.State == snapshot.TaskWaiting {
		d.Call = &snapshot.CallTo{Authority: c.server, Phase: c.phase}
	}
	return d
}

// tells orders chains: a chain that waits for something known tells most.
func tells(c *snapshot.TaskChain) int {
	switch {
	case c.State != snapshot.TaskWaiting:
		return 0
	case c.WaitsFor == nil || c.WaitsFor.Kind == snapshot.AwaitsYield:
		return 1
	}
	return 2
}

// inOwnCode reports whether the program's own code tells the action, also where the endpoint is not known.
func inOwnCode(d *snapshot.Doing) bool {
	return slices.ContainsFunc(d.Frames, func(f snapshot.Frame) bool { return f.Origin() == snapshot.OfUser })
}

// requestGroups groups requests by their endpoints and actions. Where the endpoint is not known, requests for several
// paths that stand in the same own code are one group.
func (w *walk) requestGroups() []snapshot.RequestGroup {
	by := map[string]*snapshot.RequestGroup{}
	var list []*snapshot.RequestGroup
	for _, s := range w.requests {
		r, d := w.describe(s)
		path, of := cmp.Or(s.Route, s.Path), s.Route
		if of == "" && !inOwnCode(&d) {
			of = s.Path
		}
		key := r.Method + "\x00" + of + "\x00" + doingKey(&d)
		g := by[key]
		if g == nil {
			g = &snapshot.RequestGroup{Method: r.Method, Path: path, Doing: d}
			by[key], list = g, append(list, g)
		} else {
			joinDoing(&g.Doing, &d)
			g.Path = commonPath(g.Path, path)
		}
		g.Requests = append(g.Requests, r)
	}
	out := make([]snapshot.RequestGroup, len(list))
	for i, g := range list {
		slices.SortFunc(g.Requests, func(a, b snapshot.Request) int {
			return cmp.Or(compareSince(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
		})
		out[i] = *g
	}
	slices.SortFunc(out, func(a, b snapshot.RequestGroup) int {
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
func doingKey(d *snapshot.Doing) string {
	if c := d.Call; c != nil { // the methods of HttpClient make no difference
		own := slices.IndexFunc(d.Frames, func(f snapshot.Frame) bool { return f.Module != httpAssembly })
		if own < 0 {
			own = len(d.Frames)
		}
		key := tasks.KeyOf(&snapshot.TaskChain{Frames: d.Frames[own:], State: d.State}, false)
		return key + "\x00" + c.Authority + "\x00" + string(c.Phase)
	}
	if d.Wait != nil { // the methods of .NET make no difference
		own := slices.IndexFunc(d.Frames, func(f snapshot.Frame) bool { return f.Module != coreLib })
		frames := unnumbered(d.Frames[max(own, 0):])
		return tasks.KeyOf(&snapshot.TaskChain{Frames: frames, State: d.State}, false) + "\x00" + waitKey(d.Wait)
	}
	return tasks.KeyOf(&snapshot.TaskChain{Frames: unnumbered(d.Frames), State: d.State, WaitsFor: d.WaitsFor}, true)
}

// unnumbered leaves out the numbers of methods made at run time: an action of a controller may have several methods,
// if the first requests come together.
func unnumbered(frames []snapshot.Frame) []snapshot.Frame {
	out := slices.Clone(frames)
	for i := range out {
		if f := &out[i]; f.Module == "" {
			f.Display = strings.TrimRight(f.Display, "0123456789")
		}
	}
	return out
}

// joinDoing adds the action of another request or call of a group.
func joinDoing(to, d *snapshot.Doing) {
	a, b := snapshot.TaskChain{WaitsFor: to.WaitsFor}, snapshot.TaskChain{WaitsFor: d.WaitsFor}
	tasks.Merge(&a, &b)
	if to.Wait != nil && d.Wait != nil {
		joinWait(to.Wait, d.Wait)
	}
	to.Branches = max(to.Branches, d.Branches)
}

// describe describes a request and its action.
func (w *walk) describe(s *served) (snapshot.Request, snapshot.Doing) {
	r := snapshot.Request{
		ID: s.ID, Method: s.Method, Path: s.Path, Query: s.Query, Protocol: s.Protocol, Remote: addressText(s.Remote),
		Since: w.since(s.Start), Aborted: s.Aborted, Answering: s.Answering,
	}
	d := w.doing(s.chains)
	if t := w.threads.by[s.ID]; t != nil && (d.State == "" || d.State == snapshot.TaskRunning || awaitsRunning(&d)) {
		branches := d.Branches
		d = threadDoing(t)
		d.Branches = branches
		r.Thread = &snapshot.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
	}
	return r, d
}

// awaitsRunning reports whether a request, as far as known, waits for something that a thread may run: a task that
// runs code, or an unknown method. A running method after a suspension by the runtime is unknown.
func awaitsRunning(d *snapshot.Doing) bool {
	w := d.WaitsFor
	return d.State == snapshot.TaskWaiting && w != nil &&
		(w.Kind == snapshot.AwaitsTask || w.Kind == snapshot.AwaitsMethod && w.Target == "")
}
