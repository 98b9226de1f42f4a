package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/profile"
)

// judgeHeld looks for a signal, or the freezer, as the reason why the process does not run.
func judgeHeld(e *evidence) []profile.Verdict {
	if !e.held() {
		return nil
	}
	m := &e.moments[len(e.moments)-1]
	pid := e.process.PID
	switch {
	case m.groups.Frozen:
		return []profile.Verdict{{
			Cause: profile.CauseStopped, Certainty: profile.Certain,
			Text: "The freezer of its control group holds the process: none of its threads runs until the " +
				"group is thawed.",
			Evidence: []profile.Evidence{{
				Text: "cgroup.events says frozen 1 (version 1: freezer.state says FROZEN), at the beginning and " +
					"at the end.",
			}},
		}}
	case m.state == 'T':
		return []profile.Verdict{{
			Cause: profile.CauseStopped, Certainty: profile.Certain,
			Text: fmt.Sprintf("The process is stopped by a signal (SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU): none of its "+
				"threads runs until it gets SIGCONT. kill -CONT %d lets it go on.", pid),
			Evidence: []profile.Evidence{{
				Text: fmt.Sprintf("Its stat in /proc has state T, in %s.", counted(len(e.moments), "look", "looks")),
			}},
			Commands: []string{fmt.Sprintf("kill -CONT %d", pid)},
		}}
	}
	return nil // a debugger holds the process: judgeDebugger
}

// judgeDebugger looks for a process that traces this process.
func judgeDebugger(e *evidence) []profile.Verdict {
	if len(e.moments) < 2 {
		return nil
	}
	for i := range e.moments {
		if e.moments[i].traced == 0 || e.moments[i].traced != e.moments[0].traced {
			return nil
		}
	}
	m := &e.moments[0]
	who := fmt.Sprintf("process %d", m.traced)
	if m.tracer != "" {
		who = fmt.Sprintf("%s (%d)", m.tracer, m.traced)
	}
	text := fmt.Sprintf("A debugger is attached: %s traces the process. It runs, but each stop for the debugger "+
		"costs time.", who)
	if e.held() {
		text = fmt.Sprintf("A debugger holds the process: %s traces it and has stopped it. It goes on when the "+
			"debugger lets it, or ends.", who)
	}
	return []profile.Verdict{{
		Cause: profile.CauseDebugger, Certainty: profile.Certain, Text: text,
		Evidence: []profile.Evidence{{
			Text: fmt.Sprintf("Its status in /proc has TracerPid %d, in %s.", m.traced,
				counted(len(e.moments), "look", "looks")),
		}},
		Commands: []string{fmt.Sprintf("ps -fp %d", m.traced)},
	}}
}

// judgeSuspension looks for a thread that the runtime waits for, because the thread cannot be stopped. Either the
// other threads wait for the runtime meanwhile, or the thread is blocked in cooperative mode, where nothing may
// block: the next collection has to wait for the thread, if none waits yet.
func judgeSuspension(e *evidence) []profile.Verdict {
	if len(e.looks) < 2 {
		return nil
	}
	var stuck []watched
	var waiting []profile.ThreadRef
	all, still := 0, 0
	threads := e.threads()
	for i := range threads {
		w := &threads[i]
		if w.last().ManagedThreadID == 0 || w.all(resting) {
			continue
		}
		all++
		switch {
		case w.all(func(t *profile.Thread) bool { return waitsForRuntime(t) || stops(t, &e.process) }):
			waiting = append(waiting, ref(w.last()))
			if w.unmoved {
				still++
			}
		case w.all(func(t *profile.Thread) bool { return holdsOut(t, &e.process) }):
			stuck = append(stuck, *w)
		}
	}
	if len(stuck) != 1 || !stuck[0].blockedCooperative(e) && (still < 2 || still < (all-1)/2) {
		return nil
	}
	return []profile.Verdict{suspension(e, &stuck[0], waiting, all)}
}

// blockedCooperative reports whether a thread has been blocked in one call, in cooperative mode, in all looks. A
// waiting runtime signals the thread thousands of times a second, and the signals need some CPU time.
func (w *watched) blockedCooperative(e *evidence) bool {
	first := ownFrame(w.looks[0].Frames)
	return w.known && float64(w.ran+w.ready) < signalled*float64(e.whole()) &&
		slices.ContainsFunc(w.looks, (*profile.Thread).Waits) &&
		w.all(func(t *profile.Thread) bool {
			own := ownFrame(t.Frames)
			return holdsOut(t, &e.process) && sameCall(own, first)
		})
}

// signalled is the largest share of a CPU for signals.
const signalled = 0.25

func suspension(e *evidence, w *watched, waiting []profile.ThreadRef, all int) profile.Verdict {
	t := w.last()
	v := profile.Verdict{
		Cause: profile.CauseSuspension, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s does not let the runtime stop it: it has been in %s, in cooperative mode, for at least "+
			"%s. Each garbage collection waits for this thread, and all other threads wait for the collection.",
			threadName(ref(t)), method(ownFrame(t.Frames)), seconds(e.span())),
		Evidence: []profile.Evidence{
			{Text: fmt.Sprintf("%s is %s, in cooperative mode in %s:", threadName(ref(t)), t.State,
				counted(len(e.looks), "look", "looks")), Frames: t.Frames, Threads: []profile.ThreadRef{ref(t)}},
		},
		Commands: []string{fmt.Sprintf("clrsnap stack %d --full --thread %d", e.process.PID, t.OSThreadID)},
	}
	if len(waiting) > 0 {
		v.Text += fmt.Sprintf(" %s for the runtime now.", waitNow(len(waiting)))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s of %d have waited in the runtime's own code in all looks.",
				threadsOf(len(waiting)), all),
			Threads: waiting,
		})
	}
	return v
}

