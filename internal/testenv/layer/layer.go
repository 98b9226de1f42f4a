// Package layer says which tests a run of "go test" is for. Each layer is a build tag:
//
//	check    tests without a .NET process, and one live test for each verb
//	live     the tests of check, and all live behaviour on the two supported .NETs
//	matrix   tests that depend on the runtime or on the shape of a program, on all the other .NETs
//	proof    oracles, soaks and the like: short ones, with the tag full long ones
//
// scripts/test.sh runs the layers. Without a tag the layer is check, but a test that lacks something is skipped; with a
// tag the test fails.
//
// A test first declares its layer. A test without a declaration is in check and live; if the test needs .NET
// (testenv.Kit), in live only.
package layer

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// Required reports whether a test fails if the test lacks something.
const Required = tag != ""

// declared has the names of the top-level tests that have declared their layer.
var declared sync.Map

// Now is the layer of this run.
func Now() string {
	if tag == "" {
		return "check"
	}
	return tag
}

// Check is for a quick test: a smoke test of a verb.
func Check(tb testing.TB) {
	tb.Helper()
	only(tb, "check", "live")
}

// Live is for a test of live behaviour that does not ask for the .NET kit, or is slow.
func Live(tb testing.TB) {
	tb.Helper()
	only(tb, "live")
}

// Matrix is for a test of all runtimes, shapes of programs or dumps.
func Matrix(tb testing.TB) {
	tb.Helper()
	only(tb, "matrix")
}

// Each is for a test that depends on the runtime: live has the supported runtimes, matrix the other runtimes
// (testenv.InLayer).
func Each(tb testing.TB) {
	tb.Helper()
	otherwise(tb, "live", "matrix")
}

// Proof is for a proof. Size says how long the proof is.
func Proof(tb testing.TB) {
	tb.Helper()
	only(tb, "proof")
}

// Quiet is for a proof that measures time or shares: no other package is tested at the same time.
func Quiet(tb testing.TB) {
	tb.Helper()
	Proof(tb)
}

// Full is for a proof without a short form.
func Full(tb testing.TB) {
	tb.Helper()
	Proof(tb)
	if !isFull {
		tb.Skip("a proof without a short form: make proof FORM=full")
	}
}

// Kit is for a test with .NET. Kit changes nothing if the test has declared its layer.
func Kit(tb testing.TB) {
	tb.Helper()
	otherwise(tb, "live")
}

// Size is how long or how big a proof is.
func Size[T any](short, full T) T {
	if isFull {
		return full
	}
	return short
}

// only skips the test unless this run is for one of the given layers.
func only(tb testing.TB, layers ...string) {
	tb.Helper()
	if _, ok := tb.(*testing.B); ok {
		return
	}
	if !slices.Contains(layers, Now()) {
		tb.Skipf("not a test of the layer %s, but of %s: scripts/test.sh", Now(), strings.Join(layers, ", "))
	}
	declared.Store(top(tb), true)
}

// otherwise is only, for a test without a declaration.
func otherwise(tb testing.TB, layers ...string) {
	tb.Helper()
	if _, ok := declared.Load(top(tb)); !ok {
		only(tb, layers...)
	}
}

func top(tb testing.TB) string {
	name, _, _ := strings.Cut(tb.Name(), "/")
	return name
}

// Lacking ends a test that lacks something: what names the lack.
func Lacking(tb testing.TB, what string) {
	tb.Helper()
	if Required {
		tb.Fatal(what)
	}
	tb.Skip("SKIPPED, NOTHING WAS TESTED: " + what + " (a failure with -tags " + Now() + ")")
}
