package livetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

// Inlining is a method that the JIT has inlined into another method, by their names in metadata.
type Inlining struct{ Root, Inlinee string }

// WatchInlinings returns the environment in which a program writes the JIT's inlinings to a file.
func WatchInlinings(tb testing.TB, runtime, file string) []string {
	tb.Helper()
	hook := testenv.BuildFor(tb, "inlinings", runtime)
	return []string{"DOTNET_STARTUP_HOOKS=" + hook, "CLRSNAP_INLININGS=" + file}
}

// Inlinings reads a file of WatchInlinings. The runtime reports with a delay: until is true once the
// inlinings so far include everything that matters.
func Inlinings(tb testing.TB, file string, until func(map[Inlining]bool) bool) map[Inlining]bool {
	tb.Helper()
	for end := time.Now().Add(Hang); ; time.Sleep(100 * time.Millisecond) {
		b, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		all := map[Inlining]bool{}
		for line := range strings.Lines(string(b)) {
			if root, inlinee, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
				all[Inlining{withoutArgs(root), withoutArgs(inlinee)}] = true
			}
		}
		if until(all) {
			return all
		}
		if time.Now().After(end) {
			tb.Fatalf("the JIT has reported %d inlinings only", len(all))
		}
	}
}

// withoutArgs cuts type arguments off a type: Ns.Type`1[System.Int32].Method.
func withoutArgs(name string) string {
	from, to := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if from < 0 || to < from {
		return name
	}
	return name[:from] + name[to+1:]
}
