package export

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/profile"
)

// fullName returns the name of a function with namespaces and parameters. For a
// function without a symbol it is the module in brackets.
func fullName(f *profile.Function) string {
	name := f.Display
	if name == "" {
		name = f.Method
	}
	if name == "" {
		return nameless(f.Module)
	}
	return name + f.Signature
}

// nameless returns the name for all code of a module without symbols.
func nameless(module string) string {
	if module == "" {
		return "[unknown]"
	}
	return "[" + module + "]"
}

// incompleteFrame is the first frame of a stack whose frames near the base are missing,
// in formats that have no other place to say so.
const incompleteFrame = "[incomplete stack]"

// threadLabel returns the name of a thread for people: "orders-1 (4250)".
func threadLabel(t *profile.RecordedThread) string {
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

// baseName returns the last element of a path.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// modeSet is a set of modes.
type modeSet [len(profile.Modes)]bool

func (s *modeSet) list() []profile.Mode {
	return slices.DeleteFunc(slices.Clone(profile.Modes[:]), func(m profile.Mode) bool { return !s[m] })
}

// SampledModes returns the modes that a recording has samples of, in the order of
// profile.Modes.
func SampledModes(r *profile.Recording) []profile.Mode {
	s := sampledModes(r)
	return s.list()
}

func sampledModes(r *profile.Recording) (s modeSet) {
	for i := range r.Samples {
		s[r.Samples[i].Mode] = true
	}
	return s
}

// modesOf returns the modes that a recording has statistics or samples of.
func modesOf(r *profile.Recording) []profile.Mode {
	there := sampledModes(r)
	for i := range r.Modes {
		there[r.Modes[i].Mode] = true
	}
	return there.list()
}

// shorten removes the namespaces from a display name: of the name itself, and of the
// types in brackets. It is for formats that have no short names.
func shorten(display string) string {
	words := splitOutside(display, '.')
	if n := len(words); n > 2 && words[n-2] == "" { // Type..ctor
		words = append(words[:n-2], "."+words[n-1])
	}
	words = words[max(0, len(words)-2):]
	for i, w := range words {
		if at := strings.IndexAny(w, "<([{"); at >= 0 {
			words[i] = w[:at] + namespaces.ReplaceAllString(w[at:], "")
		}
	}
	return strings.Join(words, ".")
}

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

// splitSignature splits a name before the parameters in parentheses at its end.
func splitSignature(name string) (display, signature string) {
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
