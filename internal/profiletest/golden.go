// Package profiletest has recordings that the tests of several packages use, and golden
// files.
package profiletest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// Golden compares output with a file in testdata. With -update, Golden writes the file.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: write it with -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update writes it):\n%s", file, got)
	}
}

// ErrFull is the error of Full.
var ErrFull = errors.New("full")

// Full is a disk that is full.
type Full struct{}

func (Full) Write([]byte) (int, error) { return 0, ErrFull }
