package matrix

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestBuilds walks programs on every build of .NET in the kit, because the runtime's structures may move from one
// servicing build to the next: all blocked scenarios, with names, roles and tiers. TestBuilds of internal/proof/perfmap
// walks busy scenarios.
func TestBuilds(t *testing.T) {
	layer.Matrix(t)
	kit := testenv.Kit(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "runtime\tversion\tshape\tstacks\tframes\t")
	for _, b := range testenv.RuntimeBuilds(t) {
		t.Run(testenv.Name(b.Runtime), func(t *testing.T) {
			if kit.Missing(t, b) {
				t.Skip("SKIPPED, NOTHING WAS TESTED: the kit lacks this build: run scripts/get-dotnet.sh 8 9 10 builds")
			}
			row := walkBuild(t, b)
			if t.Failed() {
				row = "FAILED"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", testenv.Name(b.Runtime), b.Version, row)
		})
	}
	t.Run("installed", func(t *testing.T) {
		if all := testenv.InstalledRuntimes(); len(all) == 0 {
			t.Skip("SKIPPED, NOTHING WAS TESTED on ordinary runtimes but the kit's: " +
				"CLRSNAP_DOTNET_ROOTS names no folder with installations")
		}
	})
	w.Flush()
	t.Logf("what was walked:\n%s", &table)
}

// walkBuild returns its findings, as a row of the table.
func walkBuild(t *testing.T, b testenv.RuntimeBuild) string {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: b.Runtime, Args: []string{"--finalizer"}})
	p := livetest.Open(t, a, clrsnap.Options{})
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
	livetest.EndsWell(t, a)
	isTested(t, b.Version)
	return fmt.Sprintf("%s\t%d\t%d", info.Runtime.Shape, len(snap.Threads), frames)
}

// checkTiers requires that every managed frame says how its code was compiled, and counts the frames. Most of the
// scenarios' own methods run once, in tier 0.
func checkTiers(t *testing.T, snap *snapshot.Snapshot) (frames int) {
	seen := map[string]bool{}
	for _, th := range snap.Threads {
		frames += len(th.Frames)
		for _, f := range livetest.OfKind(th.Frames, snapshot.Managed) {
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

// isTested requires that clrsnap's contracts for the version list the build as a build whose stacks were walked.
func isTested(t *testing.T, version string) {
	known, ok := contract.EmbeddedFor(version, arch.MachineAMD64)
	if !ok || !known.Tested(version) {
		t.Errorf("%s is not in the list of tested builds in internal/contract/embedded", version)
	}
}
