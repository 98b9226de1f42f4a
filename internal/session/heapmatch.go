package session

import (
	"regexp"
	"strings"

	"clrsnap/internal/clr/name"
)

// matches reports whether types are chosen that have a name. The mark of a name that is not proved is no part of it.
func matches(chosen *regexp.Regexp, display string) bool {
	return chosen.MatchString(strings.ReplaceAll(display, name.Unproved, ""))
}
