package testenv

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Truth is a count that the program "events" has made of its own events. The head of testdata/apps/events/Program.cs
// explains each kind.
type Truth struct {
	Kind   string // "alloc", "exception", "rethrow", "catch", "contention", "holder", "thread", "gc"
	Method string // in the spelling of frames; "-" if no known method
	Type   string // in the spelling of Type.ToString; for a holder the name of its thread
	Count  int64
	Amount int64 // bytes of an alloc, nanoseconds of a contention or holder, else as Count
}

// parseTruth parses the words after TRUTH.
func parseTruth(rest string) (Truth, error) {
	words := strings.Split(rest, " ")
	if len(words) != 5 {
		return Truth{}, fmt.Errorf("TRUTH %q has %d words, want 5", rest, len(words))
	}
	count, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return Truth{}, fmt.Errorf("TRUTH %q: %w", rest, err)
	}
	amount, err := strconv.ParseInt(words[4], 10, 64)
	if err != nil {
		return Truth{}, fmt.Errorf("TRUTH %q: %w", rest, err)
	}
	return Truth{Kind: words[0], Method: words[1], Type: words[2], Count: count, Amount: amount}, nil
}

// AskTruths asks the program "events" for its counts so far. at is the time of the counts, by CLOCK_MONOTONIC.
func (a *App) AskTruths() (at time.Duration, truths []Truth) {
	a.tb.Helper()
	for _, line := range a.Ask("totals") {
		word, rest, _ := strings.Cut(line, " ")
		var err error
		switch word {
		case "NOW":
			var ns int64
			ns, err = strconv.ParseInt(rest, 10, 64)
			at = time.Duration(ns)
		case "TRUTH":
			var t Truth
			t, err = parseTruth(rest)
			truths = append(truths, t)
		default:
			err = fmt.Errorf("not a line of its totals")
		}
		if err != nil {
			a.tb.Fatalf("%s: %q: %v", a, line, err)
		}
	}
	if at == 0 || len(truths) == 0 {
		a.tb.Fatalf("%s has told nothing of what it counted", a)
	}
	return at, truths
}

// Truths are the counts in the output of an ended program.
func Truths(tb testing.TB, output string) []Truth {
	tb.Helper()
	var out []Truth
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "TRUTH "); ok {
			t, err := parseTruth(rest)
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, t)
		}
	}
	return out
}
