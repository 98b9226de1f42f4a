package procroot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// tree makes a directory that plays the root of a process:
//
//	a/b/            a directory
//	relative -> a   links
//	absolute -> /a
//	out -> ../../../../../../etc
//	host -> the temporary directory, as this process sees it
func tree(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"relative": "a", "absolute": "/a", "out": "../../../../../../etc", "host": dir} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestOpenDir(t *testing.T) {
	root := tree(t)
	want, err := os.Stat(filepath.Join(root.Name(), "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/a/b", "/a/../a/b/", "/../../a/b", "/relative/b", "/absolute/b"} {
		d, err := OpenDir(root, dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if got, err := d.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s is another directory (%v)", dir, err)
		}
		d.Close()
	}
	for _, dir := range []string{"/out", "/host", "/host/a", "/nothing"} {
		if d, err := OpenDir(root, dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, %v", dir, d, err)
		}
	}
}

func TestOpenWithoutLinks(t *testing.T) {
	root := tree(t)
	for dir, want := range map[string]error{
		"/": nil, "/a/b": nil, "/../a/./b/": nil,
		"/relative": unix.ENOTDIR, "/absolute/b": unix.ENOTDIR, "/out": unix.ENOTDIR, "/host/a": unix.ENOTDIR, "/nothing": unix.ENOENT,
	} {
		fd, err := openWithoutLinks(int(root.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", dir, err, want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}

func TestOwnRoot(t *testing.T) {
	self, err := procfs.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	root, err := self.Root()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dir := t.TempDir()
	d, err := OpenDir(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := d.Readdirnames(-1); err != nil || len(names) != 1 || names[0] != "x" {
		t.Errorf("%v, %v", names, err)
	}
}
