package display

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"clrsnap/profile"
)

// NoStack stands for a stack without frames.
const NoStack = "[no stack]"

// FullName returns the name of a function with namespaces and parameters. A function without a symbol gets the module
// in brackets.
func FullName(f *profile.Function) string {
	name := f.Display
	if name == "" {
		name = f.Method
	}
	if name == "" {
		return Nameless(f.Module)
	}
	name, mark := CutMark(name)
	return withFate(name+f.Signature+mark, f.Fate)
}

// CutMark separates the name of a method from the mark of an unproved name (name.Unproved). The mark is shown behind
// the parameters.
func CutMark(name string) (rest, mark string) {
	const unproved = " (?)"
	if rest, ok := strings.CutSuffix(name, unproved); ok {
		return rest, unproved
	}
	return name, ""
}

// ShortName returns the name of a function without namespaces and parameters.
func ShortName(f *profile.Function) string {
	name := cmp.Or(f.Short, f.Display, f.Method)
	if name == "" {
		name = Nameless(f.Module)
	}
	return withFate(name, ShortFate(f.Fate))
}

func withFate(name, fate string) string {
	if fate == "" {
		return name
	}
	return name + ", " + fate
}

// ShortFate returns the fate of an exception without the namespace of the catching method.
func ShortFate(fate string) string {
	if before, by, ok := strings.Cut(fate, profile.CaughtBy); ok {
		return before + profile.CaughtBy + Shorten(by)
	}
	return fate
}

// Nameless returns the name for all code of a module without symbols.
func Nameless(module string) string {
	if module == "" {
		return "[unknown]"
	}
	return "[" + module + "]"
}

// SplitFate splits the FullName of an event with a type.
func SplitFate(name string) (display, fate string) {
	parts := splitOutside(name, ',')
	display = parts[0]
	return display, strings.TrimPrefix(strings.TrimPrefix(name[len(display):], ","), " ")
}

// Thread returns the name of a thread for people: "orders-1 (4250)".
func Thread(t *profile.RecordedThread) string {
	name := t.Name
	if name == "" {
		name = t.Role
	}
	switch {
	case t.OSThreadID == 0 && name == "":
		return "threads that have ended"
	case t.OSThreadID == 0:
		return name
	case name == "":
		return "thread " + strconv.Itoa(t.OSThreadID)
	}
	return name + " (" + strconv.Itoa(t.OSThreadID) + ")"
}

// Shorten removes the namespaces from a display name: of the name itself, and of the types in brackets. Formats
// without short names use Shorten.
func Shorten(display string) string {
	words := splitOutside(display, '.')
	if n := len(words); n > 2 && words[n-2] == "" { // Type..ctor
		words = append(words[:n-2], "."+words[n-1])
	}
	words = words[max(0, len(words)-2):]
	for i, w := range words {
		if at := strings.IndexAny(w, "<([{"); at >= 0 {
			words[i] = w[:at] + WithoutNamespaces(w[at:])
		}
	}
	return strings.Join(words, ".")
}

// WithoutNamespaces removes the namespaces of all types in a text.
func WithoutNamespaces(s string) string { return namespaces.ReplaceAllString(s, "") }

var namespaces = regexp.MustCompile(`(?:[\pL_]\w*\.)+`)

// splitOutside splits s at each separator that is not inside brackets.
func splitOutside(s string, separator byte) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case strings.IndexByte("<([{", c) >= 0:
			depth++
		case strings.IndexByte(">)]}", c) >= 0:
			depth--
		case c == separator && depth <= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// SplitSignature splits a name before the parameters in parentheses at its end.
func SplitSignature(name string) (display, signature string) {
	if !strings.HasSuffix(name, ")") {
		return name, ""
	}
	depth := 0
	for i := len(name) - 1; i > 0; i-- {
		switch name[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return name[:i], name[i:]
			}
		}
	}
	return name, ""
}

// Library is the name of a native library, from the name of the library's file: "libc" of "libc.so.6".
func Library(file string) string {
	name, _, _ := strings.Cut(file, ".so")
	return name
}
