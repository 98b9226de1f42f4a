// Words counts pronouns and relative clauses in the comments of each package, in the texts of each package, and in
// documents. CONTRIBUTING says why: a reader must not look back for the noun. Texts are the string literals with three
// words or more: help, descriptions of flags, output, and errors.
//
//	go run ./scripts/words [-files] [-list] [directory or .md file...]
//
// The default is the whole module. A line has the number of words, pronouns in 100 words, phrases in 1,000 words, and
// the package. With -list a line is a text with a pronoun, after the place and the number of pronouns.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// ofTexts ends the key of the count of a package's or file's texts.
const ofTexts = " (texts)"

// CountTree counts the comments and the texts of each package below root, and each document. With files, each file has
// counts. The texts of tests are not counted.
func CountTree(root string, files bool) (map[string]*Count, error) {
	counts := map[string]*Count{}
	add := func(key string, text []string) {
		if text != nil && counts[key] == nil {
			counts[key] = &Count{}
		}
		for _, t := range text {
			counts[key].add(t)
		}
	}
	err := walk(root, func(path string) error {
		key := filepath.Dir(path)
		if files || filepath.Ext(path) == ".md" {
			key = path
		}
		if filepath.Ext(path) == ".md" {
			text, err := prose(path)
			add(key, text)
			return err
		}
		file, err := parse(path)
		if err != nil {
			return err
		}
		add(key, comments(file.File))
		if !strings.HasSuffix(path, "_test.go") {
			add(key+ofTexts, file.texts())
		}
		return nil
	})
	return counts, err
}

// walk calls each for the Go files and the documents below root.
func walk(root string, each func(path string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (name[0] == '.' || name == "node_modules" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if e := filepath.Ext(path); e != ".go" && e != ".md" {
			return nil
		}
		return each(path)
	})
}

// A source is a parsed Go file.
type source struct {
	*ast.File
	set *token.FileSet
}

func parse(path string) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	return &source{file, set}, err
}

// comments are the comments of a file, without directives.
func comments(file *ast.File) (out []string) {
	for _, group := range file.Comments {
		out = append(out, group.Text())
	}
	return out
}

// fewestWords is how many words a string literal has at least if a person reads it.
const fewestWords = 3

// texts are the texts of a file.
func (s *source) texts() (out []string) {
	s.eachText(func(_ token.Pos, text string) { out = append(out, text) })
	return out
}

// eachText calls f for each text of a file: a string literal, or a sum of string literals, with fewestWords or more.
func (s *source) eachText(f func(token.Pos, string)) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil // for programs, not for people
		}
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := literal(e)
		if ok && len(strings.Fields(text)) >= fewestWords {
			f(e.Pos(), text)
		}
		return !ok
	})
}

// literal is the text of a string literal or of a sum with string literals. Other terms are spaces.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		x, isX := literal(e.X)
		y, isY := literal(e.Y)
		if !isX {
			x = " "
		}
		if !isY {
			y = " "
		}
		return x + y, isX || isY
	case *ast.ParenExpr:
		return literal(e.X)
	}
	return "", false
}

// list prints the texts with pronouns below root.
func list(root string) error {
	return walk(root, func(path string) error {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parse(path)
		if err != nil {
			return err
		}
		file.eachText(func(at token.Pos, text string) {
			var c Count
			if c.add(text); c.Pronouns > 0 {
				fmt.Printf("%s:%d: %d %q\n", path, file.set.Position(at).Line, c.Pronouns, text)
			}
		})
		return nil
	})
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
	texts := flag.Bool("list", false, "a line for each text with a pronoun")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	var all Count
	for _, root := range roots {
		var err error
		if *texts {
			err = list(root)
		} else {
			err = table(root, *files, &all)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "words:", err)
			os.Exit(1)
		}
	}
	if !*texts {
		all.print("in all")
	}
}

// table prints the counts below root, and adds them to all.
func table(root string, files bool, all *Count) error {
	counts, err := CountTree(root, files)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		c := counts[name]
		c.print(name)
		all.Words, all.Pronouns, all.Phrases = all.Words+c.Words, all.Pronouns+c.Pronouns, all.Phrases+c.Phrases
	}
	return nil
}

func (c *Count) print(name string) {
	fmt.Printf("%7d %5.1f %5.1f  %s\n", c.Words, c.PronounsIn100(), c.PhrasesIn1000(), name)
}
