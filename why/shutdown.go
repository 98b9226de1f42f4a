package why

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Methods of the framework: the caller of a signal's handler, the caller of the handlers of the process's end, if the
// call has left a frame, and the method by which a thread ends the process.
const (
	onSignal = "System.Runtime.InteropServices.PosixSignalRegistration."
	onExit   = "System.AppContext.OnProcessExit"
	exit     = "System.Environment.Exit"
)

// judgeShutdown looks for a process that is to end and does not: a handler of the end does not return, or Main has
// returned and a foreground thread waits for something.
func judgeShutdown(e *evidence) []profile.Verdict {
	if e.Core() || len(e.Looks) < 2 {
		return nil
	}
	threads := e.Threads()
	ends := slices.ContainsFunc(threads, func(w gather.Watched) bool { return w.Stays(exit) || e.hasReturned(&w) })
	for i := range threads {
		switch w := &threads[i]; {
		case w.Stays(onSignal):
			return []profile.Verdict{e.endless(w, "the handler of a signal", threads)}
		case w.Stays(onExit), ends && w.Unmoved && handlesExit(w.Last()):
			return []profile.Verdict{e.endless(w, "a handler of its end (AppDomain.ProcessExit)", threads)}
		}
	}
	if v := e.endlessService(threads); v != nil {
		return v
	}
	return e.keptAlive(threads)
}

// stopsServices are the host's methods that stop the services, one after another or together.
const stopsServices = "Microsoft.Extensions.Hosting.Internal.Host."

// stopsHost reports whether the host waits in a stack for a service to stop. own: the service's own code is on the
// stack.
func stopsHost(frames []snapshot.Frame) (stops, own bool) {
	i := slices.IndexFunc(frames, func(f snapshot.Frame) bool {
		name, ok := strings.CutPrefix(strings.Replace(f.Method, "Host+<", "Host.", 1), stopsServices)
		return ok && (strings.HasPrefix(name, "StopAsync") || strings.HasPrefix(name, "ForeachService"))
	})
	return i >= 0, i >= 0 && gather.OwnFrame(frames[:i]) != nil
}

// endlessService looks for a service of the host that does not stop: a method of the service has stayed in one wait
// since the first look.
func (e *evidence) endlessService(threads []gather.Watched) []profile.Verdict {
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		if _, own := stopsHost(t.Frames); own && w.Unmoved && w.Waits() {
			return []profile.Verdict{e.unstopped(t.Frames, phrase.Doing(t), []snapshot.ThreadRef{gather.Ref(t)})}
		}
	}
	_, after, ok := e.Progressed()
	if !ok {
		return nil
	}
	stood := e.stoodStill()
	var stopping, executing []*snapshot.TaskChain // of background services
	for i := range after.Tasks.Chains {
		c := &after.Tasks.Chains[i]
		if c.State != snapshot.TaskWaiting || c.WaitsFor == nil || c.WaitsFor.HasDue || stood[tasks.ChainKey(c)] == 0 {
			continue
		}
		switch stops, own := stopsHost(c.Frames); {
		case own:
			return []profile.Verdict{e.unstopped(c.Frames, awaits(c), nil)}
		case stops && strings.HasPrefix(c.Frames[0].Display, stopsBackground):
			stopping = append(stopping, c)
		case !stops && executes(c.Frames):
			executing = append(executing, c)
		}
	}
	if len(stopping) == 0 || len(executing) == 0 {
		return nil
	}
	v := e.unstopped(executing[0].Frames, awaits(executing[0]), nil)
	if len(executing) > 1 {
		v.Certainty = profile.Possible
		v.Text += fmt.Sprintf(" Or the service is one of %d others that have not moved either.", len(executing)-1)
	}
	return []profile.Verdict{v}
}

// stopsBackground is the method in which the host waits for the ExecuteAsync of a background service.
const stopsBackground = "Microsoft.Extensions.Hosting.BackgroundService.StopAsync"

// executes reports whether a stack is the work of a background service.
func executes(frames []snapshot.Frame) bool {
	return slices.ContainsFunc(frames, func(f snapshot.Frame) bool {
		return f.Origin() == snapshot.OfUser && strings.HasSuffix(f.Display, ".ExecuteAsync{async}")
	})
}

// awaits says what a chain waits for.
func awaits(c *snapshot.TaskChain) string {
	w := c.WaitsFor
	return "waits for " + cmp.Or(w.Target, gather.AwaitedThings[w.Kind], display.ShortType(w.Type), string(w.Kind))
}

// unstopped is the verdict on a service that does not stop.
func (e *evidence) unstopped(frames []snapshot.Frame, does string, threads []snapshot.ThreadRef) profile.Verdict {
	own := gather.OwnFrame(frames)
	return profile.Verdict{
		Cause: profile.CauseShutdown, Certainty: profile.Likely, // the service may wait for slow work
		Text: fmt.Sprintf("The process is to end, and does not: the host waits for a service to stop, which has not "+
			"moved since the first look. It is in %s, and %s.", phrase.Method(own), does),
		Evidence: []profile.Evidence{{Text: "The service stands here:", Frames: frames, Threads: threads}},
		Commands: []string{"clrsnap tasks " + e.Again(), "clrsnap stack " + e.Again()},
	}
}

