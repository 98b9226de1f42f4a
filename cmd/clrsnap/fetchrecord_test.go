package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"clrsnap/export"
	"clrsnap/internal/livetest"
	"clrsnap/profile"
)

// readRecording reads a recording from a file.
func readRecording(t *testing.T, file string) *profile.Recording {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := export.ReadRecording(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hasRecorded is hasSymbols of a recording.
func (u *unsymbolled) hasRecorded(t *testing.T, r *profile.Recording) bool {
	t.Helper()
	found := map[string]string{}
	for i := range r.Locations {
		l := &r.Locations[i]
		method := r.Functions[l.Function].Method
		if line := r.SourceLine(l); line != nil && (method == "InMemory.Program.Wait" || method == "shop_shelf") {
			found[method] = fmt.Sprintf("%s %d", line.File, line.Line)
		}
	}
	if len(found) == 0 {
		return false
	}
	native := fmt.Sprintf("/testdata/apps/inmemory/shop.c %d", livetest.NativeLines(t)["shop_shelf"])
	if line := u.Ask("line")[0]; found["InMemory.Program.Wait"] != line || found["shop_shelf"] != native {
		t.Errorf("%v, want lines %s and %s", found, line, native)
	}
	return true
}

// TestSymbolsOfRecordings: recordings get missing symbols from servers, at the recording or at the view, and from
// folders, for native code as well as managed code. Nobody is asked unless the user says so.
func TestSymbolsOfRecordings(t *testing.T) {
	t.Parallel()
	u := startUnsymbolled(t)
	dir := t.TempDir()
	folder := filepath.Join(dir, "symbols")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"inmemory.pdb": u.server.files["inmemory.pdb"], "libshop.so.debug": u.server.files["_.debug"],
	} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bare := filepath.Join(dir, "bare.clrsnap")
	record := func(to string, more ...string) []string {
		return append([]string{"record", fmt.Sprint(u.PID), "-m", "wall", "-r", "19", "-d", "700ms", "-o", to}, more...)
	}
	view := func(to string, more ...string) []string {
		return append([]string{"view", bare, "-o", to}, more...)
	}
	server := []string{"--symbol-server", u.server.URL}
	for _, c := range []struct {
		name string
		args func(to string, more ...string) []string
		more []string
		has  bool
		asks bool
	}{
		{"bare", record, nil, false, false},
		{"record", record, server, true, true},
		{"record without lines", record, append([]string{"--lines=never"}, server...), false, false},
		{"view, from the cache", view, server, true, false},
		{"view with folders", view, []string{"--symbols", folder}, true, false},
		{"view without lines", view, append([]string{"--lines=never"}, server...), false, false},
		{"view", view, server, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := filepath.Join(dir, c.name+".clrsnap")
			if c.name == "view" {
				u.cache = t.TempDir()
			}
			u.server.take()
			cmd := u.command()
			cmd.Args = append(cmd.Args[:1], c.args(to, c.more...)...)
			if r := finish(t, cmd); r.status != 0 {
				t.Fatalf("status %d: %s", r.status, r.stderr)
			}
			if has := u.hasRecorded(t, readRecording(t, to)); has != c.has {
				t.Errorf("symbols: %v, want %v", has, c.has)
			}
			asked := map[string]int{}
			for _, path := range u.server.take() {
				asked[path]++
			}
			for path, n := range asked {
				if n > 1 {
					t.Errorf("the server was asked %d times for %s", n, path)
				}
			}
			pdb, debug := 0, 0
			for path := range asked {
				if strings.Contains(path, "inmemory.pdb") {
					pdb++
				} else if strings.Contains(path, "_.debug") {
					debug++
				}
			}
			// A server's lack of debug files for other libraries is not remembered.
			if (pdb > 0) != c.asks || (debug > 0) != c.asks && (c.asks || !c.has) {
				t.Errorf("the server was asked %d times for the PDB, %d times for debug files", pdb, debug)
			}
		})
	}
	livetest.EndsWell(t, u.App)
}

// TestSlowServerOfRecording: Ctrl-C ends the fetch of symbols, and the recorded samples are kept.
func TestSlowServerOfRecording(t *testing.T) {
	u := startUnsymbolled(t)
	u.server.hang = true
	to := filepath.Join(t.TempDir(), "app.clrsnap")
	cmd := u.command()
	cmd.Args = append(cmd.Args[:1], "record", fmt.Sprint(u.PID), "-m", "wall", "-d", "300ms", "-o", to,
		"--symbol-server", u.server.URL)
	r := launch(t, cmd)
	r.await(t, regexp.MustCompile(`clrsnap: fetching \S+ from 127\.0\.0\.1.* …\n`))
	r.signal(t, syscall.SIGINT)
	if end := r.end(t); end.status != 0 || len(readRecording(t, to).Samples) == 0 {
		t.Errorf("status %d: %s", end.status, end.stderr)
	}
	livetest.EndsWell(t, u.App)
}
