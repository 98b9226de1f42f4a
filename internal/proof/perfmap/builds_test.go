package perfmap

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestBuilds walks a storm of code that comes, goes and throws, on every build of .NET in the
// kit. The test holds the frames against the runtime's own records. TestBuilds of
// internal/matrix walks blocked threads.
func TestBuilds(t *testing.T) {
	layer.Matrix(t)
	kit := testenv.Kit(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "runtime\tversion\tframes of a storm\twith a record\t")
	for _, b := range testenv.RuntimeBuilds(t) {
		if !layer.Size(slices.Contains(testenv.Versions(), b.Runtime), true) {
			continue
		}
		t.Run(testenv.Name(b.Runtime), func(t *testing.T) {
			if kit.Missing(t, b) {
				t.Skip("SKIPPED, NOTHING WAS TESTED: the kit lacks this build: run scripts/get-dotnet.sh 8 9 10 builds")
			}
			all, recorded := storm(t, b)
			row := fmt.Sprintf("%d\t%d", all, recorded)
			if t.Failed() {
				row = "FAILED"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", testenv.Name(b.Runtime), b.Version, row)
		})
	}
	w.Flush()
	t.Logf("what was walked:\n%s", &table)
}

// cutNames are builds whose jitdumps lack the last character of some methods' names.
var cutNames = map[string]bool{"8.0.4": true, "8.0.6": true}

// noRecords are builds with empty jitdumps (see jitDumpEnv in internal/testenv).
var noRecords = map[string]bool{"10.0.0": true, "10.0.3": true, "10.0.5": true, "10.0.8": true, "10.0.9": true}

// storm returns the number of seen frames, and how many of them the test held
// against the runtime's own record.
func storm(t *testing.T, b testenv.RuntimeBuild) (all, recorded int) {
	moment := layer.Size(1500*time.Millisecond, 3*time.Second)
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: b.Runtime, JitDump: true,
		Args: []string{"--busy", "300", "--max-seconds", "300", "--storm", "--no-blocked"},
		// While new methods come, the runtime puts off recompilation.
		Env: []string{"DOTNET_TC_CallCountingDelayMs=0"},
	})
	s := newSoak(a, livetest.Open(t, a, clrsnap.Options{}))
	s.judge.CutNames = cutNames[b.Version]
	s.judge.Blind = noRecords[b.Version]
	if err := s.run(t, moment); err != nil {
		t.Fatal(err)
	}
	livetest.EndsWell(t, a)
	s.report(t)
	return s.judge.Frames(), s.judge.Recorded()
}
