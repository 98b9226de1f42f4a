package recording

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/target"
)

// anonymise takes away where the target's files were: their names are enough.
func (r *Recording) anonymise() {
	folders := map[string]bool{}
	bare := func(p string) string {
		if m := (target.Mapping{Path: p}); !m.IsFile() || strings.HasPrefix(p, "/memfd:") {
			return p
		}
		folders[path.Dir(p)] = true
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
	for folder := range folders {
		if len(folder) > 1 {
			r.blot(folder)
		}
	}
}

// blot writes over every occurrence of a text, in the encodings that programs
// keep paths in, with as much of something else.
func (r *Recording) blot(text string) {
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
				for k := 0; k < len(t); k += len(t) / len(text) {
					data[at+k] = 'x'
				}
			}
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
			for i := range t.Stack {
				over(t.Stack[i].Data)
			}
		}
	}
}
