package main

import (
	"testing"
)

// The limits of the comments of each package, and of each document.
const (
	mostPronouns = 6.0 // in 100 words
	mostPhrases  = 1.0 // in 1,000 words
	fewWords     = 50  // of a package that says too little to be counted
)

// TestWords: a reader need not look back for the noun.
func TestWords(t *testing.T) {
	counts, err := CountTree("../..", false)
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for name, c := range counts {
		if c.Words < fewWords {
			continue
		}
		packages++
		if c.PronounsIn100() > mostPronouns || c.PhrasesIn1000() > max(mostPhrases, 1000/float64(c.Words)) {
			t.Errorf("%s: %.1f pronouns in 100 words (at most %.0f), %.1f phrases in 1,000 (at most %.0f): repeat the "+
				"noun; go run ./scripts/words -files %[1]s shows the files", name, c.PronounsIn100(), mostPronouns,
				c.PhrasesIn1000(), mostPhrases)
		}
	}
	if packages < 90 {
		t.Errorf("%d packages were counted", packages)
	}
}

// TestCount: pronouns and phrases are counted, also across the end of a line.
func TestCount(t *testing.T) {
	var c Count
	c.add("The lock that\nof all threads Which is its own.")
	if want := (Count{Words: 10, Pronouns: 3, Phrases: 1}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}