func waitNow(n int) string {
	if n == 1 {
		return "1 thread waits"
	}
	return fmt.Sprintf("%d threads wait", n)
}

func waitsForRuntime(t *profile.Thread) bool {
	return t.Wait != nil && t.Wait.Kind == profile.WaitRuntime && t.Wait.Owner == nil && t.Mode == "preemptive"
}

// stops reports whether a thread is in the runtime's own code without a known wait: the thread that stops the others
// looks again and again whether the others have stopped.
func stops(t *profile.Thread, p *profile.Process) bool {
	if t.Wait != nil {
		return false
	}
	for i := range t.Frames {
		switch f := &t.Frames[i]; {
		case f.Kind == profile.Managed:
			return false
		case f.Module == fileName(p.Runtime.Path):
			return true
		}
	}
	return false
}

// holdsOut reports whether a thread is in cooperative mode, in code outside the runtime. The runtime's own code stops
// threads, and collects.
func holdsOut(t *profile.Thread, p *profile.Process) bool {
	if t.Mode != "cooperative" || len(t.Frames) == 0 || ownFrame(t.Frames) == nil {
		return false
	}
	runtime := fileName(p.Runtime.Path)
	for i := range t.Frames {
		switch f := &t.Frames[i]; {
		case f.Kind == profile.Managed:
			return true
		case runtime != "" && f.Module == runtime || strings.HasPrefix(f.Module, "libclrgc"):
			return false
		}
	}
	return false
}

// judgeFinalizer looks for a finalizer that does not return. A look with an incomplete stack of the thread says
// nothing.
func judgeFinalizer(e *evidence) []profile.Verdict {
	threads := e.threads()
	i := slices.IndexFunc(threads, func(w watched) bool { return w.last().Role == "Finalizer" })
	if i < 0 {
		return nil
	}
	w := threads[i]
	var in []*profile.Thread // the finalizer thread, in the looks that show the finalizer
	var since, until time.Duration
	for k, t := range w.looks {
		f := finalizer(t)
		if f == nil && !t.Complete {
			continue
		}
		if f == nil || len(in) > 0 && !sameCall(f, finalizer(in[0])) {
			return nil
		}
		if until = e.looks[k].at; len(in) == 0 {
			since = until
		}
		in = append(in, t)
	}
	if len(in) == 0 || len(in) < 2 && !e.core() {
		return nil
	}
	w.looks = in
	return []profile.Verdict{blockedFinalizer(e, &w, until-since)}
}

// sameCall reports whether two frames belong to one call.
func sameCall(a, b *profile.Frame) bool { return a.Method == b.Method && a.SP == b.SP }

// finalizer returns the frame of the running finalizer on the finalizer thread; nil: none runs.
func finalizer(t *profile.Thread) *profile.Frame {
	for i := range slices.Backward(t.Frames) {
		if f := &t.Frames[i]; f.Kind == profile.Managed && strings.HasSuffix(f.Method, ".Finalize") &&
			f.Origin() != profile.OfFramework {
			return f
		}
	}
	return nil
}

// blockedFinalizer is the verdict on a thread that has been in one finalizer for some time.
func blockedFinalizer(e *evidence, w *watched, span time.Duration) profile.Verdict {
	t := w.last()
	f := finalizer(t)
	certainty, doing := profile.Likely, "runs"
	if w.unmoved && w.waits() && !e.core() {
		certainty, doing = profile.Certain, "is blocked"
	} else if t.Waits() {
		doing = "is blocked"
	}
	since := ""
	if !e.core() {
		since = fmt.Sprintf(", for at least %s", seconds(span))
	}
	at := method(f)
	if own := ownFrame(t.Frames); own != nil && own.Method != f.Method {
		at = method(own) + ", called by " + at
	}
	v := profile.Verdict{
		Cause: profile.CauseFinalizer, Certainty: certainty,
		Text: fmt.Sprintf("The finalizer thread %s in %s%s. No other finalizer runs before it returns, so that "+
			"objects with finalizers pile up.", doing, at, since),
		Evidence: []profile.Evidence{{
			Text:   fmt.Sprintf("%s%s:", threadName(ref(t)), waitPhrase(t)),
			Frames: t.Frames, Threads: []profile.ThreadRef{ref(t)},
		}},
		Commands: []string{fmt.Sprintf("clrsnap stack %s --thread %d", e.again(), t.OSThreadID)},
	}
	if o := e.ownerOf(t); o != nil {
		v.Text += fmt.Sprintf(" It%s.", waitPhrase(t))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: threadName(ref(o)) + waitPhrase(o) + ":", Frames: o.Frames, Threads: []profile.ThreadRef{ref(o)},
		})
		v.Commands = append([]string{"clrsnap locks " + e.again()}, v.Commands...)
	}
	return v
}

// ownerOf is the holder of what a thread waits for, in the last look; nil: not known.
func (e *evidence) ownerOf(t *profile.Thread) *profile.Thread {
	if t.Wait == nil || t.Wait.Owner == nil || !t.Wait.Certain {
		return nil
	}
	return e.last().byID()[t.Wait.Owner.OSThreadID]
}

// again stands for the process in a command line.
func (e *evidence) again() string {
	if c := e.process.Core; c != nil {
		return "--core " + quoted(c.Path)
	}
	return fmt.Sprint(e.process.PID)
}

// quoted is a file's name for a shell.
func quoted(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._/-", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
