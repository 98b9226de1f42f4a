package foreign

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes a root with a file inside, and a file beside the root that must not be reached.
func tree(t *testing.T) (root *os.File, outside string) {
	t.Helper()
	dir := t.TempDir()
	outside = filepath.Join(dir, "outside")
	for name, text := range map[string]string{
		"outside": "outside", "root/lib/file": "inside", "root/outside": "not that outside",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"relative": "lib/file", "absolute": "/lib/file", "up": "../../../../lib/file", "dir": "/lib",
		"chain": "absolute", "out": outside, "loop": "loop", "ping": "pong", "pong": "ping",
		"magic": "/proc/self/root" + outside,
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, "root", name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, outside
}

// TestOpenBelow: links lead where they would lead a process with the root as its root, both in the kernel's resolution
// and in Resolve.
func TestOpenBelow(t *testing.T) {
	root, _ := tree(t)
	byHand := func(root int, path string) (*os.File, error) {
		fd, err := Resolve(root, path, nil)
		if err != nil {
			return nil, err
		}
		return reopen(fd, path)
	}
	ways := map[string]func(int, string) (*os.File, error){"by the kernel": OpenBelow, "by hand": byHand}
	for way, open := range ways {
		for _, c := range []struct{ path, want string }{
			{"/lib/file", "inside"}, {"lib/file", "inside"}, {"/../../lib/./file", "inside"}, {"//lib//file", "inside"},
			{"/relative", "inside"}, {"/absolute", "inside"}, {"/up", "inside"}, {"/dir/file", "inside"},
			{"/chain", "inside"}, {"/dir/../outside", "not that outside"}, {"/../outside", "not that outside"},
			{"/out", ""}, {"/magic", ""}, {"/loop", ""}, {"/ping", ""},
			{"/lib", ""}, {"/", ""}, {"", ""}, {"/nothing", ""}, {"/lib/file/x", ""},
		} {
			f, err := open(int(root.Fd()), c.path)
			var text []byte
			if err == nil {
				text, err = io.ReadAll(f)
				f.Close()
			}
			if string(text) != c.want || (err != nil) != (c.want == "") {
				t.Errorf("%s, %q: %q, %v, want %q", way, c.path, text, err, c.want)
			}
		}
	}
}

// TestOpenDirBelow: the same for directories.
func TestOpenDirBelow(t *testing.T) {
	root, _ := tree(t)
	byHand := func(root int, path string) (*os.File, error) {
		fd, err := resolveDir(root, path)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), path), nil
	}
	for way, open := range map[string]func(int, string) (*os.File, error){
		"by the kernel": OpenDirBelow, "by hand": byHand,
	} {
		for _, c := range []struct {
			path, has string
			want      error
		}{
			{"/", "lib", nil}, {"/lib", "file", nil}, {"/lib/", "file", nil},
			{"/../../lib/../lib", "file", nil}, {"/dir", "file", nil},
			{"/lib/file", "", unix.ENOTDIR}, {"/relative", "", unix.ENOTDIR}, {"/lib/file/x", "", unix.ENOTDIR},
			{"/out", "", unix.ENOENT}, {"/magic", "", unix.ENOENT}, {"/nothing", "", unix.ENOENT},
			{"/loop", "", unix.ELOOP},
		} {
			f, err := open(int(root.Fd()), c.path)
			var names []string
			if err == nil {
				names, err = f.Readdirnames(-1)
				f.Close()
			}
			if !errors.Is(err, c.want) || err == nil && !slices.Contains(names, c.has) {
				t.Errorf("%s, %q: %q, %v, want %q, %v", way, c.path, names, err, c.has, c.want)
			}
		}
	}
}

// TestOpenSpecial: only regular files are opened: to open a pipe would block, and tell the pipe's writer that somebody
// reads.
func TestOpenSpecial(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, link, dir, "/dev/null", "/dev/tty"} {
		if f, err := Open(name); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	// Nobody has opened the pipe: there is no reader.
	if fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.ENXIO {
		t.Errorf("the pipe has a reader: %d, %v", fd, err)
	}
	f, err := Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("programs that are started get the file: %#x, %v", flags, err)
	}
}

// TestOpenClosesAll: no descriptor stays open, with success or with an error.
func TestOpenClosesAll(t *testing.T) {
	root, _ := tree(t)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for _, path := range []string{"/dir/file", "/up", "/loop", "/lib", "/nothing", "/lib/file/x", "/chain"} {
		if fd, err := Resolve(int(root.Fd()), path, nil); err == nil {
			if f, err := reopen(fd, path); err == nil {
				f.Close()
			}
		}
		if fd, err := resolveDir(int(root.Fd()), path); err == nil {
			unix.Close(fd)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}
