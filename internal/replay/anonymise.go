package replay

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/target"
)

// anonymise removes the folders of the target's files: the files' names are enough.
func (r *Corpus) anonymise() {
	folders := map[string]bool{}
	bare := func(p string) string {
		if m := (target.Mapping{Path: p}); !m.IsFile() || strings.HasPrefix(p, "/memfd:") {
			return p
		}
		for d := path.Dir(p); len(d) > 1; d = path.Dir(d) {
			folders[d] = true
		}
		return "/" + path.Base(p)
	}
	for _, f := range r.Files {
		f.Path = bare(f.Path)
	}
	for _, m := range r.Moments {
		m.Executable = bare(m.Executable)
		m.Mappings = slices.Clone(m.Mappings)
		for i := range m.Mappings {
			m.Mappings[i].Path = bare(m.Mappings[i].Path)
		}
	}
	// Longest first: parents of a folder can remain in a text that was cut off.
	names := slices.SortedFunc(maps.Keys(folders), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	const few = 4 // characters: so few tell nothing, and may be another text
	for _, folder := range names {
		if len(folder) > few {
			r.blot(folder)
		}
	}
}

// blot overwrites every occurrence of a text with a text of equal length, in the encodings that
// programs keep paths in.
func (r *Corpus) blot(text string) {
	narrow, wide := []byte(text), make([]byte, 0, 2*len(text))
	for _, b := range narrow {
		wide = append(wide, b, 0)
	}
	over := func(data []byte) {
		for _, t := range [][]byte{narrow, wide} {
			for at := 0; ; at += len(t) {
				i := bytes.Index(data[at:], t)
				if i < 0 {
					break
				}
				at += i
				cross(data[at:at+len(t)], len(t)/len(text))
			}
			overCut(data, t, len(t)/len(text))
		}
	}
	for _, m := range r.Moments {
		for _, page := range m.Memory.Data {
			over(page)
		}
		for i := range m.Fragments {
			over(m.Fragments[i].Data)
		}
		for _, t := range m.Threads {
			over(t.Head) // longer than the object
			for i := range t.Stack {
				over(t.Stack[i].Data)
			}
		}
	}
}

// cross overwrites characters of width bytes each.
func cross(data []byte, width int) {
	for k := 0; k < len(data); k += width {
		data[k] = 'x'
	}
}

// overCut overwrites a text that begins on the previous page or ends on the next. A few
// characters of the text tell nothing, and may be another text.
func overCut(data, t []byte, width int) {
	const few = 4
	for k := len(t) - width; k > few*width; k -= width {
		if bytes.HasSuffix(data, t[:k]) {
			cross(data[len(data)-k:], width)
		}
		if bytes.HasPrefix(data, t[len(t)-k:]) {
			cross(data[:k], width)
		}
	}
}
