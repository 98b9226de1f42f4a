package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// verbs name each kind of wait as a thread's action; "%s" stands for the object.
var verbs = map[profile.WaitKind]string{
	profile.MonitorEnter:    "waits to enter Monitor of %s",
	profile.MonitorWait:     "waits in Monitor.Wait of %s",
	profile.LockEnter:       "waits to enter %s",
	profile.SpinLockEnter:   "spins to enter %s",
	profile.ReadLock:        "waits to read under %s",
	profile.UpgradeableLock: "waits to read, upgradeable, under %s",
	profile.WriteLock:       "waits to write under %s",
	profile.SemaphoreWait:   "waits for %s",
	profile.EventWait:       "waits for %s",
	profile.CountdownWait:   "waits for %s",
	profile.BarrierWait:     "waits at %s",
	profile.CollectionTake:  "waits to take from %s",
	profile.CollectionAdd:   "waits to add to %s",
	profile.TaskWait:        "waits for %s",
	profile.TaskWaitAll:     "waits for %s",
	profile.TaskWaitAny:     "waits for %s",
	profile.ThreadJoin:      "waits for the end of %s",
	profile.ThreadSleep:     "sleeps",
	profile.HandleOne:       "waits for %s",
	profile.HandleAny:       "waits for any of several handles",
	profile.HandleAll:       "waits for all of several handles",
	profile.WaitRuntime:     "waits for the static constructor of %s",
}

// waitText describes a thread's wait, on one line; "" if not known.
func waitText(w *profile.Wait) string {
	if w == nil {
		return ""
	}
	verb := verbs[w.Kind]
	switch {
	case w.Kind == profile.WaitIO && strings.Contains(w.Target, " "):
		return display.Clean(w.Target)
	case verb == "" || w.Kind == profile.WaitRuntime && w.Type == "":
		return ""
	}
	text := strings.Replace(verb, "%s", thing(w), 1)
	if w.Owner != nil && w.Kind == profile.HandleAll {
		text += ", among them " + thing(w)
	}
	if w.Owner != nil && w.Kind != profile.ThreadJoin {
		text += " " + hasIt(w) + " " + threadText(w.Owner)
		if w.Recursion > 1 {
			text += fmt.Sprintf(" %d times", w.Recursion)
		}
	}
	if n := len(w.Behind); n > 0 {
		if text += " behind " + threadText(&w.Behind[0]); n > 1 {
			text += " and " + counted(n-1, "other", "others")
		}
	}
	if notes := waitNotes(w); notes != "" {
		text += " (" + notes + ")"
	}
	return text + tasksText(w)
}

// tasksText names the first of several awaited tasks, and the threads that run them.
func tasksText(w *profile.Wait) string {
	const most = 3
	var words []string
	for i := range w.Tasks[:min(most, len(w.Tasks))] {
		t := &w.Tasks[i]
		text := thing(t)
		if t.Owner != nil {
			text += " " + hasIt(t) + " " + threadText(t.Owner)
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return ""
	}
	if left := len(w.Tasks) - most; left > 0 {
		words = append(words, fmt.Sprintf("%d more", left))
	}
	return ": " + strings.Join(words, ", ")
}

// waitingText is waitText for use after a name: "waiting to enter Lock 0x7f…".
func waitingText(w *profile.Wait) string {
	text := waitText(w)
	switch verb, rest, _ := strings.Cut(text, " "); {
	case w.Kind == profile.WaitIO && w.Target != "":
		return "waiting for " + display.Clean(w.Target)
	case verb == "waits":
		return "waiting " + rest
	case verb == "spins":
		return "spinning " + rest
	case verb == "sleeps":
		return strings.TrimSpace("sleeping " + rest)
	}
	return "waiting"
}

// hasIt names the owner's relation to the awaited object; the owner's name follows.
func hasIt(w *profile.Wait) string {
	switch {
	case w.Kind == profile.TaskWait && w.Detail != "Running":
		return "which depends on"
	case w.Kind == profile.TaskWait || w.Kind == profile.WaitRuntime:
		return "run by"
	}
	return "held by"
}

// held describes the holding of a lock; "%s" stands for the object.
var held = map[profile.WaitKind]string{
	profile.MonitorEnter:    "holds Monitor of %s",
	profile.LockEnter:       "holds %s",
	profile.UpgradeableLock: "holds %s, to read, upgradeable",
	profile.WriteLock:       "holds %s, to write",
	profile.HandleOne:       "holds %s",
}

// holdText describes a thread's hold, on one line.
func holdText(w *profile.Wait) string {
	text := strings.Replace(held[w.Kind], "%s", thing(w), 1)
	if w.Recursion > 1 {
		text += fmt.Sprintf(" %d times", w.Recursion)
	}
	var notes []string
	switch {
	case w.Waiters == 1:
		notes = append(notes, "1 waiter")
	case w.Waiters > 1:
		notes = append(notes, fmt.Sprintf("%d waiters", w.Waiters))
	}
	if !w.Certain {
		notes = append(notes, "uncertain")
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return text
}

// thing names the awaited object.
func thing(w *profile.Wait) string {
	switch {
	case w.Kind == profile.ThreadJoin && w.Owner != nil:
		return "thread " + threadText(w.Owner)
	case w.Type == "":
		return display.Things[w.Kind]
	}
	s := display.Clean(display.TypeOf(w.Type, w.Of))
	if w.Method != "" {
		s = "async " + display.Clean(w.Method)
	}
	plain := w.Type == "object" && w.Field != ""
	if plain { // a plain object exists for locking
		s = display.Clean(display.Field(w.Field))
	}
	if w.Object != 0 {
		s += " " + hex(w.Object)
	}
	if w.Field != "" && !plain {
		s += " (" + display.Clean(display.Field(w.Field)) + ")"
	}
	return s
}

func threadText(t *profile.ThreadRef) string {
	switch {
	case t.OSThreadID == 0:
		return "a thread that has ended"
	case t.Name != "":
		return display.Clean(t.Name) + " (" + strconv.Itoa(t.OSThreadID) + ")"
	}
	return "thread " + strconv.Itoa(t.OSThreadID)
}

// waitNotes are the notes in brackets.
func waitNotes(w *profile.Wait) string {
	var notes []string
	if w.Detail != "" && w.Kind != profile.WaitRuntime {
		notes = append(notes, display.Clean(w.Detail))
	}
	if w.Waiters > 1 {
		notes = append(notes, strconv.Itoa(w.Waiters)+" waiters")
	}
	if w.Timeout > 0 {
		notes = append(notes, "at most "+spanText(w.Timeout))
	}
	if w.Rest >= time.Millisecond {
		notes = append(notes, spanText(w.Rest)+" left")
	}
	if !w.Certain {
		notes = append(notes, "uncertain")
	}
	return strings.Join(notes, ", ")
}

func spanText(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 2*time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + " s"
	case d < 2*time.Hour:
		return strconv.FormatFloat(d.Minutes(), 'f', 0, 64) + " min"
	}
	return strconv.FormatFloat(d.Hours(), 'f', 0, 64) + " h"
}
