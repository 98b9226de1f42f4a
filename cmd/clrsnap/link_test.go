package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/snapshot"
)

func TestLink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b.cs", "run.desktop", "x.CPP"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Mkdir(filepath.Join(dir, "folder.cs"), 0o700)
	_ = os.Symlink(dir, filepath.Join(dir, "own"))
	_ = os.Symlink(filepath.Join(dir, "a b.cs"), filepath.Join(dir, "link.cs"))
	if os.Geteuid() == 0 {
		_ = os.Symlink(dir, filepath.Join(dir, "strange"))
		_ = os.Lchown(filepath.Join(dir, "strange"), 12345, 12345)
	}
	l := &linker{host: "here", files: true, known: map[string]bool{}}
	const url = "https://example.com/a.cs"
	local := "file://here" + strings.ReplaceAll(dir, " ", "%20")
	for file, want := range map[string]string{
		dir + "/a b.cs": local + "/a%20b.cs", dir + "/own/x.CPP": local + "/own/x.CPP", dir + "/run.desktop": url,
		dir + "/folder.cs": url, dir + "/gone.cs": url, dir + "/../x.cs": url, "a b.cs": url, "": url, `C:\a.cs`: url,
		dir + "/strange/a b.cs": url, dir + "/a b.cs/b.cs": url, dir + "/link.cs": url,
	} {
		for range 2 {
			if got := l.link(&snapshot.SourceLine{File: file, URL: url}); got != want {
				t.Errorf("%s: %s, want %s", file, got, want)
			}
		}
	}
	l.files = false
	if got := l.link(&snapshot.SourceLine{File: dir + "/a b.cs"}); got != "" {
		t.Errorf("a link to %s", got)
	}
	if got := l.link(&snapshot.SourceLine{File: "x.cs", URL: "http://example.com"}); got != "" {
		t.Errorf("a link to %s", got)
	}
}

func TestLinksTo(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		color, force string
		want         bool
	}{{"auto", "", false}, {"always", "", false}, {"auto", "1", true}, {"auto", "0", false}, {"never", "1", false}} {
		if c.force == "" {
			os.Unsetenv("FORCE_HYPERLINK")
		} else {
			t.Setenv("FORCE_HYPERLINK", c.force)
		}
		if got := (&app{color: c.color}).linksTo(null); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
