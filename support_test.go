package clrsnap_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"clrsnap/internal/testenv"
)

// What the tests have found to work, for the table in docs/runtimes.md. TestShapes, TestMusl and
// TestCores note it, and TestSupport, which runs after them, holds it against the table.
var support = struct {
	sync.Mutex
	rows map[supportRow]map[string]bool // by what was done
}{rows: map[supportRow]map[string]bool{}}

type supportRow struct{ version, shape string }

// What is done with a program, besides dumping it.
const (
	doLive  = "live"
	doFates = "files replaced or deleted"
)

// works notes at the end of a test whether it has passed.
func works(t *testing.T, row supportRow, what string) {
	t.Cleanup(func() {
		support.Lock()
		defer support.Unlock()
		if support.rows[row] == nil {
			support.rows[row] = map[string]bool{}
		}
		earlier, again := support.rows[row][what]
		support.rows[row][what] = !t.Failed() && !t.Skipped() && (earlier || !again)
	})
}

// createdumps are the types of dump that .NET's own createdump makes, in its words.
var createdumps = []struct {
	kind testenv.DumpKind
	word string
}{
	{testenv.DumpNormal, "normal"}, {testenv.DumpWithHeap, "heap"}, {testenv.DumpTriage, "triage"}, {testenv.DumpCrash, "full"},
}

// supportTable is what works as a table.
func supportTable() string {
	var rows []supportRow
	for r := range support.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b supportRow) int {
		return cmp.Or(compareVersions(b.version, a.version), slices.Index(shapeOrder, a.shape)-slices.Index(shapeOrder, b.shape))
	})
	var b strings.Builder
	b.WriteString("| .NET | shape | running | its files replaced or deleted | core of gcore | of the kernel | of createdump |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		did := support.rows[r]
		fmt.Fprintf(&b, "| %s | %s |", r.version, r.shape)
		for _, what := range []string{doLive, doFates, string(testenv.DumpGCore), string(testenv.DumpKernel)} {
			fmt.Fprintf(&b, " %s |", yesOrNo(did, what))
		}
		var types []string
		for _, c := range createdumps {
			if did[string(c.kind)] {
				types = append(types, c.word)
			}
		}
		fmt.Fprintf(&b, " %s |\n", cmp.Or(strings.Join(types, ", "), "–"))
	}
	return b.String()
}

func yesOrNo(did map[string]bool, what string) string {
	switch ok, done := did[what]; {
	case ok:
		return "yes"
	case done:
		return "no"
	}
	return "–"
}

// shapeOrder are the shapes in the table's order and words.
var shapeOrder = []string{"framework-dependent", "app host", "self-contained", "single file", "compressed single file", "single file, musl"}

func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

// TestSupport requires that docs/runtimes.md's table of what works is what the tests have found.
// CLRSNAP_TABLE=1 writes it.
func TestSupport(t *testing.T) {
	if only := flag.Lookup("test.run").Value.String(); only != "" && os.Getenv("CLRSNAP_TABLE") == "" {
		t.Skipf("the table is made by all tests together, not by -run %s", only)
	}
	testenv.Kit(t) // without it there is no table
	const begin, end = "<!-- what works: begin -->\n", "<!-- what works: end -->\n"
	text, err := os.ReadFile("docs/runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := bytes.Cut(text, []byte(begin))
	old, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		t.Fatal("docs/runtimes.md has no place for the table")
	}
	table := supportTable()
	if os.Getenv("CLRSNAP_TABLE") != "" {
		if err := os.WriteFile("docs/runtimes.md", slices.Concat(head, []byte(begin+table+end), tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(old) != table {
		t.Errorf("docs/runtimes.md says\n%s\nbut the tests have found (make table writes it)\n%s", old, table)
	}
}
