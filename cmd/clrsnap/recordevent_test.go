package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "512KB": 512 << 10, "512kb": 512 << 10, "100 KiB": 100 << 10, "1M": 1 << 20, "1.5MB": 3 << 19, "8b": 8,
	} {
		if got, err := parseBytes(s); got != want || err != nil {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "0", "-1", "0.5", "KB", "1GB", "1KBB", "1e30", "NaN", "Inf", "many", "2e12", "2e6MB",
	} {
		if got, err := parseBytes(s); err == nil || !strings.Contains(err.Error(), "--alloc-every") {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

// TestRecordEvents records events of a running program into a file of each format. clrsnap view shows the files, mode
// by mode.
func TestRecordEvents(t *testing.T) {
	t.Parallel()
	app := testenv.Start(t, "events", testenv.Options{Args: []string{"--max-seconds", "300"}})
	pid, dir := fmt.Sprint(app.PID), t.TempDir()
	shown := map[string]string{
		"alloc":      `Events\.Allocate\+Node`,
		"exception":  `Events\.Throw\+Marked \(events\), caught by Events\.Throw\.ByFilter`,
		"contention": `held by (Events\.Contend\.HoldMonitor|holds-monitor)`, "thread": `Events\.Starts\.Named`,
		"gc": `gen \d, blocking, induced`,
	}
	for _, file := range []string{"a.clrsnap", "a.html", "a.pb.gz", "a.speedscope.json", "a.folded", "a.trace.json",
		"a.svg"} {
		path := filepath.Join(dir, file)
		r := finish(t, limited(t, "record", pid, "--event", "all", "-d", "1s", "-o", path))
		r.says(t, 0, `^clrsnap: alloc: [\d.,]+ ± [\d.,]+ [MG]iB in [\d,]+ ± [\d,]+ objects; [\d,]+ samples`,
			`^clrsnap: exception: [\d,]+ exceptions`,
			`^clrsnap: contention: [\d.]+ m?s in \d+ waits`, `^clrsnap: thread: \d+ threads? started`,
			`^clrsnap: gc: [\d.]+ m?s in \d+ GCs`, `^clrsnap: wait: [\d.]+ m?s in [\d,]+ waits`,
			`^clrsnap: written to `+regexp.QuoteMeta(path)+`$`)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
		if file != "a.clrsnap" && file != "a.html" {
			continue
		}
		r = finish(t, limited(t, "view", path, "--mode", "alloc"))
		r.says(t, 0)
		r.want(t, `Allocated bytes: [\d.,]+ ± [\d.,]+ [MG]iB · .*[\d,]+ ± [\d,]+ objects`)
		r.want(t, `~[\d,]+  Events\.Allocate\+Node`)
		for mode, what := range shown {
			r := finish(t, limited(t, "view", path, "--mode", mode, "--top", "0"))
			r.says(t, 0)
			r.want(t, what)
		}
	}
	t.Run("with CPU samples", func(t *testing.T) {
		path := filepath.Join(dir, "b.clrsnap")
		r := finish(t, limited(t, "record", pid, "--event", "gc", "--mode", "cpu", "-d", "1s", "-o", path))
		r.says(t, 0, `^clrsnap: [\d.]+m?s: \d+ cpu samples`, `^clrsnap: gc: `)
		if strings.Contains(r.stderr, "wall") || strings.Contains(r.stderr, "alloc") {
			t.Errorf("more was recorded than was asked for: %s", r.stderr)
		}
	})
	t.Run("every object", func(t *testing.T) {
		r := finish(t, limited(t, "record", pid, "--event", "alloc", "--every-object"))
		r.says(t, 2, `^clrsnap: --every-object is for a COMMAND`)
	})
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with result %q and status %d", result, code)
	}
}

// TestRecordEventsOfProgram records events of a program from its start.
func TestRecordEventsOfProgram(t *testing.T) {
	kit := testenv.Kit(t)
	dotnet, dll := kit.Host(testenv.DefaultRuntime), testenv.Build(t, "events")
	for _, way := range []struct {
		name  string
		flags []string
	}{
		{"sampled", nil},
		{"every object", []string{"--every-object", "--alloc-every", "64KB"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a.clrsnap")
			args := append([]string{"record", "--event", "all", "-o", path}, way.flags...)
			r := finish(t, limited(t, append(args, "--", dotnet, dll, "--short")...))
			r.says(t, 0, `^clrsnap: alloc: `,
				`^clrsnap: exception: 560 exceptions; 560 samples, and 80 rethrows$`, `^clrsnap: written to `)
			r.want(t, `^RESULT OK$`)
		})
	}
	t.Run("subprocesses", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "a.clrsnap")
		both := `"$0" "$1" --short & "$0" "$1" --short; wait`
		r := finish(t, limited(t, "record", "--event", "exception", "--subprocesses", "-o", path, "--", "sh", "-c",
			both, dotnet, dll))
		r.says(t, 0, `^clrsnap: exception: 1,120 exceptions; 1,120 samples, and 160 rethrows$`)
	})
	t.Run("one kind, Ctrl-C", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "a.clrsnap")
		r := begin(t, limited(t, "record", "--event", "exception", "-d", "2s", "-o", path, "--", dotnet, dll,
			"--seconds", "4"))
		r.end(t).says(t, 0, `^clrsnap: exception: `, `^clrsnap: waiting for the program`)
	})
}

