package lines

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// marks are the marked lines of the program's sources, by place.
type marks map[string]map[place]bool

func (m marks) has(name string, at place) bool { return m[name][at] }

// sources is the folder of the sources; the compiler calls the folder compiled.
const sources, compiled = "../../../testdata/apps/lines", "/testdata/apps/lines"

// readMarks finds comments like "// @lambda @closure", also at the end of another comment.
func readMarks(t *testing.T) marks {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(sources, "*.cs"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no sources", err)
	}
	m := marks{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(f)
		for n := 1; s.Scan(); n++ {
			_, comment, _ := strings.Cut(s.Text(), "// ")
			for _, word := range strings.Fields(comment) {
				if of, ok := strings.CutPrefix(word, "@"); ok {
					if m[of] == nil {
						m[of] = map[place]bool{}
					}
					m[of][place{compiled + "/" + filepath.Base(name), n}] = true
				}
			}
		}
		f.Close()
	}
	return m
}
