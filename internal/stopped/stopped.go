// Package stopped has the judges of what keeps a process from running, and the judges of threads that the runtime waits
// for: a signal, the freezer, a debugger, a thread that cannot be suspended, a finalizer that does not return. Each
// judge returns nothing if a healthy program could look the same.
package stopped

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Held looks for a signal, or the freezer, as the reason why the process does not run.
func Held(e *gather.Evidence) []profile.Verdict {
	if !e.Held() {
		return nil
	}
	m := &e.Moments[len(e.Moments)-1]
	pid := e.Process.PID
	switch {
	case m.Groups.Frozen:
		return []profile.Verdict{{
			Cause: profile.CauseStopped, Certainty: profile.Certain,
			Text: "The freezer of the control group holds the process: no thread of the process runs until " +
				"the group is thawed.",
			Evidence: []profile.Evidence{{
				Text: "cgroup.events says frozen 1 (version 1: freezer.state says FROZEN), at the beginning and " +
					"at the end.",
			}},
		}}
	case m.State == 'T':
		return []profile.Verdict{{
			Cause: profile.CauseStopped, Certainty: profile.Certain,
			Text: fmt.Sprintf("The process is stopped by a signal (SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU): no thread "+
				"of the process runs until SIGCONT comes. kill -CONT %d lets the process go on.", pid),
			Evidence: []profile.Evidence{{
				Text: fmt.Sprintf("The stat in /proc has state T, in %s.", phrase.Counted(len(e.Moments), "look",
					"looks")),
			}},
			Commands: []string{fmt.Sprintf("kill -CONT %d", pid)},
		}}
	}
	return nil // a debugger holds the process: Debugger
}

// Debugger looks for a process that traces this process.
func Debugger(e *gather.Evidence) []profile.Verdict {
	if len(e.Moments) < 2 {
		return nil
	}
	for i := range e.Moments {
		if e.Moments[i].Traced == 0 || e.Moments[i].Traced != e.Moments[0].Traced {
			return nil
		}
	}
	m := &e.Moments[0]
	who := fmt.Sprintf("process %d", m.Traced)
	if m.Tracer != "" {
		who = fmt.Sprintf("%s (%d)", m.Tracer, m.Traced)
	}
	text := fmt.Sprintf("A debugger is attached: %s traces the process. The process runs, but each stop for the "+
		"debugger costs time.", who)
	if e.Held() {
		text = fmt.Sprintf("A debugger holds the process: %s traces and has stopped the process. The process goes on "+
			"when the debugger says so, or ends.", who)
	}
	return []profile.Verdict{{
		Cause: profile.CauseDebugger, Certainty: profile.Certain, Text: text,
		Evidence: []profile.Evidence{{
			Text: fmt.Sprintf("The status in /proc has TracerPid %d, in %s.", m.Traced,
				phrase.Counted(len(e.Moments), "look", "looks")),
		}},
		Commands: []string{fmt.Sprintf("ps -fp %d", m.Traced)},
	}}
}

// Suspension looks for a thread that the runtime waits for, because the thread cannot be stopped. Either the
// other threads wait for the runtime meanwhile, or the thread is blocked in cooperative mode, where nothing may
// block: the next collection has to wait for the thread, if none waits yet.
func Suspension(e *gather.Evidence) []profile.Verdict {
	if len(e.Looks) < 2 {
		return nil
	}
	var stuck []gather.Watched
	var waiting []snapshot.ThreadRef
	all, still := 0, 0
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		if w.Last().ManagedThreadID == 0 || w.All(gather.Resting) {
			continue
		}
		all++
		switch {
		case w.All(func(t *snapshot.Thread) bool { return gather.WaitsForRuntime(t) || stops(t, &e.Process) }):
			waiting = append(waiting, gather.Ref(w.Last()))
			if w.Unmoved {
				still++
			}
		case w.All(func(t *snapshot.Thread) bool { return gather.HoldsOut(t, &e.Process) }):
			stuck = append(stuck, *w)
		}
	}
	if len(stuck) != 1 || !stuck[0].BlockedCooperative(e) && (still < 2 || still < (all-1)/2) {
		return nil
	}
	return []profile.Verdict{suspension(e, &stuck[0], waiting, all)}
}

