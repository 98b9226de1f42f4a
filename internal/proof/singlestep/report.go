package singlestep

import (
	"fmt"
	"regexp"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Report has an oracle run's findings and coverage.
type Report struct {
	Verdicts [numVerdicts]int // of raw walks, one after each step
	Leaving  [numVerdicts]int // of raw walks while a leaf was leaving
	Folded   [numVerdicts]int // of folded walks and DoStackSnapshot
	Unfolded int              // moments at which the folded frames are unknown
	Moved    int              // references in saved registers that a collection has moved
	Held     int              // walks that were never judged, because the run ended first
	Ended    int              // threads that ended while stepped
	Threads  int              // stepped
	Unbegun  int              // threads without a moment to begin with
	Repeats  int              // steps that are turns of a repeated instruction, not counted
	Blocked  int              // threads left because they blocked
	Signals  int
	Misses   map[string]*Kind
	Jumps    map[string]int // rets that are jumps, by the code of the ret

	counts   counts
	coverage coverage
}

// Kind is a kind of miss.
type Kind struct {
	Count   int
	Example string
	seen    map[uint64]bool // leaf addresses
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{Misses: map[string]*Kind{}, Jumps: map[string]int{}, coverage: newCoverage()}
}

// Steps is the number of instructions after which the walk was judged.
func (r *Report) Steps() (n int) {
	for _, v := range r.Verdicts {
		n += v
	}
	return n
}

const addressPattern = `0x[0-9a-f]+`

var addresses = regexp.MustCompile(addressPattern)

// describeMiss names a kind of miss: the leaf's place and the walk's result,
// without addresses.
func (r *Report) describeMiss(m *Miss) string {
	v := m.verdict
	why := ""
	if m.res.Err != nil {
		why = ": " + addresses.ReplaceAllString(m.res.Err.Error(), "X")
	}
	return fmt.Sprintf("%v in %s%s", v, m.r.rep.coverage.place(m.r, m.truth.leaf.ip, true), why)
}

// addMiss reports whether the leaf is the first of its kind at its address.
func (r *Report) addMiss(m *Miss) bool {
	k := r.Misses[m.key]
	if k == nil {
		k = &Kind{seen: map[uint64]bool{}, Example: m.text()}
		r.Misses[m.key] = k
	}
	k.Count++
	if k.seen[m.truth.leaf.ip] {
		return false
	}
	k.seen[m.truth.leaf.ip] = true
	return true
}

// text shows both stacks, where they part.
func (m *Miss) text() string {
	var b strings.Builder
	name := func(ip uint64, exact bool) string { return m.r.rep.coverage.place(m.r, ip, exact) }
	fmt.Fprintf(&b, "%s, thread %s, code % x: %v\n", m.verdict, m.r.name, m.r.view.code[:], m.res.Err)
	n := max(m.truth.len(), len(m.got))
	const shown = 12
	lines := 0
	for i := 0; i < n && lines < shown; i++ {
		want, got, mark := "-", "-", " "
		if i < m.truth.len() {
			f := m.truth.at(i)
			want = fmt.Sprintf("%x %x %s", f.sp, f.ip, name(f.ip, f.exact))
		}
		if i < len(m.got) {
			got = fmt.Sprintf("%x %x %s", m.got[i].sp, m.got[i].ip, name(m.got[i].ip, m.got[i].exact))
		}
		if want != got {
			mark = "*"
		}
		fmt.Fprintf(&b, "  %s true %-70s\n    walk %s\n", mark, want, got)
		lines++
	}
	if m.verdict == registers {
		b.WriteString(m.registersText())
	}
	return b.String()
}

func (m *Miss) registersText() string {
	for i := range m.got {
		f := m.truth.at(i)
		for k := range preserved {
			if f.savedKnown && m.got[i].valid[k] && m.got[i].saved[k] != f.saved[k] {
				return fmt.Sprintf("  frame %d: register %d is %x, true %x\n", i, preserved[k], m.got[i].saved[k],
					f.saved[k])
			}
		}
	}
	return ""
}

func (r *Report) addCounts(c *counts, t *tracer) {
	r.counts.add(c)
	r.Signals += t.signals
}

// place names the code at an address: a method, a native function, a stub.
func (c *coverage) place(r *runner, ip uint64, exact bool) string {
	at := arch.Addr(ip)
	if code, err := r.eng.Runtime.Code.Lookup(at); err == nil && code.Kind != codemap.None {
		if code.Kind == codemap.Stub {
			return "stub " + stubName(code.StubKind)
		}
		return managedName(r, &code)
	}
	if !exact {
		at--
	}
	mod := r.eng.Modules.Find(at)
	if mod == nil {
		return "runtime helper"
	}
	if mod.InPLT(at) {
		return mod.Name + " PLT"
	}
	if sym, _, ok := mod.Symbol(at); ok {
		return mod.Name + "!" + sym.Short
	}
	return fmt.Sprintf("%s+%#x", mod.Name, mod.Offset(at))
}

func managedName(r *runner, code *codemap.Code) string {
	m, err := r.eng.Runtime.Methods.Read(code.MethodDesc)
	if err != nil {
		return "a method"
	}
	n, err := r.eng.Runtime.Names.Method(&m, true)
	if err != nil {
		return "a method"
	}
	if code.Funclet {
		return n.Exact + " funclet"
	}
	return n.Exact
}
