package perfmap

import (
	"context"
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/judge"
	"clrsnap/internal/testenv"
)

// TestPerfMap compares each managed frame, jitted or ReadyToRun, with the entry
// for its instruction pointer in the runtime's own perf map.
func TestPerfMap(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		if runtime != "net10:dotnet-10.0.8" { // with an empty perf map: see jitDumpEnv in internal/testenv
			testPerfMap(t, runtime)
		}
	})
}

func testPerfMap(t *testing.T, runtime string) {
	t.Run("blocked", func(t *testing.T) {
		a := testenv.Start(t, "scenarios",
			testenv.Options{Runtime: runtime, JitDump: true, Args: []string{"--finalizer"}})
		checkPerfMap(t, a, livetest.Open(t, a, clrsnap.Options{}), 1, 60,
			"tier-0", "optimized", "dynamic", "IL stub", "ReadyToRun")
		livetest.EndsWell(t, a)
	})
	t.Run("busy", func(t *testing.T) {
		// While new methods come, the runtime puts off recompilation, and here new
		// methods always come: only without the delay is there tier-1 code.
		env := []string{"DOTNET_TC_CallCountingDelayMs=0"}
		a := testenv.Start(t, "scenarios", testenv.Options{
			Runtime: runtime, JitDump: true, Env: env, Args: []string{"--no-blocked", "--busy", "600"},
		})
		checkPerfMap(t, a, livetest.Open(t, a, clrsnap.Options{}), 20, 30, "tier-1", "OSR", "ReadyToRun")
		livetest.EndsWell(t, a)
	})
}

// checkPerfMap takes rounds of snapshots and compares; least is the required
// number of different methods, and tiers are the required tiers.
func checkPerfMap(t *testing.T, a *testenv.App, p *clrsnap.Process, rounds, least int, tiers ...string) {
	t.Helper()
	j := judge.New(a.JitDump())
	missing := func() bool { return slices.ContainsFunc(tiers, func(tier string) bool { return j.Tiers[tier] == 0 }) }
	for n := 0; n < rounds || n < 50*rounds && missing(); n++ { // tiers come with time
		begin := judge.Now()
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		end := judge.Now()
		for i := range snap.Threads {
			j.Saw(&snap.Threads[i], begin, end)
		}
		if err := j.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Finish(); err != nil {
		t.Fatal(err)
	}
	j.Report(t)
	for _, tier := range tiers {
		if j.Tiers[tier] == 0 {
			t.Errorf("met no code of tier %q", tier)
		}
	}
	if len(j.Methods) < least {
		t.Errorf("met only %d methods", len(j.Methods))
	}
}
