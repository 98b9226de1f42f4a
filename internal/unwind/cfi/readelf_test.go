package cfi

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/unwind"
)

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// open returns an image's table, and a second table that ignores the binary search table.
func open(tb testing.TB, path string) (t, indexed *Table) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		layer.Lacking(tb, err.Error())
	}
	tb.Cleanup(func() { f.Close() })
	m, err := elfx.New(f)
	if err != nil {
		tb.Fatal(err)
	}
	fr, err := m.Frames()
	if err != nil {
		tb.Fatal(err)
	}
	if t, err = New(fr.Hdr, fr.Frame, arch.AMD64, m.Reserve); err != nil {
		tb.Fatal(err)
	}
	if indexed, err = New(inMemory{}, fr.Frame, arch.AMD64, m.Reserve); err != nil {
		tb.Fatal(err)
	}
	return t, indexed
}

// columns are DWARF's names of the kept columns.
var columns = map[string]int{
	"rax": 0, "rdx": 1, "rcx": 2, "rbx": 3, "rsi": 4, "rdi": 5, "rbp": 6, "rsp": 7, "r8": 8, "r9": 9, "r10": 10,
	"r11": 11, "r12": 12, "r13": 13, "r14": 14, "r15": 15, "ra": 16,
}

func columnName(col uint64) string {
	for name, c := range columns {
		if uint64(c) == col && name != "ra" {
			return name
		}
	}
	return fmt.Sprint("column ", col)
}

// format writes a rule in readelf's form.
func (ru *rule) format() string {
	switch ru.kind {
	case ruleSame:
		return "s"
	case ruleOffset:
		return fmt.Sprintf("c%+d", ru.val)
	case ruleValOffset:
		return fmt.Sprintf("v%+d", ru.val)
	case ruleRegister:
		return columnName(uint64(ru.val))
	case ruleExpr:
		return "exp"
	case ruleValExpr:
		return "vexp"
	}
	return "u"
}

func (w *row) format(col int) string {
	if col >= 0 {
		return w.regs[col].format()
	}
	if w.cfa.kind == ruleValExpr {
		return "exp"
	}
	return fmt.Sprintf("%s%+d", columnName(w.cfaCol), w.cfa.val)
}

// comparison compares readelf's rows with ours.
type comparison struct {
	tb        testing.TB
	tables    []*Table
	head      []string // names of the columns
	cells     []string // of a pending row, until its end is known
	lo, hi    arch.Addr
	start     arch.Addr
	rows, pcs int
	diffs     int
	slow, end int

	cies   map[string]*cieRow // the only rows of FDEs without instructions
	cie    *cieRow            // the current CIE
	fdeCIE *cieRow            // of the current FDE, until the FDE has a row of its own
}

type cieRow struct{ head, cells []string }

// finish ends the current FDE.
func (c *comparison) finish() {
	if c.fdeCIE != nil && c.hi != 0 {
		c.head, c.cells, c.start = c.fdeCIE.head, c.fdeCIE.cells, c.lo
	}
	c.flush(c.hi)
	c.head, c.hi, c.cie, c.fdeCIE = nil, 0, nil, nil
}

// flush compares the pending row, which ends before next, at its first, middle
// and last address.
func (c *comparison) flush(next arch.Addr) {
	if c.cells == nil {
		return
	}
	if c.start >= next { // several rows of one address, or a row at the very end
		c.cells = nil
		return
	}
	c.rows++
	for _, pc := range []arch.Addr{c.start, c.start + (next-c.start)/2, next - 1} {
		for _, t := range c.tables {
			c.compare(t, pc)
		}
	}
	c.cells = nil
}

func (c *comparison) compare(t *Table, pc arch.Addr) {
	c.pcs++
	f, err := t.find(pc)
	var p program
	if err == nil && (f.lo != c.lo || f.hi != c.hi) {
		err = fmt.Errorf("FDE %v..%v", f.lo, f.hi)
	}
	if err == nil {
		err = p.run(t, f, pc)
	}
	var s *unwind.Step
	if err == nil {
		s, err = t.Step(pc)
	}
	if err != nil {
		c.diff("%v in %v..%v: %v", pc, c.lo, c.hi, err)
		return
	}
	if s.Slow != nil {
		c.slow++
	}
	if s.End {
		c.end++
	}
	for i, name := range c.head {
		col, ok := columns[name]
		if name == "CFA" {
			col, ok = -1, true
		}
		if ok && p.row.format(col) != c.cells[i] {
			c.diff("%v: %s is %s, want %s", pc, name, p.row.format(col), c.cells[i])
		}
	}
	c.unnamed(&p.row, pc)
}

