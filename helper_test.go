package clrsnap_test

import (
	"testing"

	"clrsnap/internal/livetest"
)

// roles are what a copy of this test program can be started to do.
var roles = map[string]livetest.Role{}

func TestMain(m *testing.M) { livetest.Main(m, roles) }

// shortLived are arguments for the program scenarios, whose threads then live for
// milliseconds.
var shortLived = []string{"--no-blocked", "--busy", "600", "--workers", "thread-churn,ping-pong"}
