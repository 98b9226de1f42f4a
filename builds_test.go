package clrsnap_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestBuilds walks programs on every build of .NET that the kit has, because the
// runtime's structures may move from one servicing build to the next: all blocked
// scenarios, with names, roles and tiers, and a storm of code that comes, goes and
// throws, whose frames are held against what the runtime itself wrote down.
func TestBuilds(t *testing.T) {
	kit := testenv.Kit(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "runtime\tversion\tshape\tstacks\tframes\tof a storm\twith a record\t")
	for _, b := range testenv.RuntimeBuilds(t) {
		t.Run(b.Runtime, func(t *testing.T) {
			if kit.Missing(t, b) {
				t.Skip("SKIPPED, NOTHING WAS TESTED: the kit lacks this build: run scripts/get-dotnet.sh 8 9 10 builds")
			}
			row := walkBuild(t, b)
			if t.Failed() {
				row = "FAILED"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", b.Runtime, b.Version, row)
		})
	}
	w.Flush()
	t.Logf("what was walked:\n%s", &table)
}

// walkBuild returns what it has seen, as a row of the table.
func walkBuild(t *testing.T, b testenv.RuntimeBuild) string {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: b.Runtime, Args: []string{"--finalizer"}})
	p := open(t, a, clrsnap.Options{})
	info := p.Info()
	if info.Runtime.Version != b.Version {
		t.Errorf("the runtime is taken for %s", info.Runtime.Version)
	}
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkScenarios(t, a, snap, b.Runtime)
	frames := checkTiers(t, snap)
	endsWell(t, a)
	isTested(t, b.Version)
	all, recorded := storm(t, b)
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d", info.Runtime.Shape, len(snap.Threads), frames, all, recorded)
}

// checkTiers requires that every managed frame says how its code was compiled, and
// counts the frames. Most of the scenarios' own methods run once, in tier 0.
func checkTiers(t *testing.T, snap *profile.Snapshot) (frames int) {
	seen := map[string]bool{}
	for _, th := range snap.Threads {
		frames += len(th.Frames)
		for _, f := range ofKind(th.Frames, profile.Managed) {
			seen[f.Tier] = true
			if f.Tier == "" {
				t.Errorf("%s: no tier", f.Method)
			}
		}
	}
	for _, tier := range []string{"tier-0", "ReadyToRun", "dynamic", "IL stub"} {
		if !seen[tier] {
			t.Errorf("no frame is %s", tier)
		}
	}
	return frames
}

// isTested requires that what clrsnap knows of the version lists the build as one
// whose stacks were walked.
func isTested(t *testing.T, version string) {
	known, ok := contract.EmbeddedFor(version, arch.MachineAMD64)
	if !ok || !known.Tested(version) {
		t.Errorf("%s is not in the list of tested builds in internal/contract/embedded", version)
	}
}

// cutNames are builds that write some methods without the last character of their
// names into a jitdump.
var cutNames = map[string]bool{"8.0.4": true, "8.0.6": true}

// noRecords are builds whose jitdumps are empty (see jitDumpEnv in internal/testenv).
var noRecords = map[string]bool{"10.0.0": true, "10.0.3": true, "10.0.5": true, "10.0.8": true, "10.0.9": true}

// storm returns how many frames it has seen, and how many of them were held against
// the runtime's own record.
func storm(t *testing.T, b testenv.RuntimeBuild) (all, recorded int) {
	const moment = 3 * time.Second
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: b.Runtime, JitDump: true,
		Args: []string{"--busy", "300", "--max-seconds", "300", "--storm", "--no-blocked"},
		// As long as new methods come the runtime puts off what it wants to compile again.
		Env: []string{"DOTNET_TC_CallCountingDelayMs=0"},
	})
	s := newSoak(a, open(t, a, clrsnap.Options{}))
	s.judge.log.cuts = cutNames[b.Version]
	s.judge.blind = noRecords[b.Version]
	if err := s.run(t, moment); err != nil {
		t.Fatal(err)
	}
	endsWell(t, a)
	s.report(t)
	return s.judge.frames(), s.judge.frames() - s.judge.verdicts[unrecorded]
}
