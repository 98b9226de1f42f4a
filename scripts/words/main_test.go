package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The limits of the comments of each package, of the texts of each package, and of each document.
const (
	mostPronouns = 6.0 // in 100 words
	mostPhrases  = 1.0 // in 1,000 words
	fewWords     = 50  // of a package that says too little to be counted
)

// limits are the limits where mostPronouns and mostPhrases are not reached yet. They may only fall.
var limits = map[string]struct{ pronouns, phrases float64 }{
	"why" + ofTexts: {8, 1.5},
}

// TestWords: a reader need not look back for the noun.
func TestWords(t *testing.T) {
	counts, err := CountTree("../..", false)
	if err != nil {
		t.Fatal(err)
	}
	packages, texts := 0, 0
	for name, c := range counts {
		if c.Words < fewWords {
			continue
		}
		if strings.HasSuffix(name, ofTexts) {
			texts++
		} else {
			packages++
		}
		name := strings.TrimPrefix(name, "../../")
		limit := limits[name]
		pronouns, phrases := max(mostPronouns, limit.pronouns), max(mostPhrases, limit.phrases, 1000/float64(c.Words))
		if c.PronounsIn100() > pronouns || c.PhrasesIn1000() > phrases {
			t.Errorf("%s: %.1f pronouns in 100 words (at most %.1f), %.1f phrases in 1,000 (at most %.1f): repeat the "+
				"noun; go run ./scripts/words -files DIR shows the files, -list DIR the texts", name,
				c.PronounsIn100(), pronouns, c.PhrasesIn1000(), phrases)
		}
	}
	if packages < 90 || texts < 40 {
		t.Errorf("%d packages and the texts of %d packages were counted", packages, texts)
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

// TestTexts: texts are literals and sums of literals with three words or more, but not imports and tags.
func TestTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "texts.go")
	const code = "package p\n\nimport \"of three words\"\n\n" +
		"var a, b = \"the lock\" + \" that \" + (`of all` + name) + \" threads\", \"two words\"\n\n" +
		"type t struct{ F func() `a:\"of\" b:\"three\" c:\"words\"` }\n\n" +
		"func f() error { return fmt.Errorf(\"process %d: it has exited\", 1+2) }\n"
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := parse(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the lock that of all  threads", "process %d: it has exited"}
	if got := file.texts(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	counts, err := CountTree(filepath.Dir(path), true)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Count{Words: 11, Pronouns: 2, Phrases: 1}); len(counts) != 1 || *counts[path+ofTexts] != want {
		t.Errorf("%v, want %+v", counts, want)
	}
}
