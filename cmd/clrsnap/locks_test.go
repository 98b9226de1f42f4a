package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

// TestLocks: clrsnap locks tells a deadlock by its exit status, in words, as JSON and as a picture, of a running
// program and of a dump.
func TestLocks(t *testing.T) {
	t.Parallel()
	testenv.EachOf(t, testenv.Supported(), testLocks)
}

func testLocks(t *testing.T, runtime string) {
	a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime})
	pid := fmt.Sprint(a.PID)
	found := func(args ...string) result {
		t.Helper()
		r := command(t, append([]string{"locks"}, args...)...)
		if r.status != exitFound || r.stderr != "" {
			t.Fatalf("clrsnap locks %v: status %d: %s", args, r.status, r.stderr)
		}
		return r
	}
	const order = `Deadlocks\.Order 0x[0-9a-f]+ \(variable order of Monitors\)`
	const stock = `Deadlocks\.Stock 0x[0-9a-f]+ \(variable stock of Monitors\)`
	circle := `two-1 \(\d+\) holds ` + order + ` and waits for ` + stock + `, held by two-2 \(\d+\), ` +
		`which waits for ` + order + `, held by two-1 \(\d+\)`
	found(pid).want(t, "^Deadlock: "+circle+"$", `^    Deadlocks\.Monitors\.Two.*deadlocks/Monitors\.cs:~?\d+`,
		"^Circle of waits: timed-1 .*: the circle ends by itself, because one thread waits for at most 60 min$",
		`^\d+ deadlocks, 2 suspected, \d+ likely`)
	testenv.UntilSeen(t, func() string {
		r := found(pid, "--stop")
		if !strings.Contains(r.stdout, "\nAll of one moment: all threads were stopped for ") {
			return "locks of one moment"
		}
		r.want(t, "^Deadlock: "+circle+"$", `^\d+ deadlocks, 2 suspected, \d+ likely`)
		return ""
	})
	found(pid, "--dot").want(t, "^digraph locks {$", "color=red", "^}$")
	var got struct {
		Deadlocks []struct {
			Text    string
			Certain bool
			Threads []struct{ OSThreadID int }
		}
	}
	if err := json.Unmarshal([]byte(found(pid, "--json").stdout), &got); err != nil || len(got.Deadlocks) < 15 {
		t.Fatalf("%v, %d deadlocks", err, len(got.Deadlocks))
	}
	for _, d := range got.Deadlocks {
		if !d.Certain || len(d.Threads) == 0 || !strings.HasPrefix(d.Text, "Deadlock: ") {
			t.Errorf("%+v", d)
		}
	}
	dir := t.TempDir()
	for _, kind := range []string{"svg", "html"} {
		file := filepath.Join(dir, "locks."+kind)
		found(pid, "--"+kind, file).want(t, "^Deadlock: "+circle)
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), "two-1") {
			t.Fatalf("%s: %v", file, err)
		}
		if kind == "svg" {
			wellFormed(t, string(b))
		}
	}
	dump := testenv.GCoreDump(t, a.PID)
	r := found("--core", dump)
	r.stdout = strings.ReplaceAll(r.stdout, " (?)", "") // nothing proves the file of an assembly without code
	r.want(t, "^Deadlock: "+circle+"$")
	text := filepath.Join(dir, "locks.txt")
	found("--core", dump, "-o", text)
	if b, err := os.ReadFile(text); err != nil || !strings.Contains(string(b), "Deadlock: two-1") {
		t.Errorf("%v", err)
	}
}

// TestLocksVerdict: a found deadlock counts, whatever goes wrong later.
func TestLocksVerdict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stderr")
	stderr, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	a := &app{stderr: stderr}
	gone := errors.New("the process has exited")
	said := ""
	for _, tt := range []struct {
		found bool
		err   error
		want  error
		said  string
	}{
		{false, nil, nil, ""},
		{false, gone, gone, ""},
		{true, nil, statusError(exitFound), ""},
		{true, gone, statusError(exitFound), "clrsnap: warning: the process has exited\n"},
	} {
		said += tt.said
		got := a.verdict(tt.found, tt.err)
		if b, err := os.ReadFile(file); err != nil || got != tt.want || string(b) != said {
			t.Errorf("%v, %v: %v, said %q (%v)", tt.found, tt.err, got, b, err)
		}
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLocksOfHealthy: without a deadlock the status is 0, or 1 if something is missing.
func TestLocksOfHealthy(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{})
	good(t, "locks", fmt.Sprint(a.PID)).want(t, "^no deadlock · ")
	if r := command(t, "locks", "1"); r.status != exitFailure || !strings.Contains(r.stderr, "clrsnap") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
}
