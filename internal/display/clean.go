package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a name from a target safe to print on a terminal. Clean escapes control
// characters, characters that change the direction of writing, and invalid UTF-8, for example
// as \x1b: such characters could move the cursor or hide text.
func Clean(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return cleaned(s)
		}
	}
	return s // nearly always
}

func cleaned(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r < 0x80 && unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case !unicode.IsPrint(r) && r != ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// OneLine is Clean for a text that must stay on one line: any white space becomes one space.
func OneLine(s string) string { return Clean(strings.Join(strings.Fields(s), " ")) }

// Clip cuts s to n columns; n <= 0: not at all.
func Clip(s string, n int) string {
	r := []rune(s)
	if n <= 0 || len(r) <= n {
		return s
	}
	return string(r[:max(n-1, 0)]) + "…"
}

// Elide cuts s in the middle to n columns; n <= 0: not at all.
func Elide(s string, n int) string {
	if n <= 0 || Width(s) <= n {
		return s
	}
	const mark = "…"
	r := []rune(s)
	left := n - Width(mark)
	head, tail := 0, len(r)
	for used, front := 0, true; head < tail; front = !front { // one rune from each end in turn
		c := r[head]
		if !front {
			c = r[tail-1]
		}
		if used += Width(string(c)); used > left {
			break
		}
		if front {
			head++
		} else {
			tail--
		}
	}
	return string(r[:head]) + mark + string(r[tail:])
}

// Width returns about how many terminal columns s takes. Width knows wide East Asian
// characters, and miscounts rarer characters.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
			r >= 0xf900 && r <= 0xfaff || r >= 0xff00 && r <= 0xff60) {
			n++
		}
	}
	return n
}
