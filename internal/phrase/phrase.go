// Package phrase has the phrases of verdicts: methods, threads, waits, times and counts in words.
package phrase

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Method names a frame: the method, and the source line if known.
func Method(f *snapshot.Frame) string {
	if f == nil {
		return "code that is not known"
	}
	name := f.Display
	if name == "" {
		name = f.Method
	}
	if f.Line != nil {
		name += " (" + FileName(f.Line.File) + ":" + approximate(f.Line) + strconv.Itoa(f.Line.Line) + ")"
	}
	return name
}

func approximate(l *snapshot.SourceLine) string {
	if l.Approximate {
		return "~"
	}
	return ""
}

// Library is the name of a native library, from the name of the library's file: "libc" of "libc.so.6".
func Library(file string) string { return display.Library(file) }

// FileName is the last part of a path of Linux or of Windows.
func FileName(path string) string {
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// ThreadName names a thread: "orders-1 (4242)" or "thread 4242".
func ThreadName(t snapshot.ThreadRef) string {
	switch {
	case t.OSThreadID == 0:
		return "a thread that has ended"
	case t.Name != "":
		return fmt.Sprintf("%s (%d)", t.Name, t.OSThreadID)
	}
	return fmt.Sprintf("thread %d", t.OSThreadID)
}

// Counted is a number with its noun.
func Counted(n int, one, many string) string {
	return display.Number(n) + " " + display.Plural(n, one, many)
}

// SomeOf says how many of several: "3", or "all".
func SomeOf(n, several int) string {
	if n == several && n > 1 {
		return "all"
	}
	return display.Number(n)
}

// ThreadsOf says how many threads: "1 thread", "12 threads".
func ThreadsOf(n int) string { return Counted(n, "thread", "threads") }

// ThreadsWait begins a sentence about n waiting threads.
func ThreadsWait(n int) string { return ThreadsOf(n) + " " + Verb(n, "waits", "wait") }

// Percent is a share without decimals: "12 %".
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// Seconds is a time with one decimal below ten seconds: "4.1 s".
func Seconds(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

// BytesOf is an amount of memory: "1.2 GiB".
func BytesOf(n int64) string { return display.Weight(profile.Bytes, n) }

// Number is a number as people write it: "4,500".
func Number(n int64) string { return display.Number(int(n)) }

// Rate is an amount for each second.
func Rate(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// Object names an awaited object: by type and address.
func Object(typ string, at uint64, otherwise string) string {
	return addressed(display.ShortType(typ), at, otherwise)
}

func addressed(s string, at uint64, otherwise string) string {
	if s == "" {
		s = otherwise
	}
	if at != 0 {
		s += fmt.Sprintf(" %#x", at)
	}
	return s
}

// ObjectOf names the object of a wait, or of a hold, with the object's field.
func ObjectOf(w *snapshot.Wait, otherwise string) string {
	field := display.Field(w.Field)
	text := addressed(display.TypeOf(w.Type, w.Of), w.Object, otherwise)
	if field == "" {
		return text
	}
	if w.Type == "object" { // a plain object exists for locking
		return Object(field, w.Object, otherwise)
	}
	return text + " (" + field + ")"
}

// List joins words: "a, b and c".
func List(words []string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " and " + words[n]
}

// IsGenerated reports whether nobody has written a method: a source generator of the framework, or the framework at run
// time, has made the method of a regular expression (System.Text.RegularExpressions, RegexLWCGCompiler.cs).
func IsGenerated(method string) bool {
	name, compiled := strings.CutPrefix(method, "Regex")
	name = strings.TrimLeft(name, "0123456789")
	return strings.HasPrefix(method, "System.Text.RegularExpressions.Generated.") ||
		compiled && (strings.HasPrefix(name, "_TryMatchAtCurrentPosition") || strings.HasPrefix(name, "_Scan"))
}

// WaitPhrases describe a thread's wait; %s stands for the awaited object.
var WaitPhrases = map[snapshot.WaitKind]string{
	snapshot.MonitorEnter: "waits to enter Monitor of %s", snapshot.MonitorWait: "waits in Monitor.Wait of %s",
	snapshot.LockEnter: "waits to enter %s", snapshot.SpinLockEnter: "spins to enter %s",
	snapshot.ReadLock:        "waits to read under %s",
	snapshot.UpgradeableLock: "waits to read, upgradeable, under %s", snapshot.WriteLock: "waits to write under %s",
	snapshot.SemaphoreWait: "waits for %s", snapshot.EventWait: "waits for %s", snapshot.CountdownWait: "waits for %s",
	snapshot.BarrierWait: "waits at %s", snapshot.CollectionTake: "waits to take from %s",
	snapshot.CollectionAdd: "waits to add to %s", snapshot.TaskWait: "waits for %s",
	snapshot.ThreadJoin: "waits for the end of %s", snapshot.ThreadSleep: "sleeps", snapshot.HandleOne: "waits for %s",
	snapshot.TaskWaitAll: "waits for all of several tasks", snapshot.TaskWaitAny: "waits for any of several tasks",
	snapshot.HandleAny: "waits for any of several handles", snapshot.HandleAll: "waits for all of several handles",
}

// WaitPhrase describes a thread's holds and its wait: " holds Lock 0x… and waits to enter Monitor of Order 0x…, held
// by orders-2 (4242)". The phrase begins with a blank.
func WaitPhrase(t *snapshot.Thread) string {
	var holds []string
	for i := range t.Holds {
		h := &t.Holds[i]
		holds = append(holds, ObjectOf(h, "a lock")+Unsure(h))
	}
	text := Doing(t)
	if len(holds) > 0 {
		text = "holds " + List(holds) + " and " + text
	}
	return " " + text
}

// WaitsForExit reports whether a stack waits for the end of a child: in Process.WaitForExit, or in the state machine of
// Process.WaitForExitAsync.
func WaitsForExit(frames []snapshot.Frame) bool {
	return slices.ContainsFunc(frames, func(f snapshot.Frame) bool {
		name, ok := strings.CutPrefix(f.Method, "System.Diagnostics.Process")
		return ok && (strings.HasPrefix(name, ".WaitForExit") || strings.HasPrefix(name, "+<WaitForExit"))
	})
}

// WaitsForChild reports whether a thread waits for the event that .NET sets when a child process ends.
func WaitsForChild(t *snapshot.Thread) bool {
	w := t.Wait
	return w != nil && (w.Field == "System.Diagnostics.ProcessWaitState._exitedEvent" ||
		w.Field == "" && w.Kind == snapshot.HandleOne && WaitsForExit(t.Frames))
}

// Doing says what a thread does.
func Doing(t *snapshot.Thread) string {
	w := t.Wait
	switch {
	case w == nil && t.State == "running":
		return "runs"
	case w == nil:
		return "is " + t.State
	case w.Kind == snapshot.WaitIO && w.Target != "":
		return "is in " + w.Target
	case w.Kind == snapshot.WaitRuntime && w.Owner != nil:
		return fmt.Sprintf("waits for the static constructor of %s, which %s runs", w.Type, ThreadName(*w.Owner))
	case WaitPhrases[w.Kind] == "":
		return "is " + t.State
	case WaitsForChild(t):
		return "waits for the end of a child process" + w.Target + Unsure(w)
	}
	thing := ObjectOf(w, display.Things[w.Kind])
	if w.Method != "" {
		thing = "async " + w.Method
	}
	if w.Kind == snapshot.ThreadJoin && w.Owner != nil {
		thing = ThreadName(*w.Owner)
	}
	text := strings.Replace(WaitPhrases[w.Kind], "%s", thing, 1)
	if w.Owner != nil && w.Kind == snapshot.HandleAll {
		text += ", among them " + thing
	}
	if len(w.Tasks) > 0 {
		text += " (" + w.Detail + ")" + someTasks(w.Tasks)
	}
	return text + hasIt(w) + Unsure(w)
}

// someTasks names the first of several tasks with a known owner, and the owner.
func someTasks(tasks []snapshot.Wait) string {
	for i := range tasks {
		t := &tasks[i]
		if t.Owner == nil {
			continue
		}
		thing := ObjectOf(t, display.Things[t.Kind])
		if t.Method != "" {
			thing = "async " + t.Method
		}
		return ", among them " + thing + hasIt(t)
	}
	return ""
}

// Unsure marks an uncertain wait or hold.
func Unsure(w *snapshot.Wait) string {
	if w.Certain {
		return ""
	}
	return " (uncertain)"
}

// hasIt names the holder of the awaited object, or the thread that comes first, if known.
func hasIt(w *snapshot.Wait) string {
	switch {
	case w.Owner != nil && w.Kind == snapshot.ThreadJoin:
		return "" // the owner is the awaited thread
	case w.Owner != nil && w.Kind == snapshot.TaskWait && w.Detail != "Running":
		return ", which depends on " + ThreadName(*w.Owner)
	case w.Owner != nil && w.Kind == snapshot.TaskWait:
		return ", run by " + ThreadName(*w.Owner)
	case w.Owner != nil:
		return ", held by " + ThreadName(*w.Owner)
	case len(w.Readers) > 0:
		return ", which " + someThreads(w.Readers) + display.Plural(len(w.Readers), " reads", " read")
	case len(w.Behind) > 0:
		return ", behind " + someThreads(w.Behind) +
			display.Plural(len(w.Behind), ", who waits to write", ", who wait to write")
	}
	return ""
}

// someThreads names the first threads of a list, and the number of further threads.
func someThreads(of []snapshot.ThreadRef) string {
	const most = 3
	var names []string
	for _, t := range of[:min(most, len(of))] {
		names = append(names, ThreadName(t))
	}
	if left := len(of) - most; left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return List(names)
}

// Quoted is a file's name for a shell.
func Quoted(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._/-", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func Verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
