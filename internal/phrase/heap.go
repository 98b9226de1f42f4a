package phrase

import (
	"slices"
	"strings"

	"clrsnap/snapshot"
)

// ShownSites is how many types, or places in the code, a verdict shows.
const ShownSites = 3

// Bounds of texts.
const (
	shownOnPaths = 12  // steps
	mostMessage  = 200 // characters of an exception's message
)

// OwnField is the field nearest to the end of a path that belongs to no type of the framework; "": none is known.
func OwnField(path *snapshot.HeapPath) string {
	for _, s := range slices.Backward(path.Steps) {
		if s.Field != "" && !snapshot.Framework(s.Type) {
			return "field " + s.Type + "." + s.Field
		}
	}
	return ""
}

// lastField is the field nearest to the end of a path that is no part of a collection of .NET: "field A.b". If the
// field is no own field, the own field before is there as well; "": none is known.
func lastField(path *snapshot.HeapPath) string {
	own := OwnField(path)
	if own == "" {
		return ""
	}
	for _, s := range slices.Backward(path.Steps) {
		if s.Field == "" || strings.HasPrefix(s.Type, "System.Collections.") ||
			strings.HasPrefix(s.Type, "System.Threading.Channels.") {
			continue
		}
		if last := "field " + s.Type + "." + s.Field; last != own {
			return last + ", reached from " + own
		}
		break
	}
	return own
}

// KeptBy says in which field a path ends, and at which root the path begins: a root of .NET is an accident, because the
// shortest way begins there. The subject comes with its verb. The text begins with a blank; "": neither is known.
func KeptBy(subject string, path *snapshot.HeapPath) string {
	field, own := lastField(path), path.Static == "" || !snapshot.Framework(path.Static)
	switch {
	case field != "" && own && !path.Conservative():
		return " " + subject + " in " + field + ", kept by " + path.Beginning() + "."
	case field != "":
		return " " + subject + " in " + field + "."
	case own:
		return " " + subject + " kept by " + path.Beginning() + "."
	}
	return ""
}

// Way is a path as one line: the beginning and the end. The program's own code knows the end.
func Way(path *snapshot.HeapPath) string {
	parts, steps := beginning(path)
	left := len(steps) - shownOnPaths
	for i, s := range steps {
		if first := shownOnPaths / 4; left > 0 && i >= first && i < first+left {
			if i == first {
				parts = append(parts, "…")
			}
			continue
		}
		name := s.Type
		if s.Field != "" {
			name += "." + s.Field
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " → ")
}

// beginning is how a line about a path begins, and the steps that follow. Objects of .NET between a root of .NET and
// the first own object are left out: a timer and a suspended method say the same.
func beginning(path *snapshot.HeapPath) (parts []string, rest []snapshot.HeapStep) {
	own := slices.IndexFunc(path.Steps, func(s snapshot.HeapStep) bool { return !snapshot.Framework(s.Type) })
	if own <= 0 || path.Static == "" || !snapshot.Framework(path.Static) {
		return []string{path.Beginning()}, path.Steps
	}
	for _, s := range path.Steps[:own] {
		for _, h := range holders {
			if strings.Contains(s.Type, h.in) && !slices.Contains(parts, h.what) {
				parts = append(parts, h.what)
			}
		}
	}
	if len(parts) == 0 {
		return []string{path.Beginning()}, path.Steps
	}
	return parts, path.Steps[own:]
}

// holders are what objects of .NET stand for, by a part of the name of their type.
var holders = []struct{ in, what string }{
	{"System.Threading.TimerQueueTimer", "a timer"},
	{"+AsyncStateMachineBox<", "a suspended async method"},
	{"System.Runtime.CompilerServices.Continuation", "a suspended async method"},
}

// Exception is the type and the beginning of the message of an exception.
func Exception(x *snapshot.ExceptionInfo) string {
	message := strings.Join(strings.Fields(x.Message), " ")
	if r := []rune(message); len(r) > mostMessage {
		message = string(r[:mostMessage]) + "…"
	}
	if message = strings.TrimSuffix(message, "."); message == "" {
		return x.Type
	}
	return x.Type + ": " + message
}
