package gather

import (
	"slices"
	"strings"

	"clrsnap/snapshot"
)

// HasMethod reports whether an async method is in a chain.
func HasMethod(c *snapshot.TaskChain, method string) bool {
	const mark = "{async}"
	return slices.ContainsFunc(c.Frames, func(f snapshot.Frame) bool {
		return strings.TrimSuffix(f.Display, mark) == strings.TrimSuffix(method, mark)
	})
}

// OwnTypes are the types outside .NET on a path, the types around nested types.
func OwnTypes(path *snapshot.HeapPath) map[string]bool {
	out := map[string]bool{}
	add := func(typ string) {
		typ, _, _ = strings.Cut(typ, "<")
		if outer, _, _ := strings.Cut(typ, "+"); outer != "" && !snapshot.Framework(outer) {
			out[outer] = true
		}
	}
	for _, s := range path.Steps {
		add(s.Type)
	}
	if owner, _, ok := cutLast(path.Static, "."); ok {
		add(owner)
	}
	return out
}

// MemberOf reports whether a member belongs to one of some types.
func MemberOf(types map[string]bool, member string) bool {
	member, _, _ = strings.Cut(member, "{")
	return types[OuterType(member)]
}

// HasCodeOf reports whether a stack has a method of some types, outside .NET.
func HasCodeOf(types map[string]bool, frames []snapshot.Frame) bool {
	for i := range frames {
		if f := &frames[i]; f.Origin() != snapshot.OfFramework && MemberOf(types, f.Display) {
			return true
		}
	}
	return false
}

// OuterType is the type of a member's name, without the types inside: "Shop.Log" of "Shop.Log+<>c.<Run>b__0".
func OuterType(member string) string {
	if outer, _, nested := strings.Cut(member, "+"); nested {
		return outer
	}
	owner, _, _ := cutLast(strings.TrimSuffix(member, ".ctor"), ".")
	return owner
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
