package pdb

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of Source Link.
const (
	maxSourceLink = 1 << 20 // bytes
	maxMappings   = 1 << 14
	maxURL        = 4096 // bytes
)

// SourceLink says where on the web a module's source files are.
type SourceLink struct{ mappings []mapping }

// mapping maps one document, or all documents with names that begin with path.
type mapping struct {
	path        string
	prefix      bool
	before, end string // of the URL: the rest of the name comes between
}

// SourceLink reads the module's Source Link; nil: there is none.
func (f *File) SourceLink() (*SourceLink, error) {
	x := f.indexed()
	switch {
	case x.sourceLinks == 0:
		return nil, nil
	case x.sourceLinks > 1:
		return nil, malformed("Source Link %d times", x.sourceLinks)
	}
	b, err := f.md.Blob(x.sourceLink)
	if err != nil {
		return nil, err
	}
	return ParseSourceLink(b)
}

// ParseSourceLink reads Source Link's JSON: an object with "documents". In "documents" each key is
// a path that may end in *, and each value a URL, with a * if the path has a *. Other members are
// for future versions.
func ParseSourceLink(b []byte) (*SourceLink, error) {
	if len(b) > maxSourceLink {
		return nil, malformed("Source Link of %d bytes", len(b))
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(b, []byte("\ufeff")), &members); err != nil {
		return nil, malformed("Source Link: %v", err)
	}
	var documents map[string]string
	if raw, ok := members["documents"]; ok {
		if err := json.Unmarshal(raw, &documents); err != nil {
			return nil, malformed("documents of Source Link: %v", err)
		}
	}
	if len(documents) > maxMappings {
		return nil, malformed("Source Link of %d documents", len(documents))
	}
	l := &SourceLink{}
	for path, url := range documents {
		m, err := newMapping(path, url)
		if err != nil {
			return nil, err
		}
		l.mappings = append(l.mappings, m)
	}
	// The longest matching path counts; an entry for a single document comes before a prefix
	// of the same length.
	slices.SortFunc(l.mappings, func(a, b mapping) int {
		switch {
		case len(a.path) != len(b.path):
			return len(b.path) - len(a.path)
		case a.prefix != b.prefix:
			return map[bool]int{false: -1, true: 1}[a.prefix]
		}
		return strings.Compare(a.path, b.path)
	})
	return l, nil
}

func newMapping(path, url string) (m mapping, err error) {
	m.path, m.prefix = strings.CutSuffix(path, "*")
	var star bool
	m.before, m.end, star = strings.Cut(url, "*")
	if path == "" || strings.Contains(m.path, "*") || strings.Contains(m.end, "*") || star != m.prefix {
		return m, malformed("Source Link maps %.100q to %.100q", path, url)
	}
	return m, nil
}

// URL is where a document is; false: the map has no answer. The URL is an http or https URL of
// printable ASCII characters.
func (l *SourceLink) URL(document string) (url string, ok bool) {
	if l == nil || strings.Contains(document, "*") || len(document) > maxDocumentName {
		return "", false
	}
	for i := range l.mappings {
		m := &l.mappings[i]
		rest, fits := cutFold(document, m.path)
		if !fits || rest != "" && !m.prefix {
			continue
		}
		if len(m.before)+len(m.end) > maxURL {
			return "", false
		}
		url = m.before + escape(rest) + m.end
		return url, harmless(url)
	}
	return "", false
}

// cutFold cuts a prefix without regard to upper and lower case: builds on Windows write paths in both.
func cutFold(s, prefix string) (rest string, ok bool) {
	for prefix != "" {
		if s == "" {
			return "", false
		}
		a, n := utf8.DecodeRuneInString(s)
		b, k := utf8.DecodeRuneInString(prefix)
		if a != b && unicode.ToUpper(a) != unicode.ToUpper(b) {
			return "", false
		}
		s, prefix = s[n:], prefix[k:]
	}
	return s, true
}

// escape writes the rest of a path for a URL. Unreserved characters of RFC 3986 stay,
// separators become slashes, and all other characters are escaped.
func escape(path string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c == '/' || c == '\\':
			out.WriteByte('/')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0:
			out.WriteByte(c)
		default:
			out.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return out.String()
}

// harmless reports whether a URL can be shown and linked to.
func harmless(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	if scheme = strings.ToLower(scheme); scheme != "https" && scheme != "http" {
		return false
	}
	return strings.IndexFunc(url, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
}