// awaitAgent waits until a process has the agent's thread.
func awaitAgent(t *testing.T, pid int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < hang; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), "clrsnap-agent") {
				return
			}
		}
	}
	t.Fatal("the agent does not come")
}

// TestRecordEventsRefused: one sentence says why the agent cannot be loaded.
func TestRecordEventsRefused(t *testing.T) {
	t.Parallel()
	kit := testenv.Kit(t)
	dotnet, dll := kit.Host(testenv.DefaultRuntime), testenv.Build(t, "events")
	out := filepath.Join(t.TempDir(), "a.html")
	t.Run("diagnostics off", func(t *testing.T) {
		app := testenv.Start(t, "idle", testenv.Options{Env: []string{"DOTNET_EnableDiagnostics=0"}})
		r := finish(t, limited(t, "record", fmt.Sprint(app.PID), "--event", "alloc", "-d", "1s", "-o", out))
		r.says(t, 1, `^clrsnap: cannot load the agent into process \d+: .*diagnostics are switched off.*\n$`)
		finish(t, limited(t, "doctor", fmt.Sprint(app.PID))).want(t,
			`(?m)^\S+ +events +.*diagnostics are switched off.*cannot record events`)
	})
	t.Run("another recording", func(t *testing.T) {
		app := testenv.Start(t, "idle", testenv.Options{})
		pid := fmt.Sprint(app.PID)
		first := begin(t, limited(t, "record", pid, "--event", "gc", "-d", "5s", "-o", out))
		awaitAgent(t, app.PID)
		r := finish(t, limited(t, "record", pid, "--event", "alloc", "-d", "1s", "-o", out+".2.html"))
		r.says(t, 1, `^clrsnap: cannot load the agent into process \d+: another profiler is loaded.*\n$`)
		first.end(t).says(t, 0, `^clrsnap: gc: `)
	})
	t.Run("another profiler", func(t *testing.T) {
		c := limited(t, "record", "--event", "alloc", "-o", out, "--", dotnet, dll, "--short")
		c.Env = append(os.Environ(), "CORECLR_ENABLE_PROFILING=1",
			"CORECLR_PROFILER={00000000-0000-0000-0000-000000000001}")
		finish(t, c).says(t, 1, `^clrsnap: cannot load the agent into the program: another profiler`)
	})
	t.Run("not .NET", func(t *testing.T) {
		finish(t, limited(t, "record", "--event", "alloc", "-o", out, "--", "sleep", "0.2")).says(t, 1,
			`^clrsnap: .*\.NET`)
	})
}
