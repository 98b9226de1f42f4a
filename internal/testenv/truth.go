package testenv

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Truth is what the program "events" has counted of itself. The head of
// testdata/apps/events/Program.cs says what each kind counts.
type Truth struct {
	Kind   string // "alloc", "exception", "rethrow", "catch", "contention", "holder", "thread", "gc"
	Method string // as its frames are named; "-" if it was none that is known
	Type   string // as Type.ToString writes it; of a holder the name of its thread
	Count  int64
	Amount int64 // bytes of an alloc, nanoseconds of a contention or holder, else as Count
}

// parseTruth parses what follows the word TRUTH.
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

// AskTruths asks the program "events" what it has counted so far, and when that
// was, by CLOCK_MONOTONIC.
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

// Truths are those in the output of a program that has ended.
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
