package display

import (
	"regexp"
	"strconv"
	"strings"
)

// TypePattern compiles the regular expression that selects types. The name of a type is also a pattern, as .NET and
// its debuggers write the name: System.Byte[], Shop.Outer+Inner, Shop.Box`1[[System.String, System.Private.CoreLib]],
// Shop.Box`1[System.String].
func TypePattern(s string) (*regexp.Regexp, error) {
	s = doubled(s)
	if strings.Contains(s, "`") && strings.Contains(s, "[[") {
		anchored := strings.HasPrefix(s, "^") && strings.HasSuffix(s, "$")
		name := regexp.QuoteMeta(angled(strings.TrimSuffix(strings.TrimPrefix(s, "^"), "$")))
		if anchored {
			name = "^" + name + "$"
		}
		return regexp.Compile(name)
	}
	return regexp.Compile("(?:" + brackets.ReplaceAllString(s, `$1\[$2\]`) + ")|^" + regexp.QuoteMeta(s) + "$")
}

// brackets are the brackets of arrays.
var brackets = regexp.MustCompile(`(^|[^\\])\[(,*)\]`)

// angled writes a name with arguments in square brackets, each with its assembly, as List<System.String>.
func angled(s string) string {
	name, rest, ok := strings.Cut(s, "[[")
	if !ok {
		return s
	}
	var args []string
	for more := true; more; {
		var arg string
		arg, rest = bracketed(rest)
		args = append(args, angled(withoutAssembly(arg)))
		if rest, more = strings.CutPrefix(rest, ","); more {
			rest = strings.TrimPrefix(strings.TrimLeft(rest, " "), "[")
		}
	}
	rest = strings.TrimPrefix(rest, "]")
	var b strings.Builder
	for i, part := range strings.Split(name, "`") {
		if i == 0 {
			b.WriteString(part)
			continue
		}
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		n, err := strconv.Atoi(part[:digits])
		if err != nil || n > len(args) {
			n = len(args)
		}
		b.WriteString("<" + strings.Join(args[:n], ", ") + ">" + part[digits:])
		args = args[n:]
	}
	return b.String() + rest
}

// doubled writes the arguments of generic types in brackets of their own: List`1[[System.String]] for
// List`1[System.String].
func doubled(s string) string {
	name, list, ok := cutArguments(s)
	if !ok {
		return s
	}
	list, rest := bracketed(list)
	var args []string
	for more := true; more; {
		arg := withoutAssembly(list)
		list, more = strings.CutPrefix(list[len(arg):], ",")
		args = append(args, "["+doubled(strings.TrimSpace(arg))+"]")
	}
	return name + "[" + strings.Join(args, ",") + "]" + rest
}

// cutArguments cuts a name before the arguments of a generic type, which do not have brackets of their own.
func cutArguments(s string) (name, list string, ok bool) {
	count := max(0, strings.IndexByte(s, '`'))
	before, list, ok := strings.Cut(s[count:], "[")
	if !ok || count == 0 && s[0] != '`' || list == "" || strings.ContainsRune("[],", rune(list[0])) {
		return s, "", false
	}
	return s[:count] + before, list, true
}

// bracketed splits a text behind its closing bracket.
func bracketed(s string) (in, rest string) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			if depth--; depth < 0 {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}

// withoutAssembly cuts off the text after a type's name.
func withoutAssembly(s string) string {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				return s[:i]
			}
		}
	}
	return s
}
