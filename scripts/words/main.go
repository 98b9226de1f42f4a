// Words counts pronouns and relative clauses in the comments of each package, and in documents. CONTRIBUTING says why:
// a reader must not look back for the noun.
//
//	go run ./scripts/words [-files] [directory or .md file...]
//
// The default is the whole module. A line has the number of words, pronouns in 100 words, phrases in 1,000 words, and
// the package.
package main

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	word    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9'_]*`)
	pronoun = regexp.MustCompile(`(?i)^(it|its|they|them|their|that|which|what|who|whose|those|these|this|one|ones|` +
		`itself|themselves|such)$`)
	phrase = regexp.MustCompile(`(?i)\b(of which|that of|those that|what is)\b`)
)

// A Count is the count of a package or a document.
type Count struct{ Words, Pronouns, Phrases int }

func (c *Count) add(text string) {
	for _, w := range word.FindAllString(text, -1) {
		c.Words++
		if pronoun.MatchString(w) {
			c.Pronouns++
		}
	}
	c.Phrases += len(phrase.FindAllString(strings.Join(strings.Fields(text), " "), -1))
}

// PronounsIn100 is the number of pronouns in 100 words.
func (c *Count) PronounsIn100() float64 { return 100 * float64(c.Pronouns) / float64(max(1, c.Words)) }

// PhrasesIn1000 is the number of phrases in 1,000 words.
func (c *Count) PhrasesIn1000() float64 { return 1000 * float64(c.Phrases) / float64(max(1, c.Words)) }

// CountTree counts the comments of each package below root, and each document. With files, each file has a count.
func CountTree(root string, files bool) (map[string]*Count, error) {
	counts := map[string]*Count{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (name[0] == '.' || name == "node_modules" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		key := filepath.Dir(path)
		if files || filepath.Ext(path) == ".md" {
			key = path
		}
		var text []string
		switch filepath.Ext(path) {
		case ".go":
			text, err = comments(path)
		case ".md":
			text, err = prose(path)
		}
		if err != nil || text == nil {
			return err
		}
		if counts[key] == nil {
			counts[key] = &Count{}
		}
		for _, t := range text {
			counts[key].add(t)
		}
		return nil
	})
	return counts, err
}

// comments are the comments of a file, without directives.
func comments(path string) (out []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		out = append(out, group.Text())
	}
	return out, nil
}

// prose is a document without code: fenced, indented or within backquotes.
func prose(path string) (out []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fenced := false
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			continue
		}
		text.WriteString(line)
	}
	return []string{quoted.ReplaceAllString(text.String(), "")}, nil
}

var quoted = regexp.MustCompile("`[^`]*`")

func main() {
	files := flag.Bool("files", false, "a line for each file")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	var all Count
	for _, root := range roots {
		counts, err := CountTree(root, *files)
		if err != nil {
			fmt.Fprintln(os.Stderr, "words:", err)
			os.Exit(1)
		}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			c := counts[name]
			fmt.Printf("%7d %5.1f %5.1f  %s\n", c.Words, c.PronounsIn100(), c.PhrasesIn1000(), name)
			all.Words, all.Pronouns, all.Phrases = all.Words+c.Words, all.Pronouns+c.Pronouns, all.Phrases+c.Phrases
		}
	}
	fmt.Printf("%7d %5.1f %5.1f  in all\n", all.Words, all.PronounsIn100(), all.PhrasesIn1000())
}
