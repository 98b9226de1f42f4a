package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/export"

	"golang.org/x/sys/unix"
)

// nobody is neither root nor the user of the test.
const nobody = 65534

// sharedFolder is a directory that everybody can write to, like /tmp.
func sharedFolder(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can plant another user's files")
	}
	dir := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// preciousFile is a file that must not change.
func preciousFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(file, []byte("precious"), 0o644))
	return file
}

func unharmed(t *testing.T, precious string) {
	t.Helper()
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Fatalf("it was overwritten: %q, %v", text, err)
	}
}

// output writes text to a file as the verbs do.
func output(path, text string) error {
	o := outputFile{path: path, format: export.FormatFolded}
	p, err := o.open(nil, "program", time.Now())
	if err != nil {
		return err
	}
	return p.write(func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// TestOutputPlanted: a link or a pipe that another user has put in the output's place is neither followed nor written
// to.
func TestOutputPlanted(t *testing.T) {
	dir := sharedFolder(t)
	precious := preciousFile(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, to := range map[string]string{"planted": precious, "dangling": precious + "-new", "relative": "planted",
		"far": at("planted")} {
		must(t, os.Symlink(to, at(name)))
		must(t, os.Lchown(at(name), nobody, nobody))
	}
	must(t, os.Symlink(at("planted"), at("ours-to-theirs")))
	must(t, unix.Mkfifo(at("pipe"), 0o666))
	must(t, os.Chown(at("pipe"), nobody, nobody))
	for _, c := range []struct{ name, says string }{
		{"planted", "a symbolic link of user 65534"},
		{"dangling", "a symbolic link of user 65534"},
		{"relative", "a symbolic link of user 65534"},
		{"far", "a symbolic link of user 65534"},
		{"ours-to-theirs", "a symbolic link of user 65534"},
		{"pipe", "the file belongs to user 65534"},
	} {
		err := output(at(c.name), "text")
		if err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "choose another file with -o") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	unharmed(t, precious)
	if _, err := os.Stat(precious + "-new"); err == nil {
		t.Error("it was made")
	}
	nothingLeft(t, dir)
}

// TestOutputSwapped is TestOutputPlanted for a link that takes the file's place after the check.
func TestOutputSwapped(t *testing.T) {
	dir := sharedFolder(t)
	precious := preciousFile(t)
	file := filepath.Join(dir, "out")
	for _, was := range []bool{false, true} {
		if was {
			must(t, os.WriteFile(file, nil, 0o644))
		}
		o := outputFile{path: file, format: export.FormatFolded}
		p, err := o.open(nil, "program", time.Now())
		must(t, err)
		os.Remove(file) // may not be there
		must(t, os.Symlink(precious, file))
		must(t, p.write(func(w io.Writer) error { _, err := fmt.Fprint(w, "text"); return err }))
		unharmed(t, precious)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%v, %v", info, err)
		}
		must(t, os.Remove(file))
	}
	nothingLeft(t, dir)
}

// TestOutputSwappedDirect: a file is written in place, and another file takes its place. The other file is not
// truncated.
func TestOutputSwappedDirect(t *testing.T) {
	dir, precious := t.TempDir(), preciousFile(t)
	file := filepath.Join(dir, "out")
	must(t, os.WriteFile(file, []byte("before"), 0o644))
	p, err := locate(file)
	must(t, err)
	defer p.close()
	must(t, os.Remove(file))
	must(t, os.Link(precious, file))
	if f, err := p.openThere(); err == nil {
		f.Close()
		t.Error("it is opened")
	}
	unharmed(t, precious)
}

// TestOutputOthersFile: another user's file is replaced. The new file does not inherit the old file's permissions, and
// a hard link to the old file keeps the old contents.
func TestOutputOthersFile(t *testing.T) {
	dir := sharedFolder(t)
	precious := preciousFile(t)
	file := filepath.Join(dir, "out")
	must(t, os.Link(precious, file))
	must(t, output(file, "text"))
	unharmed(t, precious)
	must(t, os.Chown(file, nobody, nobody))
	must(t, os.Chmod(file, 0o666))
	must(t, output(file, "more"))
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm()&0o022 != 0 {
		t.Errorf("others can write to it: %v", info.Mode())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "more" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOutputLinks: the user's own links are followed, and in the user's own directories also the links of others. The
// file at the end of a link is replaced, not the link.
func TestOutputLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(at("folder"), 0o755))
	must(t, os.WriteFile(at("folder/real"), nil, 0o640))
	for name, to := range map[string]string{"link": "folder/real", "chain": at("link"), "new": "folder/new",
		"folder/up": "../folder/../up", "dir": "folder"} {
		must(t, os.Symlink(to, at(name)))
	}
	for name, real := range map[string]string{
		"link": "folder/real", "chain": "folder/real", "new": "folder/new", "folder/up": "up",
		"dir/inside": "folder/inside", "plain": "plain",
	} {
		must(t, output(at(name), name))
		if text, err := os.ReadFile(at(real)); err != nil || string(text) != name {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if info, err := os.Lstat(at(name)); err != nil || name != real && name != "dir/inside" &&
			info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: the link has been removed: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(at("folder/real")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	must(t, os.Symlink("loop", at("loop")))
	for _, name := range []string{"loop", "folder", "dir", "folder/", "nowhere/file"} {
		if err := output(at(name), "text"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	nothingLeft(t, dir)
	nothingLeft(t, at("folder"))
}

// TestOutputDevices: a device or pipe is written in place, because a device cannot be replaced.
func TestOutputDevices(t *testing.T) {
	must(t, output("/dev/null", "text"))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	must(t, output(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), "text"))
	must(t, w.Close())
	if text, err := io.ReadAll(r); err != nil || string(text) != "text" {
		t.Errorf("through a link of procfs: %q, %v", text, err)
	}
}

// TestOutputNamed: on a file system without O_TMPFILE, the temporary file is removed unless the file gets the output's
// name.
func TestOutputNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	for _, settles := range []bool{false, true, true} {
		p, err := locate(file)
		must(t, err)
		tmp, err := p.makeNamed()
		must(t, err)
		if left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*")); err != nil || len(left) != 1 {
			t.Errorf("%q, %v", left, err)
		}
		_, err = tmp.WriteString("text")
		must(t, err)
		if settles {
			must(t, tmp.settle())
		}
		must(t, tmp.discard())
		p.close()
		if text, err := os.ReadFile(file); settles != (err == nil) || settles && string(text) != "text" {
			t.Errorf("%q, %v", text, err)
		}
		nothingLeft(t, dir)
	}
}

// nothingLeft fails if a folder has incomplete files.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestOutputMode: only its owner can read a new file. A replaced file keeps its owner's permissions.
func TestOutputMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	mode := func() os.FileMode {
		info, err := os.Stat(file)
		must(t, err)
		return info.Mode().Perm()
	}
	must(t, output(file, "text"))
	if m := mode(); m != 0o600 {
		t.Errorf("a new file has mode %o", m)
	}
	must(t, os.Chmod(file, 0o640))
	must(t, output(file, "more"))
	if m := mode(); m != 0o640 {
		t.Errorf("a file that had mode 640 has %o", m)
	}
}
