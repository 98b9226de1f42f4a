package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// verbs name each kind of wait as a thread's action; "%s" stands for the object.
var verbs = map[snapshot.WaitKind]string{
	snapshot.MonitorEnter:    "waits to enter Monitor of %s",
	snapshot.MonitorWait:     "waits in Monitor.Wait of %s",
	snapshot.LockEnter:       "waits to enter %s",
	snapshot.SpinLockEnter:   "spins to enter %s",
	snapshot.ReadLock:        "waits to read under %s",
	snapshot.UpgradeableLock: "waits to read, upgradeable, under %s",
	snapshot.WriteLock:       "waits to write under %s",
	snapshot.SemaphoreWait:   "waits for %s",
	snapshot.EventWait:       "waits for %s",
	snapshot.CountdownWait:   "waits for %s",
	snapshot.BarrierWait:     "waits at %s",
	snapshot.CollectionTake:  "waits to take from %s",
	snapshot.CollectionAdd:   "waits to add to %s",
	snapshot.TaskWait:        "waits for %s",
	snapshot.TaskWaitAll:     "waits for %s",
	snapshot.TaskWaitAny:     "waits for %s",
	snapshot.ThreadJoin:      "waits for the end of %s",
	snapshot.ThreadSleep:     "sleeps",
	snapshot.HandleOne:       "waits for %s",
	snapshot.HandleAny:       "waits for any of several handles",
	snapshot.HandleAll:       "waits for all of several handles",
	snapshot.WaitRuntime:     "waits for the static constructor of %s",
}

// waitText describes a thread's wait, on one line; "" if not known.
func waitText(w *snapshot.Wait) string {
	if w == nil {
		return ""
	}
	verb := verbs[w.Kind]
	switch {
	case w.Kind == snapshot.WaitIO && strings.Contains(w.Target, " "):
		return display.Clean(w.Target)
	case verb == "" || w.Kind == snapshot.WaitRuntime && w.Type == "":
		return ""
	}
	text := strings.Replace(verb, "%s", thing(w), 1)
	if w.Owner != nil && w.Kind == snapshot.HandleAll {
		text += ", among them " + thing(w)
	}
	if w.Owner != nil && w.Kind != snapshot.ThreadJoin {
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
func tasksText(w *snapshot.Wait) string {
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
func waitingText(w *snapshot.Wait) string {
	text := waitText(w)
	switch verb, rest, _ := strings.Cut(text, " "); {
	case w.Kind == snapshot.WaitIO && w.Target != "":
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
func hasIt(w *snapshot.Wait) string {
	switch {
	case w.Kind == snapshot.TaskWait && w.Detail != "Running":
		return "which depends on"
	case w.Kind == snapshot.TaskWait || w.Kind == snapshot.WaitRuntime:
		return "run by"
	}
	return "held by"
}

// held describes the holding of a lock; "%s" stands for the object.
var held = map[snapshot.WaitKind]string{
	snapshot.MonitorEnter:    "holds Monitor of %s",
	snapshot.LockEnter:       "holds %s",
	snapshot.UpgradeableLock: "holds %s, to read, upgradeable",
	snapshot.WriteLock:       "holds %s, to write",
	snapshot.HandleOne:       "holds %s",
}

// holdText describes a thread's hold, on one line.
func holdText(w *snapshot.Wait) string {
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
func thing(w *snapshot.Wait) string {
	switch {
	case w.Kind == snapshot.ThreadJoin && w.Owner != nil:
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

func threadText(t *snapshot.ThreadRef) string {
	switch {
	case t.OSThreadID == 0:
		return "a thread that has ended"
	case t.Name != "":
		return display.Clean(t.Name) + " (" + strconv.Itoa(t.OSThreadID) + ")"
	}
	return "thread " + strconv.Itoa(t.OSThreadID)
}

// waitNotes are the notes in brackets.
func waitNotes(w *snapshot.Wait) string {
	var notes []string
	if w.Detail != "" && w.Kind != snapshot.WaitRuntime {
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
