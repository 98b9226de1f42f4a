package session

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/name"
	"clrsnap/profile"
)

// matches reports whether a type is chosen by its name: as C# writes it, as the runtime and debuggers do
// (System.Collections.Generic.List<System.String>), or without its arguments (System.Collections.Generic.List`1). The
// mark of a name that is not proved is no part of it.
func (h *heapWalk) matches(chosen *regexp.Regexp, mt arch.Addr) bool {
	if chosen.MatchString(unmarked(h.name(mt).Display)) {
		return true
	}
	full, err := h.p.Runtime.Names.RuntimeName(mt)
	if err != nil {
		return false
	}
	full = unmarked(full)
	return chosen.MatchString(full) || chosen.MatchString(withArities(full))
}

func unmarked(s string) string { return strings.ReplaceAll(s, name.Unproved, "") }

// withArities writes how many arguments there are in place of the arguments.
func withArities(s string) string {
	var b strings.Builder
	depth, count := 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '<' && (depth > 0 || i > 0 && s[i-1] != '.' && s[i-1] != '+'): // else the compiler has made the name
			if depth++; depth == 1 {
				count = 1
			}
		case c == '>' && depth > 0:
			if depth--; depth == 0 {
				b.WriteString("`" + strconv.Itoa(count))
			}
		case c == ',' && depth == 1:
			count++
		case depth == 0:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// chosenTables says of which tables the objects are chosen.
func (h *heapWalk) chosenTables(g *heap.Graph, by *regexp.Regexp) []bool {
	out := make([]bool, len(g.Tables))
	for i, t := range g.Tables {
		out[i] = !t.Free && h.matches(by, t.Addr)
	}
	return out
}

// Bounds of what is compared with a name that nothing has.
const (
	mostNear    = 5
	mostNames   = 20_000
	longestNear = 64 // bytes
)

// nearest are the names of types that are most like what was asked for, and that have objects.
func nearest(asked *regexp.Regexp, types []profile.HeapType) (out []string) {
	want := lastName(asked.String())
	if want == "" {
		return nil
	}
	type near struct {
		name string
		far  int
	}
	var all []near
	for _, t := range types[:min(len(types), mostNames)] {
		is := lastName(t.Name)
		far := distance(want, is)
		if is != "" && (strings.Contains(is, want) || strings.Contains(want, is)) {
			far = min(far, 1)
		}
		if far <= 1+len(want)/4 {
			all = append(all, near{t.Name, far})
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	for _, n := range all[:min(len(all), mostNear)] {
		out = append(out, n.name)
	}
	return out
}

var (
	words     = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	arguments = regexp.MustCompile("[<`\\[(].*")
)

// lastName is the last name in the name of a type, or in a pattern, without arguments; in small letters.
func lastName(s string) string {
	s = strings.TrimPrefix(s, "(?:")
	if i := strings.Index(s, ")|^"); i >= 0 { // of a pattern that a name was made of
		s = s[:i]
	}
	all := words.FindAllString(arguments.ReplaceAllString(s, ""), -1)
	if len(all) == 0 {
		return ""
	}
	last := strings.ToLower(all[len(all)-1])
	return last[:min(len(last), longestNear)]
}

// distance is how many letters have to be changed, added or left out to make one name the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			same := corner
			if a[i] != b[j] {
				same++
			}
			corner = row[j+1]
			row[j+1] = min(same, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
