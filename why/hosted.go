package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// hostClass is the class of .NET's host (Microsoft.Extensions.Hosting, Internal/Host.cs). The host starts and stops the
// services, one after another or together.
const hostClass = "Microsoft.Extensions.Hosting.Internal.Host."

// hostWork is what the host does.
type hostWork uint8

const (
	noHost   hostWork = iota
	starting          // waits for a service to start
	stopping          // waits for a service to stop
)

// hostIn is the work of the host in a stack. own: the service's own code is on the stack.
func hostIn(frames []snapshot.Frame) (w hostWork, own bool) {
	first := -1
	for i := range frames {
		name, ok := strings.CutPrefix(strings.Replace(frames[i].Method, "Host+<", "Host.", 1), hostClass)
		switch {
		case !ok:
			continue
		case strings.HasPrefix(name, "StartAsync"):
			w = starting
		case strings.HasPrefix(name, "StopAsync"):
			w = stopping
		case !strings.HasPrefix(name, "ForeachService"): // of both
			continue
		}
		if first < 0 {
			first = i
		}
	}
	return w, w != noHost && gather.OwnFrame(frames[:first]) != nil
}

// hostWaits looks for a service of the host that does not start, or does not stop: a method of the service has stayed
// in one wait since the first look.
func (e *evidence) hostWaits(threads []gather.Watched) []profile.Verdict {
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		if work, own := hostIn(t.Frames); own && w.Unmoved && w.Waits() {
			outside := t.Wait == nil || t.Wait.Kind == snapshot.WaitIO || t.Wait.Kind == snapshot.CollectionTake
			return []profile.Verdict{e.unmovedService(work, t.Frames, phrase.Doing(t), outside,
				[]snapshot.ThreadRef{gather.Ref(t)})}
		}
	}
	_, after, ok := e.Progressed()
	if !ok {
		return nil
	}
	stood := e.stoodStill()
	var stops, executing []*snapshot.TaskChain // of background services
	for i := range after.Tasks.Chains {
		c := &after.Tasks.Chains[i]
		if c.State != snapshot.TaskWaiting || c.WaitsFor == nil || c.WaitsFor.HasDue || stood[tasks.ChainKey(c)] == 0 {
			continue
		}
		switch work, own := hostIn(c.Frames); {
		case own:
			outside := fromOutside[c.WaitsFor.Kind]
			return []profile.Verdict{e.unmovedService(work, c.Frames, awaits(c.WaitsFor), outside, nil)}
		case work == stopping && strings.HasPrefix(c.Frames[0].Display, stopsBackground):
			stops = append(stops, c)
		case work == noHost && executes(c.Frames):
			executing = append(executing, c)
		}
	}
	if len(stops) == 0 || len(executing) == 0 {
		return nil
	}
	v := e.unmovedService(stopping, executing[0].Frames, awaits(executing[0].WaitsFor), false, nil)
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

// awaits says what an async method waits for. Other names come before the kind of thing, and are left out if empty.
func awaits(w *snapshot.Awaited, names ...string) string {
	return "waits for " + cmp.Or(w.Target, cmp.Or(names...), gather.AwaitedThings[w.Kind], display.ShortType(w.Type),
		string(w.Kind))
}

// fromOutside are awaited things that somebody outside the service may well complete.
var fromOutside = map[snapshot.AwaitedKind]bool{
	snapshot.AwaitsSocket: true, snapshot.AwaitsPipe: true, snapshot.AwaitsChannel: true, snapshot.AwaitsTask: true,
}

// unmovedService is the verdict on a service that does not start, or does not stop. outside: the service waits for
// somebody outside the service.
func (e *evidence) unmovedService(
	work hostWork, frames []snapshot.Frame, does string, outside bool, threads []snapshot.ThreadRef,
) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseShutdown, Certainty: profile.Likely, // the service may wait for slow work
		Evidence: []profile.Evidence{{Text: "The service stands here:", Frames: frames, Threads: threads}},
		Commands: []string{"clrsnap tasks " + e.Again(), "clrsnap stack " + e.Again()},
	}
	begins, begin := "The process is to end, and does not", "stop"
	if work == starting {
		v.Cause, begins, begin = profile.CauseStalled, "The host has not started", "start"
	}
	v.Text = fmt.Sprintf("%s: the host waits for a service to %s, which has not moved since the first look. It is in "+
		"%s, and %s.", begins, begin, phrase.Method(gather.OwnFrame(frames)), does)
	if work == starting {
		v.Text += " What starts after the service, such as a web server, has not begun."
		if outside {
			v.Certainty = profile.Possible
			v.Text += " A service that waits for somebody else, and starts slowly, looks the same."
		}
	}
	return v
}

// hostNote says that the host stops, and which background services have ended; "": the host does neither.
func (e *evidence) hostNote() string {
	before, after, ok := e.Progressed()
	if !ok {
		return ""
	}
	stops := func(l *gather.FlightLook) bool {
		return slices.ContainsFunc(l.Tasks.Chains, func(c snapshot.TaskChain) bool {
			work, _ := hostIn(c.Frames)
			return work == stopping
		})
	}
	if stops(before) && stops(after) {
		text := fmt.Sprintf("it stops, and waits for its services, for at least %s", phrase.Seconds(after.At-before.At))
		var still []string
		for i := range after.Tasks.Chains {
			if c := &after.Tasks.Chains[i]; executes(c.Frames) {
				still = append(still, phrase.Method(gather.OwnFrame(c.Frames)))
			}
		}
		if len(still) > 0 {
			text += "; not yet at an end: " + phrase.List(slices.Compact(still))
		}
		return text
	}
	if n := len(after.Tasks.Ended); n > 0 {
		return fmt.Sprintf("%s %s ended, without an exception, and the host goes on", phrase.List(after.Tasks.Ended),
			phrase.Verb(n, "has", "have"))
	}
	return ""
}
