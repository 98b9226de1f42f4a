package matrix

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// support has the results of the tests, for the table in docs/runtimes.md. TestShapes, TestMusl and TestCores note the
// results. TestSupport runs after them and compares the results with the table.
var support = struct {
	sync.Mutex
	rows map[supportRow]map[string]bool // by action
}{rows: map[supportRow]map[string]bool{}}

type supportRow struct{ version, shape string }

// Actions with a program, besides a dump.
const (
	doLive  = "live"
	doFates = "files replaced or deleted"
)

// works notes at the end of a test whether the test has passed.
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

// createdumps are the types of dump of .NET's own createdump, in createdump's words.
var createdumps = []struct {
	kind testenv.DumpKind
	word string
}{
	{testenv.DumpNormal, "normal"},
	{testenv.DumpWithHeap, "heap"},
	{testenv.DumpTriage, "triage"},
	{testenv.DumpCrash, "full"},
}

const supportHead = "| .NET | shape | running | its files replaced or deleted | core of gcore | of the kernel " +
	"| of createdump |\n| --- | --- | --- | --- | --- | --- | --- |\n"

// supportTable makes a table of lines.
func supportTable(lines map[supportRow]string) string {
	rows := slices.SortedFunc(maps.Keys(lines), func(a, b supportRow) int {
		return cmp.Or(
			testenv.CompareVersions(b.version, a.version),
			slices.Index(shapeOrder, a.shape)-slices.Index(shapeOrder, b.shape))
	})
	var b strings.Builder
	b.WriteString(supportHead)
	for _, r := range rows {
		b.WriteString(lines[r])
	}
	return b.String()
}

// supportLines are the results, as lines of a table.
func supportLines() map[supportRow]string {
	lines := map[supportRow]string{}
	for r, did := range support.rows {
		var b strings.Builder
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
		lines[r] = b.String()
	}
	return lines
}

// parseSupport takes a table apart.
func parseSupport(table string) map[supportRow]string {
	lines := map[supportRow]string{}
	for line := range strings.Lines(strings.TrimPrefix(table, supportHead)) {
		if cells := strings.Split(line, " | "); len(cells) > 2 {
			lines[supportRow{strings.TrimPrefix(cells[0], "| "), cells[1]}] = line
		}
	}
	return lines
}

// ofKit reports whether every machine tests a row. Other rows have runtimes that not every machine has.
func (r supportRow) ofKit() bool {
	for _, runtime := range testenv.AllRuntimes() {
		if _, installed := testenv.InstalledVersion(runtime); installed {
			continue
		}
		for _, shape := range testenv.Shapes(runtime) {
			if (supportRow{versionOf(runtime, shape), string(shape)}) == r {
				return true
			}
		}
	}
	return r == muslRow
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
var shapeOrder = []string{
	"framework-dependent", "app host", "self-contained", "single file", "compressed single file", "trimmed single file",
	"single file, musl",
}

var update = flag.Bool("update", false, "write the table in docs/runtimes.md anew")

// TestSupport requires that the table in docs/runtimes.md has the results of the tests. make table writes the table.
// Lines of runtimes outside the kit stay unchanged on machines that cannot test them, and no machine must have them.
// The short form leaves more lines unchanged.
func TestSupport(t *testing.T) {
	layer.Matrix(t)
	if only := flag.Lookup("test.run").Value.String(); only != "" && !*update {
		t.Skipf("the table is made by all tests together, not by -run %s", only)
	}
	testenv.Kit(t) // without the kit there is no table
	const file, begin, end = "../../docs/runtimes.md", "<!-- what works: begin -->\n", "<!-- what works: end -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := bytes.Cut(text, []byte(begin))
	old, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		t.Fatal("docs/runtimes.md has no place for the table")
	}
	lines, stood := supportLines(), parseSupport(string(old))
	for r, line := range stood {
		if _, tested := lines[r]; !tested && (!r.ofKit() || layer.Size(true, false)) {
			t.Logf("NOT TESTED: %s, %s", r.version, r.shape)
			lines[r] = line
		}
	}
	maps.DeleteFunc(lines, func(r supportRow, line string) bool {
		return !*update && stood[r] == "" && !r.ofKit()
	})
	table := supportTable(lines)
	if *update {
		text := slices.Concat(head, []byte(begin+table+end), tail)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(old) != table {
		t.Errorf("docs/runtimes.md says\n%s\nbut the tests have found (make table writes it)\n%s", old, table)
	}
}
