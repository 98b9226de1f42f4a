package requests

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// findServingThreads captures the stacks of all threads, and finds the requests that the threads run. With an error
// there is a partial result.
//
// Kestrel's async method that serves a request either calls the application, or is the last awaiter of the running
// methods. The method has Kestrel's object. Objects move, but the id of a request stays.
func findServingThreads(ctx context.Context, p *session.Process) (servingThreads, error) {
	out := servingThreads{by: map[string]*snapshot.Thread{}}
	ids := map[int]string{}
	reader := web.New(p.Managed.Objects)
	inspect := func(x *session.Inspection) {
		id := ""
		if p.Runtime == nil {
			id = servedAhead(p, reader, x)
		} else {
			id = servedBy(p, reader, x)
		}
		if id != "" {
			ids[x.Thread.OSThreadID] = id
		}
	}
	s, err := p.Snapshot(ctx, session.SnapshotOptions{Async: true, Unpacked: true, Inspect: inspect})
	if s == nil {
		return out, err
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		if id := ids[t.OSThreadID]; id != "" {
			out.by[id] = t
		}
		out.blocking = out.blocking || SendsBlocking(t)
	}
	return out, err
}

// SendsBlocking reports whether a thread is in HttpClient.Send.
func SendsBlocking(t *snapshot.Thread) bool {
	for i := range t.Frames {
		f := &t.Frames[i]
		if f.Module == httpAssembly && (strings.HasPrefix(f.Method, "System.Net.Http.HttpClient.Send") ||
			strings.HasPrefix(f.Method, "System.Net.Http.HttpMessageInvoker.Send")) &&
			!strings.Contains(f.Method, "Async") && f.Kind != snapshot.Async {
			return true
		}
	}
	return false
}

// servedBy returns the id of the request that a thread runs; "": none.
func servedBy(p *session.Process, reader *web.Reader, x *session.Inspection) string {
	for i := range x.Sites {
		site := &x.Sites[i]
		if site.Below >= len(x.Thread.Frames) {
			continue
		}
		below := &x.Thread.Frames[site.Below]
		if id := servedAt(p, reader, site, arch.Addr(below.SP), arch.Addr(below.IP)); id != "" {
			return id
		}
	}
	return ""
}

// servedAt returns the id of the request that a frame, or an awaiter of the frame's method, serves; "": none.
func servedAt(p *session.Process, reader *web.Reader, site *awaits.Site, sp, ip arch.Addr) (id string) {
	read := func() (err error) {
		id = ""
		obj, err := serverOf(p, site)
		if err != nil || obj == 0 {
			return err
		}
		id, err = reader.ID(obj)
		return err
	}
	called := func() bool { return p.StillCalled(sp, ip) }
	if !p.Moments().Read(read, called) {
		return ""
	}
	return id
}

// serverOf returns Kestrel's object for a frame; 0: none.
func serverOf(p *session.Process, site *awaits.Site) (arch.Addr, error) {
	if site.Serves {
		return site.Argument, nil
	}
	if site.Leads() {
		chain, _, err := p.AwaitingSite(site)
		if err != nil {
			return 0, err
		}
		return serving(p, chain.Steps)
	}
	r := p.AsyncReader()
	if site.Table != 0 {
		m, err := r.MachineOf(site.Table)
		if err != nil {
			return 0, err
		}
		if web.RoleOf(r.MachineName(m)) == web.Serving {
			return first(r.LocalsAt(site.Argument, site.Table, web.ProtocolVar.Name()))
		}
	}
	var box *async.Box
	var err error
	if site.Table == 0 {
		box, err = r.Box(site.Argument)
	} else {
		box, err = r.Of(site.Argument, site.Table)
	}
	if err != nil {
		return 0, nil // only the caller awaits the method
	}
	chain, err := r.Awaiting(box.Object)
	if err != nil {
		return 0, err
	}
	return serving(p, append(chain.Steps, async.Step{Box: box}))
}

// serving returns Kestrel's object of the method that serves requests; 0: none of the methods does.
func serving(p *session.Process, steps []async.Step) (arch.Addr, error) {
	for i := range steps {
		if role, _ := webRole(p, &steps[i]); role == web.Serving {
			return webLocal(p, &steps[i], web.ProtocolVar)
		}
	}
	return 0, nil
}

