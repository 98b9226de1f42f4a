package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

// TestUnknownContractCommand: the words of each verb if the runtime follows an unknown version of a contract.
func TestUnknownContractCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contract, without string
		fails             []string // the verbs that need the contract
	}{
		{"SyncBlock", "without locks and what threads wait for", []string{"locks"}},
		{"DebugInfo", "without source lines and inlined methods", nil},
		{"GC", "without the heap, tasks and requests", []string{"heap", "tasks", "requests"}},
	} {
		t.Run(tt.contract, func(t *testing.T) {
			is := `"` + tt.contract + `":"c`
			runtime := testenv.Altered(t, testenv.NewestRuntime, map[string]string{is + `1"`: is + `9"`})
			a := testenv.Start(t, "idle", testenv.Options{Runtime: runtime})
			for _, verb := range []string{"stack", "locks", "heap", "tasks", "requests", "doctor", "why"} {
				r := command(t, verb, fmt.Sprint(a.PID))
				want := 0
				if slices.Contains(tt.fails, verb) {
					want = exitFailure
				}
				says := tt.without + ": .NET 11." // the text, once, wherever the line breaks
				if tt.contract == "GC" && verb != "doctor" {
					says = ""
					if want != 0 || verb == "why" {
						says = "follows version c9 of the contract GC"
					}
				}
				words := strings.Join(strings.Fields(r.stdout+r.stderr), " ")
				if r.status != want || !strings.Contains(words, says) {
					t.Errorf("%s: status %d, not %d, or without %q: %s", verb, r.status, want, says, words)
				}
			}
		})
	}
}
