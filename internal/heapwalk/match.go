package heapwalk

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/name"
	"clrsnap/snapshot"
)

// matches reports whether a pattern chooses a type by name: the name in C#, the name of the runtime
// and of debuggers (System.Collections.Generic.List<System.String>), or the name without arguments
// (System.Collections.Generic.List`1). The mark of an unproved name is not part of the name.
func (h *heapWalk) matches(chosen *regexp.Regexp, mt arch.Addr) bool {
	if chosen.MatchString(unmarked(h.Name(mt).Display)) {
		return true
	}
	full, err := h.p.Managed.Objects.Types().RuntimeName(mt)
	if err != nil {
		return false
	}
	full = unmarked(full)
	return chosen.MatchString(full) || chosen.MatchString(withArities(full))
}

func unmarked(s string) string { return strings.ReplaceAll(s, name.Unproved, "") }

// withArities replaces arguments by the number of arguments.
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

// chosenTables reports for each table whether the table's objects are chosen.
func (h *heapWalk) chosenTables(g *heap.Graph, by *regexp.Regexp) []bool {
	out := make([]bool, len(g.Tables))
	for i, t := range g.Tables {
		out[i] = !t.Free && h.matches(by, t.Addr)
	}
	return out
}

// Bounds of the comparison with a name that no type has.
const (
	mostNear    = 5
	mostNames   = 20_000
	longestNear = 64 // bytes
)

// nearest returns the names of types with objects that are most like the wanted name.
func nearest(asked *regexp.Regexp, types []snapshot.HeapType) (out []string) {
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

// lastName returns the last name in the name of a type, or in a pattern, without arguments and in
// lower case.
func lastName(s string) string {
	s = strings.TrimPrefix(s, "(?:")
	if i := strings.Index(s, ")|^"); i >= 0 { // a pattern made from a name
		s = s[:i]
	}
	all := words.FindAllString(arguments.ReplaceAllString(s, ""), -1)
	if len(all) == 0 {
		return ""
	}
	last := strings.ToLower(all[len(all)-1])
	return last[:min(len(last), longestNear)]
}

// distance is the number of letters to change, add or leave out to turn one name into the other
// (Levenshtein).
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
