package name

import "strings"

// splitNested cuts a metadata type name at the pluses outside angle brackets, and reports whether the brackets match.
func splitNested(s string) ([]string, bool) {
	var segs []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '<':
			depth++
		case '>':
			if depth--; depth < 0 {
				return nil, false
			}
		case '+':
			if depth == 0 {
				segs = append(segs, s[start:i])
				start = i + 1
			}
		}
	}
	return append(segs, s[start:]), depth == 0
}

// join is the opposite of splitNested, and takes the file out of the names of
// file-local types.
func join(segs []string) string {
	if len(segs) == 1 {
		return cutFile(segs[0])
	}
	var b strings.Builder
	for i, s := range segs {
		if i > 0 {
			b.WriteByte('+')
		}
		b.WriteString(cutFile(s))
	}
	return b.String()
}

// cutFile turns Ns.<File>F0123…__Type into Ns.Type. The digits are a SHA-256
// of the file's path.
func cutFile(seg string) string {
	i := strings.IndexByte(seg, '<')
	if i < 0 || i > 0 && seg[i-1] != '.' {
		return seg
	}
	_, rest, ok := generated(seg[i:])
	if !ok || rest == "" || rest[0] != 'F' {
		return seg
	}
	hash, name, ok := strings.Cut(rest[1:], "__")
	if !ok || name == "" || len(hash) != 64 || strings.Trim(hash, "0123456789ABCDEF") != "" {
		return seg
	}
	return seg[:i] + name
}

// cutArity cuts `1 off a name.
func cutArity(seg string) (string, int) {
	i := strings.LastIndexByte(seg, '`')
	if i < 0 || len(seg)-i > 4 || i+1 == len(seg) {
		return seg, 0
	}
	n := 0
	for _, c := range []byte(seg[i+1:]) {
		if c < '0' || c > '9' {
			return seg, 0
		}
		n = n*10 + int(c-'0')
	}
	return seg[:i], n
}

// shortMember cuts the namespaces out of an explicit interface implementation:
// System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator becomes
// IEnumerable<Int32>.GetEnumerator. Other names hold no dot, or begin with one.
func shortMember(s string) string {
	dot := strings.LastIndexByte(s, '.')
	if dot <= 0 || strings.LastIndexByte(s, '>') > dot {
		return s
	}
	var b strings.Builder
	start := 0 // of the present identifier; namespaces before the identifier are dropped
	for i := range dot {
		switch s[i] {
		case '.':
			start = i + 1
		case '<', '>', ',', '[', ']', ' ':
			b.WriteString(s[start : i+1])
			start = i + 1
		}
	}
	b.WriteString(s[start:dot])
	b.WriteString(s[dot:])
	return b.String()
}
