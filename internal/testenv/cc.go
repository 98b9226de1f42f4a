package testenv

import (
	"os/exec"
	"testing"
)

// CC finds the C compiler that the in-process agent is built with. Without one
// the test is skipped, or fails, as with Kit.
func CC(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const msg = "no C compiler (cc, gcc or clang) to build the agent with"
	if required() {
		tb.Fatal(msg)
	}
	tb.Skip("SKIPPED, NOTHING WAS TESTED: " + msg + " (CLRSNAP_REQUIRE_DOTNET=1 makes this a failure)")
	return ""
}
