package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestViewWork records a service with idle threads, and checks the views for people: the program's own code first, idle
// threads only on demand, and who calls whom.
func TestViewWork(t *testing.T) {
	layer.Live(t)
	app := testenv.Start(t, "service", testenv.Options{})
	dir := t.TempDir()
	file := filepath.Join(dir, "a.clrsnap")
	testenv.UntilSeen(t, func() string { // at first the JIT may use more
		finish(t, limited(t, "record", fmt.Sprint(app.PID), "-d", "1500ms", "-o", file)).says(t, 0, "written to")
		path := good(t, "view", file, "--mode", "cpu", "--path").stdout
		if !strings.Contains(path, " OrderService.PricingEngine.Run()") {
			return path
		}
		return ""
	})
	const idle = `PortableThreadPool(\+|\.)GateThread`

	table := good(t, "view", file, "--top", "0").stdout
	for _, m := range []string{"CPU time: ", "Wall-clock time: "} {
		_, text, _ := strings.Cut(table, "\n"+m)
		own, all := strings.Index(text, "  function of your own code\n"), strings.Index(text, "  function\n")
		if own < 0 || all < own || !strings.Contains(text[own:all], "OrderService.PricingEngine.Simulate(") ||
			strings.Contains(text[own:all], "System.Private.CoreLib") {
			t.Errorf("the program's own code is not what %sbegins with:\n%.3000s", m, text)
		}
	}
	for _, want := range []string{
		`(?m)^Left out: idle threads, .* of .*: .*pool workers \d+\.\d %.* \(--idle shows them\)\. 100 % is ` +
			`the rest\.$`,
		`(?m)^CPU time: \d.* CPUs on average · `, `threads on average · `,
	} {
		if !regexp.MustCompile("(?m)" + want).MatchString(table) {
			t.Errorf("no match for %s in:\n%s", want, table)
		}
	}
	if regexp.MustCompile(idle).MatchString(table) {
		t.Errorf("the pool's gate is shown:\n%s", table)
	}
	whole := good(t, "view", file, "--top", "0", "--idle").stdout
	if !regexp.MustCompile(`(?m)  ThreadPool workers \(\d+ threads\)$`).MatchString(whole) {
		t.Errorf("the workers have no row together:\n%s", whole)
	}
	if strings.Contains(whole, "Left out") || !regexp.MustCompile(idle).MatchString(whole) {
		t.Errorf("--idle does not show idle threads:\n%s", whole)
	}

	good(t, "view", file, "--mode", "wall", "--callers", "Thread.Sleep").want(t,
		`^Wall-clock time: callers of "Thread\.Sleep", .* s of .* s \(\d+\.\d %\)$`,
		` +System\.Threading\.Thread\.Sleep\(int\)  System\.Private\.CoreLib$`,
		`← OrderService\.Inventory\.Audit\(.*Order\)  service$`, `← OrderService\.OrderQueue\.Work\(\)  service$`)
	good(t, "view", file, "--mode", "wall", "--callees", "OrderQueue.Work").want(t,
		`→ OrderService\.OrderQueue\.Process\(.*Order\)  service$`, `→ .*Thread\.Sleep\(int\)`)
	good(t, "view", file, "--mode", "cpu", "--path").want(t, `^CPU time: the heaviest path$`,
		` OrderService\.PricingEngine\.Run\(\)  service$`, `OrderService\.PricingEngine\.Simulate\(`)
	r := command(t, "view", file, "--callers", "Thread.Slep")
	r.says(t, 1, `^clrsnap: .*a\.clrsnap: no function matches "Thread\.Slep": the nearest names are Thread\.Sleep`)
	r = command(t, "view", file, "--callers", "GateThread.GateThreadStart")
	if r.status == 0 && strings.Contains(r.stdout, "GateThreadStart") {
		t.Log("the pool's gate was at work in a sample, and not idle")
	} else {
		r.says(t, 1, `there are only idle threads in functions that match .*: --idle shows them$`)
	}
	checkIdleJSON(t, file)

	picture := filepath.Join(dir, "a.svg")
	good(t, "view", file, "--mode", "wall", "-o", picture)
	text := contents(t, picture)
	if !strings.Contains(text, "Left out: idle threads, ") || regexp.MustCompile(idle).MatchString(text) {
		t.Errorf("the picture has idle threads: %.2000s", text)
	}
	good(t, "view", file, "--mode", "wall", "-o", picture, "--idle")
	if text := contents(t, picture); strings.Contains(text, "Left out") || !regexp.MustCompile(idle).MatchString(text) {
		t.Errorf("the picture has no idle threads: %.2000s", text)
	}
	if folded := good(t, "view", file, "-f", "folded").stdout; !regexp.MustCompile(idle).MatchString(folded) {
		t.Errorf("folded stacks have no idle threads: %s", folded)
	}
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkIdleJSON: JSON has everything, and marks idle samples.
func checkIdleJSON(t *testing.T, file string) {
	t.Helper()
	type amount struct{ Share, Seconds float64 }
	var doc struct {
		Modes []struct {
			Mode  string
			Total amount
			Idle  []struct {
				Kind  string
				Total amount
			}
			Threads []struct {
				Role  string
				Total amount
				Idle  *amount
			}
		}
	}
	if err := json.Unmarshal([]byte(good(t, "view", file, "--json", "--mode", "wall").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	m := doc.Modes[0]
	kinds, byKind, byThread := map[string]bool{}, 0.0, 0.0
	for _, k := range m.Idle {
		kinds[k.Kind] = true
		byKind += k.Total.Seconds
	}
	for _, th := range m.Threads {
		if th.Idle != nil {
			byThread += th.Idle.Seconds
		}
	}
	if !kinds["pool worker"] || !kinds["pool gate"] || !kinds["timer"] || byKind <= 0 ||
		byKind-byThread > 1e-6 || byThread-byKind > 1e-6 || byKind >= m.Total.Seconds {
		t.Errorf("%v s are idle, by thread %v, of %v: %v", byKind, byThread, m.Total.Seconds, kinds)
	}
}

// TestViewRecursion: for functions that call each other all callers are shown, the callers in the recursion and the
// caller from outside. Each caller has all of the time that the program's only thread of this kind is blocked.
func TestViewRecursion(t *testing.T) {
	layer.Live(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		app := testenv.Start(t, "idle", testenv.Options{
			Args: []string{"--threads", "1", "--pool", "0"}, Runtime: runtime,
		})
		file := filepath.Join(t.TempDir(), "a.clrsnap")
		for begin := time.Now(); ; { // until the thread was sampled
			record := limited(t, "record", fmt.Sprint(app.PID), "-m", "wall", "-d", "500ms", "-o", file)
			finish(t, record).says(t, 0, "written to")
			if command(t, "view", file, "--callers", "Idle.Program.Step").status == 0 {
				break
			}
			if time.Since(begin) > hang {
				t.Fatal("the thread is never sampled")
			}
		}
		const step, descend = `Idle\.Program\.Step\(int, string\)  idle`, `Idle\.Program\.Descend<.*>\(int, .*\)  idle`
		r := good(t, "view", file, "--callers", "Idle.Program.Step", "--top", "0")
		r.want(t, `^[^←]*  `+step+`$`, `← `+descend+`$`, `← `+step+`$`, `← .*Main.*  idle$`)
		r = good(t, "view", file, "--callers", "Idle.Program.Descend", "--top", "0")
		r.want(t, `├ ← `+step+`$`, `│ ← `+descend+`$`, `└ ← .*Main.*  idle$`)
	})
}