// unnamed checks that a register missing in readelf's row has no rule.
func (c *comparison) unnamed(w *row, pc arch.Addr) {
	for name, col := range columns {
		named := false
		for _, h := range c.head {
			named = named || h == name
		}
		if !named && w.regs[col].kind != ruleUnset {
			c.diff("%v: %s has rule %s", pc, name, w.regs[col].format())
		}
	}
}

func (c *comparison) diff(format string, args ...any) {
	if c.diffs++; c.diffs < 20 {
		c.tb.Errorf(format, args...)
	}
}

// named are the names that readelf puts behind the numbers of registers.
var named = regexp.MustCompile(`r\d+ \((\w+)\)`)

// line takes a line of readelf's output.
func (c *comparison) line(l string) {
	l = named.ReplaceAllString(l, "$1")
	fields := strings.Fields(l)
	switch {
	case len(fields) == 0:
	case strings.Contains(l, "ZERO terminator"):
		c.finish()
	case strings.Contains(l, " CIE "):
		c.finish()
		c.cie = &cieRow{}
		c.cies[fields[0]] = c.cie
	case strings.Contains(l, " FDE cie="):
		c.finish()
		at := strings.Index(l, "cie=")
		var id string
		if n, err := fmt.Sscanf(l[at:], "cie=%8s pc=%x..%x", &id, &c.lo, &c.hi); n != 3 || c.cies[id] == nil {
			c.tb.Fatalf("%q: %v", l, err)
		}
		c.fdeCIE = c.cies[id]
	case fields[0] == "LOC":
		c.head = fields[1:]
	case c.cie != nil && len(fields) == len(c.head)+1:
		c.cie.head, c.cie.cells = c.head, fields[1:]
	case c.hi != 0 && c.head != nil && len(fields) == len(c.head)+1:
		c.fdeCIE = nil
		a, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			c.tb.Fatalf("%q: %v", l, err)
		}
		c.flush(arch.Addr(a))
		c.start, c.cells = arch.Addr(a), fields[1:]
	case c.hi != 0:
		c.tb.Fatalf("not understood: %q", l)
	}
}

// against compares every row of an image's call frame information with binutils' rows.
func against(tb testing.TB, path string) *comparison {
	tb.Helper()
	readelf, err := exec.LookPath("readelf")
	if err != nil {
		layer.Lacking(tb, err.Error()+": install binutils")
	}
	t, indexed := open(tb, path)
	c := &comparison{tb: tb, tables: []*Table{t, indexed}, cies: map[string]*cieRow{}}
	if t.entries == 0 {
		tb.Error("the binary search table is not used")
	}
	cmd := exec.Command(readelf, "--wide", "--debug-dump=frames-interp,no-follow-links", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		c.line(sc.Text())
	}
	c.finish()
	if err := cmd.Wait(); err != nil {
		tb.Log("readelf:", err) // some versions exit with 1 whatever they found
	}
	tb.Logf("%s: %d rows, %d lookups, %d slow, %d outermost, %d differences", filepath.Base(path), c.rows, c.pcs,
		c.slow, c.end, c.diffs)
	return c
}

// readable is an image with at least so many rows.
type readable struct {
	path string
	rows int
}

func TestAgainstReadelf(t *testing.T) {
	eachAgainst(t, []readable{{libc, 20000}, {"/lib64/ld-linux-x86-64.so.2", 1000}})
}

// TestAgainstReadelfLarge is TestAgainstReadelf for the runtime itself, which takes seconds.
func TestAgainstReadelfLarge(t *testing.T) {
	layer.Live(t)
	eachAgainst(t, []readable{
		{testenv.InKit("net10/dotnet"), 50000},
		{testenv.InKit("net9/shared/Microsoft.NETCore.App/9.0.5/libcoreclr.so"), 50000},
	})
}

func eachAgainst(t *testing.T, images []readable) {
	t.Helper()
	for _, c := range images {
		t.Run(filepath.Base(c.path), func(t *testing.T) {
			if got := against(t, c.path); got.rows < c.rows {
				t.Errorf("only %d rows", got.rows)
			}
		})
	}
}
