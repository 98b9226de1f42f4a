package clrsnap_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestLines: lines of code have at most 120 columns, where a tab has four, but for the outputs of examples.
func TestLines(t *testing.T) {
	const most, output = 120, "\t// {"
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		b, err := os.ReadFile(path)
		for i, line := range strings.Split(string(b), "\n") {
			n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if n > most && !strings.HasPrefix(line, output) {
				t.Errorf("%s:%d has %d columns", path, i+1, n)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
