package source

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRoots: where files are on this machine. No name leads out of a root, and the found file is the
// compiled file.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	text := []byte("class Queue { }\n")
	sum := sha256.Sum256(text)
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("Shop/Queue.cs", text)
	write("Queue.cs", []byte("class Queue { int changed; }\n"))
	write("Other.cs", text)
	for _, c := range []struct {
		name  string
		roots Roots
		want  string // without dir; "-": none
	}{
		{"/build/src/Shop/Queue.cs", Roots{NewRoot("/build/src", "/home/me")}, "/home/me/Shop/Queue.cs"},
		{"/build/src/Shop/Queue.cs", Roots{NewRoot("/build/src/", "/home/me/")}, "/home/me/Shop/Queue.cs"},
		{`C:\work\Shop\Queue.cs`, Roots{NewRoot(`C:\work`, "/home/me")}, "/home/me/Shop/Queue.cs"},
		{"/build/src2/Queue.cs", Roots{NewRoot("/build/src", "/home/me")}, "-"},
		{"/build/src/../../../etc/passwd", Roots{NewRoot("/build/src", "/home/me")}, "/home/me/etc/passwd"},
		{"/build/src/Queue.cs", Roots{NewRoot("/other", "/a"), NewRoot("/build", "/b")}, "/b/src/Queue.cs"},
		{"/build/src/Shop/Queue.cs", Roots{NewRoot("", dir)}, dir + "/Shop/Queue.cs"},
		{`C:\work\Shop\Queue.cs`, Roots{NewRoot("", dir)}, dir + "/Shop/Queue.cs"},
		{"/build/Queue.cs", Roots{NewRoot("", dir)}, "-"}, // another text
		{"/build/Gone.cs", Roots{NewRoot("", dir)}, "-"},
		{"", Roots{NewRoot("", dir)}, "-"},
		{strings.Repeat("x/", 2000) + "Shop/Queue.cs", Roots{NewRoot("", dir)}, dir + "/Shop/Queue.cs"},
		{"../" + filepath.Base(dir) + "/Other.cs", Roots{NewRoot("", filepath.Join(dir, "Shop"))}, "-"},
	} {
		got := c.roots.Path(c.name, "SHA256", sum[:])
		if c.want == "-" {
			c.want = ""
		}
		if got != c.want {
			t.Errorf("%.60s of %v: %q, want %q", c.name, c.roots, got, c.want)
		}
	}
	if p := (Roots{NewRoot("", dir)}).Path("/build/src/Shop/Queue.cs", "", nil); p != "" {
		t.Errorf("without a checksum: %s", p)
	}
	for name, want := range map[string]bool{"Shop/Queue.cs": true, "Queue.cs": false, "Shop": false, "gone": false} {
		if _, ok := Text(filepath.Join(dir, name), "SHA256", sum[:]); ok != want {
			t.Errorf("the text of %s: %v", name, ok)
		}
	}
	for link, to := range map[string]string{"link.cs": "Shop/Queue.cs", "secret.cs": "secret.key"} {
		if to == "secret.key" {
			if err := os.Link(filepath.Join(dir, "Shop/Queue.cs"), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		if _, ok := Text(filepath.Join(dir, link), "SHA256", sum[:]); ok != (link == "link.cs") {
			t.Errorf("the text of %s, which leads to %s: %v", link, to, ok)
		}
	}
	if _, ok := Text(filepath.Join(dir, "Shop/Queue.cs"), "MD5", sum[:]); ok {
		t.Error("a checksum of an unknown kind")
	}
}

// TestRootLinks: a link in a folder of sources that leads out of the folder is not followed, whoever made the link, and
// however the folder is named. Links within the folder are followed.
func TestRootLinks(t *testing.T) {
	text := []byte("class Secret { }\n")
	sum := sha256.Sum256(text)
	top := t.TempDir()
	root := filepath.Join(top, "src")
	for _, dir := range []string{"src/in", "src-2", "out"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"out/a.cs", "src-2/a.cs", "src/in/b.cs"} {
		if err := os.WriteFile(filepath.Join(top, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"src/file.cs": "../out/a.cs", "src/whole.cs": filepath.Join(top, "out/a.cs"), "src/folder": "../out",
		"src/beside": "../src-2", "src/chain.cs": "folder/a.cs", "src/self.cs": "in/b.cs",
		"src/up.cs":   "../src/in/b.cs",
		"src/proc.cs": "/proc/self/root" + filepath.Join(top, "out/a.cs"), "link": "src", "src/gone.cs": "../out/c.cs",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{root, root + "/", filepath.Join(top, "link"), filepath.Join(top, "out/../src")} {
		for name, want := range map[string]bool{
			"file.cs": false, "whole.cs": false, "folder/a.cs": false, "beside/a.cs": false, "chain.cs": false,
			"proc.cs": false, "gone.cs": false, "self.cs": true, "up.cs": true, "in/b.cs": true,
		} {
			for _, roots := range []Roots{{NewRoot("/build", to)}, {NewRoot("", to)}} {
				p := roots.Path("/build/"+name, "SHA256", sum[:])
				if roots[0].From == "" && (p != "") != want {
					t.Errorf("%s below %s: path %q", name, to, p)
				}
				if _, ok := roots.Text(p, "SHA256", sum[:]); ok != want {
					t.Errorf("the text of %s below %s: %v", name, to, ok)
				}
			}
		}
		if _, ok := (Roots{NewRoot("", to)}).Text(filepath.Join(top, "out/a.cs"), "SHA256", sum[:]); ok {
			t.Error("a file outside of the folder")
		}
	}
}

// TestFileName: an assembly built on Windows names its PDB by a path of Windows.
func TestFileName(t *testing.T) {
	for path, want := range map[string]string{
		"/src/obj/Shop.pdb": "Shop.pdb", `C:\src\obj\Shop.pdb`: "Shop.pdb", "Shop.pdb": "Shop.pdb",
		`C:\src/obj\a b.pdb`: "a b.pdb",
	} {
		if got := fileName(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
