package symbols

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mkdir(t *testing.T, mode os.FileMode, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlaceOfCache: the cache is never where another user can put a file, or change a directory on the path.
func TestPlaceOfCache(t *testing.T) {
	base := mkdir(t, 0o755, t.TempDir(), "base")
	open := mkdir(t, 0o777|os.ModeSticky, base, "open")
	loose := mkdir(t, 0o777, base, "loose")
	own := mkdir(t, 0o700, open, "own")
	group := mkdir(t, 0o770, open, "group")
	if err := os.Symlink(own, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		filepath.Join(own, "cache"): "", filepath.Join(base, "link", "deep", "cache"): "", "relative": "absolute",
		filepath.Join(open, "cache"): "other users can write", filepath.Join(group, "cache"): "other users can write",
		filepath.Join(loose, "cache"): "other users can write", group: "other users can write",
		filepath.Join(base, "file", "cache"): "not a directory",
	}
	if os.Geteuid() == 0 {
		strange := mkdir(t, 0o755, open, "strange")
		if err := os.Lchown(strange, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		planted := filepath.Join(open, "planted")
		if err := os.Symlink(own, planted); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(planted, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		cases[filepath.Join(strange, "cache")] = "user 12345"
		cases[filepath.Join(planted, "cache")] = "user 12345"
	}
	for path, says := range cases {
		s, err := New(Options{Cache: path})
		if err != nil {
			t.Fatal(err)
		}
		switch err := s.Uncached(); {
		case says == "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: %v, want %q", path, err, says)
		case says == "":
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", path, st.Mode(), err)
			}
		}
		s.Close()
	}
}

// TestSpoiltCache: files in the cache are verified, links are not followed, and wrong files are fetched again.
func TestSpoiltCache(t *testing.T) {
	image := elf(someID)
	asked := 0
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked++; _, _ = w.Write(image) })
	dir := filepath.Join(t.TempDir(), "cache")
	name := filepath.Join(dir, debugKey.cached())
	away := filepath.Join(t.TempDir(), "away")
	spoil := []func() error{
		func() error { return nil }, // the cache is still empty
		func() error { return os.WriteFile(name, image[:50], 0o600) },
		func() error { return os.WriteFile(name, elf([]byte("another")), 0o600) },
		func() error {
			_ = os.WriteFile(away, image, 0o600)
			_ = os.Remove(name)
			return os.Symlink(away, name)
		},
		func() error { _ = os.Remove(name); return unix.Mkfifo(name, 0o600) },
	}
	for i, do := range spoil {
		if err := do(); err != nil && i > 0 {
			t.Fatal(err)
		}
		f, err := newStore(t, Options{Cache: dir}, address).Open(t.Context(), debugKey)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		f.Close()
		if asked != i+1 {
			t.Errorf("%d: the server was asked %d times", i, asked)
		}
		if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
			t.Errorf("%d: %v, %v", i, st.Mode(), err)
		}
	}
	if b, err := os.ReadFile(away); err != nil || len(b) != len(image) {
		t.Error("the file that a link led to was changed", err)
	}
}

// TestRoomInCache: the files unused for longest make room, and abandoned temporary files are removed.
func TestRoomInCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.dir.Close()
	make := func(name string, size int64, age time.Duration) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	make("old", 2<<30, 3*time.Hour)
	make("older", 1<<30, 4*time.Hour)
	make("new", 1<<30, time.Hour)
	make(tempName+"left", 1, 2*abandoned)
	make(tempName+"busy", 1, time.Minute)
	if f, err := c.open("older"); err != nil { // opening counts as a use
		t.Fatal(err)
	} else {
		f.Close()
	}
	c.room(1 << 30)
	var left []string
	for _, f := range entries(t, dir) {
		left = append(left, f.Name())
	}
	if got, want := strings.Join(left, " "), tempName+"busy new older"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}