// handlesExit reports whether the finalizer thread runs own code other than a finalizer. At the end of a process the
// runtime calls the handlers on the finalizer thread.
func handlesExit(t *snapshot.Thread) bool {
	return t.Role == "Finalizer" && gather.OwnFrame(t.Frames) != nil &&
		!slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool { return strings.HasSuffix(f.Method, ".Finalize") })
}

// endless is the verdict on a handler that does not return.
func (e *evidence) endless(w *gather.Watched, handler string, threads []gather.Watched) profile.Verdict {
	t := w.Last()
	v := e.shutdown(fmt.Sprintf("The process is to end, and does not: %s has not returned since the first look. It is "+
		"in %s, and %s.", handler, phrase.Method(gather.OwnFrame(t.Frames)), phrase.Doing(t)), t)
	v.Certainty = profile.Likely // the handler may wait for slow work
	for i := range threads {
		o := threads[i].Last()
		if !threads[i].Stays(exit) {
			continue
		}
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text:   fmt.Sprintf("%s has called Environment.Exit:", phrase.ThreadName(gather.Ref(o))),
			Frames: o.Frames, Threads: []snapshot.ThreadRef{gather.Ref(o)},
		})
		if owner := e.OwnerOf(t); owner != nil && owner.OSThreadID == o.OSThreadID {
			v.Certainty = profile.Certain
			v.Text += fmt.Sprintf(" %s waits in Environment.Exit for the handler: neither can go on.",
				phrase.ThreadName(gather.Ref(o)))
		}
	}
	return v
}

// keptAlive looks for foreground threads that keep a process whose Main has returned. A thread that makes progress is
// the purpose of the process.
func (e *evidence) keptAlive(threads []gather.Watched) []profile.Verdict {
	returned := false
	var keepers []*gather.Watched
	for i := range threads {
		w := &threads[i]
		switch t := w.Last(); {
		case t.Role == "Main":
			returned = e.hasReturned(w)
		case t.ManagedThreadID != 0 && !t.Background:
			keepers = append(keepers, w)
		}
	}
	still := func(w *gather.Watched) bool { return w.Unmoved && w.Waits() }
	if !returned || len(keepers) == 0 || !still(keepers[0]) {
		return nil
	}
	for _, w := range keepers {
		if !still(w) {
			return nil
		}
	}
	first := keepers[0].Last()
	text := fmt.Sprintf("Main has returned, and the process does not end: %s, a foreground thread, has not moved "+
		"since the first look. It is in %s, and %s.", phrase.ThreadName(gather.Ref(first)),
		phrase.Method(gather.OwnFrame(first.Frames)), phrase.Doing(first))
	if n := len(keepers); n > 1 {
		text = fmt.Sprintf("Main has returned, and the process does not end: %d foreground threads have not moved "+
			"since the first look. One of them, %s, is in %s, and %s.", n, phrase.ThreadName(gather.Ref(first)),
			phrase.Method(gather.OwnFrame(first.Frames)), phrase.Doing(first))
	}
	v := e.shutdown(text, first)
	v.Certainty = profile.Possible // the wait may be the purpose of the process
	for _, w := range keepers[1:] {
		v.Evidence[0].Threads = append(v.Evidence[0].Threads, gather.Ref(w.Last()))
	}
	return []profile.Verdict{v}
}

// hasReturned reports whether Main has returned on a thread: the stack has no method any more, and the thread waits
// in the runtime. The runtime has made the thread a background thread to wait for the others (threads.cpp,
// WaitForOtherThreads).
func (e *evidence) hasReturned(w *gather.Watched) bool {
	t := w.Last()
	if t.Role != "Main" || !t.Background || t.ManagedThreadID == 0 || !w.Unmoved {
		return false
	}
	runtime, waits := path.Base(e.Process.Runtime.Path), ""
	for i := range t.Frames {
		f := &t.Frames[i]
		if f.Kind == snapshot.Managed {
			return false
		}
		if waits == "" && !strings.HasPrefix(f.Module, "libc.") && !strings.HasPrefix(f.Module, "ld-musl") {
			waits = f.Module
		}
	}
	return waits == runtime
}

func (e *evidence) shutdown(text string, t *snapshot.Thread) profile.Verdict {
	return profile.Verdict{
		Cause: profile.CauseShutdown, Text: text,
		Evidence: []profile.Evidence{{
			Text:   phrase.ThreadName(gather.Ref(t)) + phrase.WaitPhrase(t) + ":",
			Frames: t.Frames, Threads: []snapshot.ThreadRef{gather.Ref(t)},
		}},
		Commands: []string{fmt.Sprintf("clrsnap stack %d", e.Process.PID)},
	}
}
