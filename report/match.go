package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// NoMatchError says that no function of a recording matches a pattern.
type NoMatchError struct {
	Pattern string
	Nearest []string // similar names of functions
}

func (e *NoMatchError) Error() string {
	text := fmt.Sprintf("no function matches %q", display.Clip(e.Pattern, 100))
	if len(e.Nearest) > 0 {
		text += ": the nearest names are " + strings.Join(e.Nearest, ", ")
	}
	return text
}

// simpleNames returns the names of a function without parameters and types in brackets: with and without
// namespaces. The types in brackets often belong to other code: an async method's type in its builder, for
// example.
func simpleNames(f *profile.Function) []string {
	names := []string{withoutTypes(cmp.Or(f.Display, f.Method)), withoutTypes(f.Short)}
	if f.Kind == snapshot.Native || f.Kind == snapshot.Kernel {
		names = append(names, f.Module+"!"+cmp.Or(f.Display, f.Method))
	}
	return names
}

// withoutTypes removes the text between < and >. A name with no other text stays.
func withoutTypes(name string) string {
	if !strings.Contains(name, "<") {
		return name
	}
	var b strings.Builder
	depth := 0
	for _, c := range name {
		switch {
		case c == '<':
			depth++
		case c == '>' && depth > 0:
			depth--
		case depth == 0:
			b.WriteRune(c)
		}
	}
	return cmp.Or(b.String(), name)
}

// allNames returns all names of a function, with parameters, and as in the runtime.
func allNames(f *profile.Function) []string {
	return []string{display.FullName(f), f.Short + f.Signature, f.Display, f.Short, f.Method}
}

// matching returns a predicate for the functions of r that match a pattern. The pattern is the name of
// functions, or else a part of names, or else a regular expression.
func matching(r *profile.Recording, pattern string) (func(*profile.Function) bool, error) {
	is := func(name string) bool { return name == pattern }
	part := func(name string) bool { return strings.Contains(name, pattern) }
	tests := []struct {
		names func(*profile.Function) []string
		test  func(string) bool
	}{{simpleNames, is}, {allNames, is}, {simpleNames, part}, {allNames, part}}
	if re, err := regexp.Compile(pattern); err == nil {
		last := tests[0]
		last.test = re.MatchString
		last.names = func(f *profile.Function) []string { return append(simpleNames(f), allNames(f)...) }
		tests = append(tests, last)
	}
	for _, t := range tests {
		match := func(f *profile.Function) bool { return slices.ContainsFunc(t.names(f), t.test) }
		for i := range r.Functions {
			if match(&r.Functions[i]) {
				return match, nil
			}
		}
	}
	return nil, &NoMatchError{pattern, nearest(r, pattern)}
}

// nearest returns the names with most pairs of letters in common with a pattern.
func nearest(r *profile.Recording, pattern string) []string {
	const most, longest, least = 3, 200, 0.3
	type found struct {
		name string
		like float64
	}
	var all []found
	want, wantLast := pairs(pattern, longest), pairs(lastWord(pattern), longest)
	seen := map[string]bool{}
	for i := range r.Functions {
		f := &r.Functions[i]
		name := cmp.Or(f.Short, f.Display, f.Method)
		like := max(likeness(want, pairs(name, longest)), likeness(want, pairs(f.Display, longest)),
			0.9*likeness(wantLast, pairs(lastWord(withoutTypes(name)), longest)))
		if like >= least && !seen[name] {
			seen[name] = true
			all = append(all, found{display.Elide(display.OneLine(name), longestName), like})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.like, a.like) })
	var out []string
	for _, f := range all[:min(len(all), most)] {
		out = append(out, f.name)
	}
	return out
}

// lastWord returns the text after the last dot.
func lastWord(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// pairs returns the pairs of letters in the first n bytes of a name, in lower case.
func pairs(name string, n int) map[[2]byte]int {
	name = strings.ToLower(name[:min(len(name), n)])
	out := map[[2]byte]int{}
	for i := 1; i < len(name); i++ {
		out[[2]byte{name[i-1], name[i]}]++
	}
	return out
}

// likeness is Dice's coefficient of two sets of pairs, from 0 to 1.
func likeness(a, b map[[2]byte]int) float64 {
	common, all := 0, 0
	for k, n := range a {
		common += min(n, b[k])
		all += n
	}
	for _, n := range b {
		all += n
	}
	if all == 0 {
		return 0
	}
	return 2 * float64(common) / float64(all)
}
