package clrsnap_test

import (
	"testing"

	"clrsnap/internal/testenv"
)

// runtimes are those that walks are tested on: one that describes itself, one of
// the same version that does not, and older ones, which describe themselves in part
// or not at all.
var runtimes = []string{"net10", "net10:dotnet-10.0.8", "net9", "net8"}

// eachRuntime runs a test on every one of them.
func eachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			testenv.Kit(t).Need(t, runtime)
			test(t, runtime)
		})
	}
}
