package replay

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
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
	by := strings.Repeat("x", len(text))
	over := func(data []byte) { recorded.Overwrite(data, text, by) }
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
