package clrsnap_test

import (
	"testing"

	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) { role.Main(m) }

// shortLived are arguments for the program scenarios: its threads then live for milliseconds.
var shortLived = []string{"--no-blocked", "--busy", "600", "--workers", "thread-churn,ping-pong"}
