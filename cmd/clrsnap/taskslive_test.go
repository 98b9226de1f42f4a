package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestTasksVerb: the output of tasks, and the additions to stack, for a program whose async methods wait and run.
func TestTasksVerb(t *testing.T) {
	layer.Check(t)
	testenv.EachOf(t, testenv.Supported(), testTasksVerb)
}

func testTasksVerb(t *testing.T, runtime string) {
	app := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--suspended", "2", "--running"}})
	pid := fmt.Sprint(app.PID)

	r := good(t, "tasks", pid, "--limit", "0")
	// .NET's own timers are work for the pool, now and then.
	for on := livetest.GoOn(0, func() bool { return !strings.Contains(r.stdout, "; 0 queued") }); on(); {
		r = good(t, "tasks", pid, "--limit", "0")
	}
	r.want(t,
		`^Process `+pid+` · \.NET 1[01]\.`,
		`^2 × waiting for a timer, due in 60 min\n    Tasks\.Suspended\.OfDelay\{async\}\(string\)  `+
			`tasks/Suspended\.cs:\d+  tasks$`,
		`^    awaited by Tasks\.Suspended\.Root\{async\}\(Plan\)  tasks/Suspended\.cs:\d+  tasks$`,
		`^1 × waiting for recv tcp 127\.0\.0\.1:\d+ → 127\.0\.0\.1:\d+ established`, // each wait has its own server
		`^2 × waiting for a SemaphoreSlim 0x[0-9a-f]+$`,
		`^1 × running on [^\n]+\n    Tasks\.Running\.Leaf\{async\}\(string, string, Action<string>\)`,
		`^Thread pool  \d+ workers, \d+ idle; minimum 128; 0 queued$`,
		`^    \d+ × Task\.Delay, due in 60 min$`,
		`^\d+ async methods in \d+ chains`)
	if r.stderr != "" {
		t.Errorf("warnings: %q", r.stderr)
	}
	testenv.UntilSeen(t, func() string {
		rest := good(t, "tasks", pid, "--limit", "0", "--stop")
		if !strings.Contains(rest.stdout, "\nAll of one moment: all threads were stopped for ") {
			return "tasks of one moment"
		}
		rest.want(t,
			`^2 × waiting for a timer, due in 60 min\n    Tasks\.Suspended\.OfDelay\{async\}\(string\)  `,
			`^1 × waiting for recv tcp 127\.0\.0\.1:\d+ → 127\.0\.0\.1:\d+ established`,
			`^1 × running on [^\n]+\n    Tasks\.Running\.Leaf\{async\}\(string, string, Action<string>\)`)
		return ""
	})
	var doc struct {
		Chains []struct {
			Count  int
			State  string
			Frames []struct{ Kind, Display string }
		}
		Pool struct{ Workers int }
	}
	if err := json.Unmarshal([]byte(good(t, "tasks", pid, "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, c := range doc.Chains {
		states[c.State] += c.Count
		for _, f := range c.Frames {
			if f.Kind != "async" || f.Display == "" {
				t.Errorf("%+v", f)
			}
		}
	}
	// Each kind of call has one running chain and two waiting chains.
	n := states["running"]
	if n < 42 || states["waiting"] != 2*n || len(states) != 2 || doc.Pool.Workers < n {
		t.Errorf("%v, %+v", states, doc.Pool)
	}

	r = good(t, "stack", pid, "--thread", "chain-0")
	r.want(t, `^    awaited by Tasks\.Levels\.Plain\{async\}\(Plan\)  tasks/Levels\.cs:\d+  tasks$`)
	if r = good(t, "stack", pid, "--thread", "chain-0", "--async=never"); strings.Contains(r.stdout, "awaited by") {
		t.Errorf("--async=never:\n%s", r.stdout)
	}
}
