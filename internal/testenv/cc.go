package testenv

import (
	"os/exec"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// CC finds the C compiler for the in-process agent. Without a compiler CC ends the test.
func CC(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	layer.Lacking(tb, "no C compiler (cc, gcc or clang) to build the agent with")
	return ""
}
