package export

import (
	"strings"

	"clrsnap/internal/display"
)

// letterWidth returns the width of a letter in pixels. The width is an upper estimate: the letter in a
// wide font, DejaVu Sans or Verdana, at 11 pixels.
func letterWidth(r rune) float64 {
	switch {
	case strings.ContainsRune("ijltfrI.,:;|!'()[]{}/ ", r):
		return 4.7
	case strings.ContainsRune("mwMW@%…", r):
		return 11.1
	case r >= 0x1100:
		return 12
	case r >= 'A' && r <= 'Z' || strings.ContainsRune("<>+=&#", r):
		return 9
	}
	return 7.1
}

func textWidth(letters []rune) float64 {
	sum := 0.0
	for _, r := range letters {
		sum += letterWidth(r)
	}
	return sum
}

// cut shortens a text at its end to a width in pixels.
func cut(letters []rune, width float64) string {
	if textWidth(letters) <= width {
		return string(letters)
	}
	if head := head(letters, width-letterWidth('…')); head != "" {
		return head + "…"
	}
	return ""
}

// head returns as much of the start as fits.
func head(letters []rune, width float64) string {
	for i, r := range letters {
		if width -= letterWidth(r); width < 0 {
			return string(letters[:i])
		}
	}
	return string(letters)
}

// elided shortens a name to a width in pixels: the type loses its end first, then
// the method.
func elided(name string, width float64) string {
	letters := []rune(display.Clean(name))
	if textWidth(letters) <= width {
		return string(letters)
	}
	at := methodStart(letters)
	if left := width - textWidth(letters[at:]) - letterWidth('…'); at > 0 && left >= 0 {
		kept := head(letters[:at-1], left)
		if len(kept) < 3 {
			kept = ""
		}
		return kept + "…" + string(letters[at:])
	}
	return cut(letters[at:], width)
}

// methodStart returns the start of the last part of a name: after the last dot outside brackets.
func methodStart(name []rune) int {
	depth := 0
	for i := len(name) - 1; i > 0; i-- {
		switch c := name[i]; {
		case strings.ContainsRune(">)]}", c):
			depth++
		case strings.ContainsRune("<([{", c):
			depth = max(depth-1, 0)
		case depth == 0 && (c == '.' && name[i-1] != '.' || c == ':' && name[i-1] == ':'):
			return i + 1
		}
	}
	return 0
}