func first(list []arch.Addr, err error) (arch.Addr, error) {
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[0], nil
}

// threadDoing describes the action of a request that a thread runs: the request waits as the thread does.
func threadDoing(t *snapshot.Thread) snapshot.Doing {
	d := snapshot.Doing{State: snapshot.TaskRunning, Frames: beforeServing(t.Frames)}
	if t.Wait == nil {
		if t.Waits() {
			d.State = snapshot.TaskWaiting
		}
		return d
	}
	wait := *t.Wait
	d.State, d.Wait = snapshot.TaskWaiting, &wait
	if wait.Kind != snapshot.WaitRuntime { // for the runtime's waits the native frames tell more
		own := slices.IndexFunc(d.Frames, func(f snapshot.Frame) bool { return f.Kind != snapshot.Native })
		d.Frames = d.Frames[max(own, 0):]
	}
	return d
}

// beforeServing cuts the common base of all requests off a thread's stack: Kestrel's serving method and its callers.
func beforeServing(frames []snapshot.Frame) []snapshot.Frame {
	i := slices.IndexFunc(frames, func(f snapshot.Frame) bool {
		return web.RoleOf(f.Module, strings.TrimSuffix(f.Method, ".MoveNext")) == web.Serving
	})
	if i < 1 { // the method that goes on is awaited by the serving method
		i = slices.IndexFunc(frames, func(f snapshot.Frame) bool {
			return f.Module == coreLib && awaits.ResumesMethods(f.Method)
		})
	}
	for i > 0 && frames[i-1].Kind == snapshot.Native { // a stub of the runtime
		i--
	}
	if i < 1 {
		return frames
	}
	return frames[:i]
}

// commonThings are the kinds of waits in which several threads wait for a common object. In other waits, each request
// may have a separate object: an event, or a task.
var commonThings = map[snapshot.WaitKind]bool{
	snapshot.MonitorEnter: true, snapshot.LockEnter: true, snapshot.ReadLock: true, snapshot.UpgradeableLock: true,
	snapshot.WriteLock: true, snapshot.SemaphoreWait: true, snapshot.BarrierWait: true, snapshot.CollectionTake: true,
	snapshot.CollectionAdd: true,
}

// waitKey is equal for waits that are shown together.
func waitKey(w *snapshot.Wait) string {
	if thing := cmp.Or(w.Lock, w.Object); thing != 0 && commonThings[w.Kind] {
		return string(w.Kind) + "\x00" + strconv.FormatUint(thing, 16)
	}
	return strings.Join([]string{string(w.Kind), w.Type, w.Field, w.Method, tasks.RemoteTarget(w.Target)}, "\x00")
}

// joinWait adds the wait of another thread, with an equal key. Differences are left out. For a lock that both threads
// wait for, a certain wait counts.
func joinWait(to, w *snapshot.Wait) {
	waiters, field := max(to.Waiters, w.Waiters), cmp.Or(to.Field, w.Field)
	if commonThings[to.Kind] && to.Certain != w.Certain {
		if w.Certain {
			*to = *w
		}
		to.Waiters, to.Field = waiters, field
		return
	}
	if to.Object != w.Object {
		to.Object = 0
	}
	if to.Lock != w.Lock {
		to.Lock = 0
	}
	if to.Owner == nil || w.Owner == nil || *to.Owner != *w.Owner || to.Recursion != w.Recursion {
		to.Owner, to.Recursion = nil, 0
	}
	if !slices.Equal(to.Readers, w.Readers) {
		to.Readers = nil
	}
	if !slices.Equal(to.Behind, w.Behind) {
		to.Behind = nil
	}
	if to.Timeout != w.Timeout {
		to.Timeout = 0
	}
	if to.Rest != w.Rest {
		to.Rest = 0
	}
	if to.Detail != w.Detail {
		to.Detail = ""
	}
	to.Waiters, to.Field = waiters, field
	to.Target = tasks.CommonTarget(to.Target, w.Target)
	to.Certain = to.Certain && w.Certain
}
