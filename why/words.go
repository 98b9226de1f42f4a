package why

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// method names a frame: the method, and the source line if known.
func method(f *profile.Frame) string {
	if f == nil {
		return "code that is not known"
	}
	name := f.Display
	if name == "" {
		name = f.Method
	}
	if f.Line != nil {
		name += " (" + fileName(f.Line.File) + ":" + approximate(f.Line) + strconv.Itoa(f.Line.Line) + ")"
	}
	return name
}

func approximate(l *profile.SourceLine) string {
	if l.Approximate {
		return "~"
	}
	return ""
}

func fileName(path string) string {
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// threadName names a thread: "orders-1 (4242)" or "thread 4242".
func threadName(t profile.ThreadRef) string {
	switch {
	case t.OSThreadID == 0:
		return "a thread that has ended"
	case t.Name != "":
		return fmt.Sprintf("%s (%d)", t.Name, t.OSThreadID)
	}
	return fmt.Sprintf("thread %d", t.OSThreadID)
}

// counted is a number with its noun.
func counted(n int, one, many string) string {
	return display.Number(n) + " " + display.Plural(n, one, many)
}

// threadsOf says how many threads: "1 thread", "12 threads".
func threadsOf(n int) string { return counted(n, "thread", "threads") }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// seconds is a time with one decimal below ten seconds: "4.1 s".
func seconds(d time.Duration) string {
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

// bytesOf is an amount of memory: "1.2 GiB".
func bytesOf(n int64) string { return display.Weight(profile.Bytes, n) }

// number is a number as people write it: "4,500".
func number(n int64) string { return display.Number(int(n)) }

// rate is an amount for each second.
func rate(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// object names an awaited object: by type and address.
func object(typ string, at uint64, otherwise string) string {
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

// objectOf names the object of a wait, or of a hold, with the object's field.
func objectOf(w *profile.Wait, otherwise string) string {
	field := display.Field(w.Field)
	text := addressed(display.TypeOf(w.Type, w.Of), w.Object, otherwise)
	if field == "" {
		return text
	}
	if w.Type == "object" { // a plain object exists for locking
		return object(field, w.Object, otherwise)
	}
	return text + " (" + field + ")"
}

// list joins words: "a, b and c".
func list(words []string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " and " + words[n]
}

// isGenerated reports whether a source generator of the framework made a method, so that nobody has written the
// method.
func isGenerated(method string) bool {
	return strings.HasPrefix(method, "System.Text.RegularExpressions.Generated.")
}