func suspension(e *gather.Evidence, w *gather.Watched, waiting []snapshot.ThreadRef, all int) profile.Verdict {
	t := w.Last()
	v := profile.Verdict{
		Cause: profile.CauseSuspension, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s does not let the runtime stop it: it has been in %s, in cooperative mode, for at least "+
			"%s. Each garbage collection waits for this thread, and all other threads wait for the collection.",
			phrase.ThreadName(gather.Ref(t)), gather.Place(t.Frames), phrase.Seconds(e.Span())),
		Evidence: []profile.Evidence{
			{Text: fmt.Sprintf("%s is %s, in cooperative mode in %s:", phrase.ThreadName(gather.Ref(t)), t.State,
				phrase.Counted(len(e.Looks), "look", "looks")), Frames: t.Frames,
				Threads: []snapshot.ThreadRef{gather.Ref(t)}},
		},
		Commands: []string{fmt.Sprintf("clrsnap stack %d --full --thread %d", e.Process.PID, t.OSThreadID)},
	}
	if len(waiting) > 0 {
		v.Text += fmt.Sprintf(" %s for the runtime now.", phrase.ThreadsWait(len(waiting)))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s of %d have waited in the runtime's own code in all looks.",
				phrase.ThreadsOf(len(waiting)), all),
			Threads: waiting,
		})
	}
	return v
}

// stops reports whether a thread is in the runtime's own code without a known wait: the thread that stops the others
// looks again and again whether the others have stopped.
func stops(t *snapshot.Thread, p *snapshot.Process) bool {
	if t.Wait != nil {
		return false
	}
	for i := range t.Frames {
		switch f := &t.Frames[i]; {
		case f.Kind == snapshot.Managed:
			return false
		case f.Module == phrase.FileName(p.Runtime.Path):
			return true
		}
	}
	return false
}

// Finalizer looks for a finalizer that does not return. A look with an incomplete stack of the thread says
// nothing.
func Finalizer(e *gather.Evidence) []profile.Verdict {
	threads := e.Threads()
	i := slices.IndexFunc(threads, func(w gather.Watched) bool { return w.Last().Role == "Finalizer" })
	if i < 0 {
		return nil
	}
	w := threads[i]
	var in []*snapshot.Thread // the finalizer thread, in the looks that show the finalizer
	var since, until time.Duration
	for k, t := range w.Looks {
		f := finalizer(t)
		if f == nil && !t.Complete {
			continue
		}
		if f == nil || len(in) > 0 && !gather.SameCall(f, finalizer(in[0])) {
			return nil
		}
		if until = e.Looks[k].At; len(in) == 0 {
			since = until
		}
		in = append(in, t)
	}
	if len(in) == 0 || len(in) < 2 && !e.Core() {
		return nil
	}
	w.Looks = in
	return []profile.Verdict{blockedFinalizer(e, &w, until-since)}
}

// finalizer returns the frame of the running finalizer on the finalizer thread; nil: none runs.
func finalizer(t *snapshot.Thread) *snapshot.Frame {
	for i := range slices.Backward(t.Frames) {
		if f := &t.Frames[i]; f.Kind == snapshot.Managed && strings.HasSuffix(f.Method, ".Finalize") &&
			f.Origin() != snapshot.OfFramework {
			return f
		}
	}
	return nil
}

// blockedFinalizer is the verdict on a thread that has been in one finalizer for some time.
func blockedFinalizer(e *gather.Evidence, w *gather.Watched, span time.Duration) profile.Verdict {
	t := w.Last()
	f := finalizer(t)
	certainty, doing := profile.Likely, "runs"
	if w.Unmoved && w.Waits() && !e.Core() {
		certainty, doing = profile.Certain, "is blocked"
	} else if t.Waits() {
		doing = "is blocked"
	}
	since := ""
	if !e.Core() {
		since = fmt.Sprintf(", for at least %s", phrase.Seconds(span))
	}
	at := phrase.Method(f)
	if own := gather.OwnFrame(t.Frames); own != nil && own.Method != f.Method {
		at = phrase.Method(own) + ", called by " + at
	}
	v := profile.Verdict{
		Cause: profile.CauseFinalizer, Certainty: certainty,
		Text: fmt.Sprintf("The finalizer thread %s in %s%s. No other finalizer runs before it returns, so that "+
			"objects with finalizers pile up.", doing, at, since),
		Evidence: []profile.Evidence{{
			Text:   fmt.Sprintf("%s%s:", phrase.ThreadName(gather.Ref(t)), phrase.WaitPhrase(t)),
			Frames: t.Frames, Threads: []snapshot.ThreadRef{gather.Ref(t)},
		}},
		Commands: []string{fmt.Sprintf("clrsnap stack %s --thread %d", e.Again(), t.OSThreadID)},
	}
	if o := e.OwnerOf(t); o != nil {
		v.Text += fmt.Sprintf(" It%s.", phrase.WaitPhrase(t))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: phrase.ThreadName(gather.Ref(o)) + phrase.WaitPhrase(o) + ":", Frames: o.Frames,
			Threads: []snapshot.ThreadRef{gather.Ref(o)},
		})
		v.Commands = append([]string{"clrsnap locks " + e.Again()}, v.Commands...)
	}
	return v
}
