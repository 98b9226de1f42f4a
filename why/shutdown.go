package why

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
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

// judgeShutdown looks for a host whose service does not start, and for a process that is to end and does not: a handler
// of the end does not return, a service does not stop, or Main has returned and a foreground thread waits for
// something.
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
	if v := e.hostWaits(threads); v != nil {
		return v
	}
	return e.keptAlive(threads)
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
		"in %s, and %s.", handler, gather.Place(t.Frames), phrase.Doing(t)), t)
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
		gather.Place(first.Frames), phrase.Doing(first))
	if n := len(keepers); n > 1 {
		text = fmt.Sprintf("Main has returned, and the process does not end: %d foreground threads have not moved "+
			"since the first look. One of them, %s, is in %s, and %s.", n, phrase.ThreadName(gather.Ref(first)),
			gather.Place(first.Frames), phrase.Doing(first))
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
		Evidence: []profile.Evidence{waitEvidence(t)},
		Commands: []string{fmt.Sprintf("clrsnap stack %d", e.Process.PID)},
	}
}
