package role

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var adder = New("adder", func(a Args) error {
	if a.Int(0) < 0 {
		return errors.New("less than nothing")
	}
	fmt.Printf("%d %q %q\n", a.Int(0)+a.Int(1), a[2], os.Getenv(variable))
	return nil
})

func TestMain(m *testing.M) { Main(m) }

// TestRole: a role gets its arguments and does not pass itself on, and its error ends the process.
func TestRole(t *testing.T) {
	if out, err := adder.Command(40, 2, "a b").Output(); err != nil || string(out) != "42 \"a b\" \"\"\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := adder.Command(-1).Output(); err == nil || string(out) != "less than nothing\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestCopy: a copy of the binary plays the same roles.
func TestCopy(t *testing.T) {
	cmd := adder.Command(1, 1, "")
	cmd.Path = filepath.Join(t.TempDir(), "copy")
	if err := Copy(cmd.Path); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.Output(); err != nil || string(out) != "2 \"\" \"\"\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestNoRole: an unknown role is an error.
func TestNoRole(t *testing.T) {
	cmd := (&Role{"nobody"}).Command()
	if out, err := cmd.Output(); err == nil || string(out) != "there is no role nobody\n" {
		t.Errorf("%q, %v", out, err)
	}
}
