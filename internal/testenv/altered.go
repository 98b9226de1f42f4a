package testenv

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Altered copies an ordinary runtime and replaces some texts in the copy's library by others of the same length. The
// copy claims another version, or other contracts. The copy is for Options.Runtime, and is removed at the end of the
// test.
func Altered(tb testing.TB, runtime string, texts map[string]string) string {
	tb.Helper()
	kit := Kit(tb)
	kit.Need(tb, runtime)
	host := kit.Host(runtime)
	from, to := filepath.Dir(host), tb.TempDir()
	if err := copyFile(host, filepath.Join(to, "dotnet")); err != nil {
		tb.Fatal(err)
	}
	link(tb, from, to, "host")
	framework, err := filepath.Glob(filepath.Join(from, frameworkFolder, "*"))
	if err != nil || len(framework) != 1 {
		tb.Fatalf("%d frameworks in %s, %v", len(framework), from, err)
	}
	rel, err := filepath.Rel(from, framework[0])
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to, rel), 0o755); err != nil {
		tb.Fatal(err)
	}
	files, err := os.ReadDir(framework[0])
	if err != nil {
		tb.Fatal(err)
	}
	const library = "libcoreclr.so"
	for _, f := range files {
		if f.Name() != library {
			link(tb, framework[0], filepath.Join(to, rel), f.Name())
		}
	}
	b, err := os.ReadFile(filepath.Join(framework[0], library))
	if err != nil {
		tb.Fatal(err)
	}
	for old, text := range texts {
		if len(old) != len(text) || !bytes.Contains(b, []byte(old)) {
			tb.Fatalf("%s has no %q, or %q is not as long", library, old, text)
		}
		b = bytes.ReplaceAll(b, []byte(old), []byte(text))
	}
	if err := os.WriteFile(filepath.Join(to, rel, library), b, 0o755); err != nil {
		tb.Fatal(err)
	}
	return Framework(runtime) + ":" + filepath.Join(to, "dotnet")
}

func link(tb testing.TB, from, to, name string) {
	tb.Helper()
	if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
		tb.Fatal(err)
	}
}
