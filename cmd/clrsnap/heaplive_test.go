package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

func TestHeap(t *testing.T) {
	layer.Check(t)
	t.Parallel()
	testenv.EachOf(t, testenv.Supported(), testHeap)
}

func testHeap(t *testing.T, runtime string) {
	app := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Args: []string{"--megabytes", "100"}})
	pid := fmt.Sprint(app.PID)
	file := filepath.Join(t.TempDir(), "before.json")

	good(t, "heap", pid).want(t, `^Process `+pid+` · \.NET 1[01]\.`, `^ +100\.0  gen1$|^.* 100\.0  gen2$`,
		`^ .* 1,000,000 .*  Shop\.Filler  heap$`, `^  and \d+ more types: --limit 0 shows all$`)
	good(t, "heap", pid, "--type", `^Shop\.Line\[,\]$`).want(t, `^5 objects match`, `  Shop\.Line\[,\]$`)
	good(t, "heap", pid, "--strings", "-n", "3").want(t, `1,000,000  "x{15}"$`)

	good(t, "heap", pid, "--stop", "-n", "1").want(t, `^108.* · stopped for \d+(\.\d+)?ms$`)
	good(t, "heap", pid, "--stop", "--max-pause", "10ms", "--max-cpu", "1").want(t,
		`^This is not the heap of one moment: .*\. The program stood still for \d+(\.\d+)?ms, and the heap was then `+
			`read while the program ran`)

	var doc struct {
		TotalBytes      uint64
		ConsistentShare float64
		Stop            struct {
			Exact             bool
			Stops, Threads    int
			PauseMilliseconds float64
		}
		Heaps []any
		Types []struct {
			Type       string
			Count      int
			Generation map[string]float64
		}
	}
	good(t, "heap", pid, "--json", "-o", file)
	if err := json.Unmarshal([]byte(good(t, "heap", pid, "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Stop.Exact || doc.ConsistentShare != 1 || len(doc.Heaps) != 1 || len(doc.Types) < 50 ||
		doc.TotalBytes < 100e6 {
		t.Errorf("%+v", doc)
	}
	if err := json.Unmarshal([]byte(good(t, "heap", pid, "--stop", "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if s := doc.Stop; !s.Exact || s.Stops < 1 || s.Threads < 5 || s.PauseMilliseconds <= 0 {
		t.Errorf("%+v", s)
	}
	app.Ask("leak 5000")
	good(t, "heap", pid, "--diff", file).want(t, `^Since the earlier heap: \+5\.\d+ MiB, \+2\d,\d+ objects`,
		`\+5,000 .*  Shop\.Listener  heap$`)
	good(t, "heap", pid, "--every", "1s", "--looks", "2", "-n", "3").want(t,
		`^Since the earlier heap: .*, in \d+(\.\d)?s$`)
	checkInterrupted(t, pid)
	checkHeapFiles(t, pid, file)
}

// checkHeapFiles: the file's extension chooses a picture, or a format for other tools.
func checkHeapFiles(t *testing.T, pid, before string) {
	t.Helper()
	dir := t.TempDir()
	for _, x := range []struct {
		name  string
		flags []string
		has   []string
	}{
		{"heap.html", nil, []string{`"id":"namespaces"`, `"Shop.Filler"`}},
		{"grown.svg", []string{"--diff", before}, []string{"</svg>", "Shop.Listener\n"}},
		{"grown.html", []string{"--every", "1s", "--looks", "2"}, []string{`"base":true`}},
		{"kept.html", []string{"--retained"}, []string{`"id":"keepers"`, `"Shop.Shelves.bulk (static)"`}},
		{"heap.gcdump", nil, []string{"!FastSerialization.1", "Shop.Filler", "[static var Shop.Shelves.bulk]",
			"[strong handles]", "[local vars (conservative)]"}},
	} {
		path := filepath.Join(dir, x.name)
		r := good(t, append([]string{"heap", pid, "-o", path}, x.flags...)...)
		if !strings.Contains(r.stderr, x.name+" has 2,") || !strings.Contains(r.stderr, " objects of ") {
			t.Errorf("%s: %s", x.name, r.stderr)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range x.has {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", x.name, want)
			}
		}
	}
}

// checkInterrupted: Ctrl-C keeps the results until then.
func checkInterrupted(t *testing.T, pid string) {
	t.Helper()
	c := exec.Command("clrsnap", "heap", pid, "--max-cpu", "0.01")
	time.AfterFunc(time.Second, func() { _ = c.Process.Signal(syscall.SIGINT) }) // the status tells if the signal came
	r := finish(t, c)
	r.want(t, `^Interrupted: only a part of the heap was read\.$`)
	if r.status != 128+int(syscall.SIGINT) || !strings.Contains(r.stderr, "interrupted by SIGINT") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
}

// TestHeapSpellings: types are found by their names in C#, in the runtime's spelling and in debuggers' spelling. If
// nothing matches, similar names are shown.
func TestHeapSpellings(t *testing.T) {
	const generic = "System.Collections.Generic."
	const arguments = "[[System.Int32, System.Private.CoreLib],[Shop.Order, keepers]]"
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		app := testenv.Start(t, "keepers", testenv.Options{Runtime: runtime})
		pid := fmt.Sprint(app.PID)
		for pattern, class := range map[string]string{
			"^string$": "string", "System.String": "string", `^System\.String$`: "string", "System.Byte[]": "byte[]",
			"byte[]": "byte[]", "Shop.Order": "Shop.Order",
			generic + "List`1":                                generic + "List<object>",
			"^" + generic + "List`1$":                         generic + "List<object>",
			generic + "List<System.Object>":                   generic + "List<object>",
			generic + "List`1[System.Object]":                 generic + "List<object>",
			generic + "Dictionary`2" + arguments:              generic + "Dictionary<int, Shop.Order>",
			generic + "Dictionary`2+Entry" + arguments + "[]": generic + "Dictionary<int, Shop.Order>+Entry[]",
		} {
			want := `^ .*  ` + regexp.QuoteMeta(class) + `$`
			good(t, "heap", pid, "--limit", "0", "--full", "--type", pattern).want(t, want, `^[0-9,]+ objects? match`)
			good(t, "heap", pid, "--limit", "0", "--full", "--roots", pattern).want(t,
				`^  → `+regexp.QuoteMeta(class)+`(  ↻.*)?$`)
		}
		for _, flag := range []string{"--type", "--roots"} {
			good(t, "heap", pid, flag, "Shop.Ordr").want(t,
				`^no object is of a type that matches; the nearest names are:$`, `^  Shop\.Order$`)
			good(t, "heap", pid, flag, "^Orders$", "--json").want(t, `"nearest":\["Shop\.Order"`)
			good(t, "heap", pid, flag, "Qwertzuiop").want(t, `^no object is of a type that matches$`)
		}
	})
}
