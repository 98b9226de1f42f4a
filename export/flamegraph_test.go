package export_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"clrsnap/export"
	"clrsnap/profile"
)

func page(tb testing.TB, r *profile.Recording, o export.FlameOptions) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := export.FlameGraph(&b, r, o); err != nil {
		tb.Fatal(err)
	}
	if dir := os.Getenv("CLRSNAP_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, tb.Name()+".html"), b.Bytes(), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestPictures takes pictures of the page for people to look at, where
// CLRSNAP_PICTURES names a folder.
func TestPictures(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.media("prefers-color-scheme=light")
	b.load(page(t, synthetic(20, 1), export.FlameOptions{}))
	b.picture("light")
	b.check(t)
	b.media("prefers-color-scheme=dark")
	b.picture("dark")
}
