package gather

import (
	"cmp"
	"maps"
	"slices"

	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thrown is a type of exception, with the throwing and the catching method.
type Thrown struct {
	Type, Fate string
	Weight     int64
	Node       int32 // the leaf of one of them
}

// Throws are the exceptions of the recording by type and place, the most frequent first.
func (e *Evidence) Throws() []*Thrown {
	if e.throws == nil {
		e.throws = throwsOf(e.Samples)
	}
	return e.throws
}

func throwsOf(r *profile.Recording) []*Thrown {
	by := map[string]*Thrown{}
	for i := range r.Samples {
		x := &r.Samples[i]
		f := r.Function(x.Node)
		if x.Mode != profile.Exception || f == nil {
			continue
		}
		own := ""
		if n := OwnNode(r, x.Node); n > 0 {
			own = r.Function(n).Display
		}
		key := f.Display + f.Fate + own
		if by[key] == nil {
			by[key] = &Thrown{Type: f.Display, Fate: f.Fate, Node: x.Node}
		}
		by[key].Weight += x.Weight
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *Thrown) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Type+a.Fate, b.Type+b.Fate))
	})
}

// Caught says who catches an exception. It begins with a blank; "": not known.
func (t *Thrown) Caught() string {
	if by, ok := profile.Catcher(t.Fate); ok {
		return " and caught in " + by
	}
	return ""
}

// ThrownAt says in which own method an exception is thrown, or below which: then code that the method calls throws.
func ThrownAt(stack []snapshot.Frame) string {
	own := OwnFrame(stack)
	for i := range stack {
		f := &stack[i]
		switch {
		case f == own:
			return "in " + phrase.Method(own)
		case IsThrowing(f.Method):
		case own == nil:
			return "in " + phrase.Method(f)
		default:
			return "below " + phrase.Method(own)
		}
	}
	return "in " + phrase.Method(own)
}
