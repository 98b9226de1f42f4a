// Package symbol names the functions of native code. A Table holds the
// addresses of an image's function symbols, packed; names stay in the image
// and are read and demangled on demand, because a profile shows a hundred of
// ten thousand symbols.
package symbol

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
)

// Func is a native function.
type Func struct {
	Name  string // demangled, with parameters: "ns::T<int>::f(char const*)"
	Short string // without parameters of functions and templates: "ns::T::f"
	Start arch.Addr
	Size  uint64 // in bytes, of the symbol, or as estimated for a symbol without a size
}

// Table finds native functions by link-time address. The first lookup builds the Table. A Table may be used
// concurrently as far as its image may be. Lookups fail once the image is closed.
type Table struct {
	img  *elfx.Image
	once sync.Once
	err  error
	syms []elfx.Symbol // sorted, the preferred one last at each address
	all  bool          // there are symbols of all functions, not only of exported functions
	// pieces are the intervals of code between the places where the answer changes; each piece ends where the next
	// piece starts.
	pieces []piece

	mu    sync.Mutex
	names map[uint32]*Func // by index of syms
}

// piece says to which symbol the code from start on belongs.
type piece struct {
	start arch.Addr
	sym   uint32 // index of Table.syms, or none
}

const none = ^uint32(0)

// New returns the table of an image's function symbols.
func New(img *elfx.Image) *Table { return &Table{img: img, names: map[uint32]*Func{}} }

// Lookup returns the function at vaddr, and the offset of vaddr in the function. The result is shared: do not change
// it.
func (t *Table) Lookup(vaddr arch.Addr) (f *Func, offset uint64, ok bool) {
	i, ok := t.find(vaddr)
	if !ok {
		return nil, 0, false
	}
	return t.named(i, vaddr)
}

// Complete reports whether all functions have symbols, and not only the exported functions.
func (t *Table) Complete() bool {
	t.once.Do(t.build)
	return t.all
}

// Before returns the last exported function that begins at or before vaddr, and how far before. vaddr belongs to
// another function, without a symbol. Before returns false where all functions have symbols.
func (t *Table) Before(vaddr arch.Addr) (f *Func, offset uint64, ok bool) {
	t.once.Do(t.build)
	i := sort.Search(len(t.syms), func(i int) bool { return t.syms[i].Value > vaddr })
	if t.all || i == 0 {
		return nil, 0, false
	}
	return t.named(uint32(i-1), vaddr)
}

// named returns the function of a symbol, and the offset of vaddr in the function.
func (t *Table) named(i uint32, vaddr arch.Addr) (f *Func, offset uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f = t.names[i]
	if f == nil {
		raw, err := t.img.SymbolName(&t.syms[i])
		if errors.Is(err, elfx.ErrBudget) {
			t.err = err
		}
		if err != nil || raw == "" {
			return nil, 0, false
		}
		f = &Func{Start: t.syms[i].Value, Size: t.syms[i].Size}
		f.Name, f.Short = Demangle(raw)
		if err := t.img.Reserve(funcKeeps + int64(len(f.Name)+len(f.Short))); err != nil {
			t.err = err
			return nil, 0, false
		}
		t.names[i] = f
	}
	return f, uint64(vaddr - f.Start), true
}

// Err returns why the image's symbols, or some of their names, could not be read.
func (t *Table) Err() error {
	t.once.Do(t.build)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// find returns the index of the symbol for vaddr.
func (t *Table) find(vaddr arch.Addr) (uint32, bool) {
	t.once.Do(t.build)
	i, exact := slices.BinarySearchFunc(t.pieces, vaddr, func(p piece, a arch.Addr) int {
		switch {
		case p.start < a:
			return -1
		case p.start > a:
			return 1
		}
		return 0
	})
	if !exact {
		i--
	}
	if i < 0 || t.pieces[i].sym == none {
		return 0, false
	}
	return t.pieces[i].sym, true
}

// The memory of symbols, in bytes: for each symbol with its pieces, two at most, and for each name.
const (
	symKeeps  = 24 + 2*16
	funcKeeps = 128
)

func (t *Table) build() {
	t.err = t.read()
	if errors.Is(t.err, elfx.ErrBudget) { // the symbols for other images may do
		all := len(t.syms)
		t.syms = slices.Clone(slices.DeleteFunc(t.syms, func(s elfx.Symbol) bool { return s.Static() }))
		t.all = false
		t.img.Release(int64(all-len(t.syms)) / many * many * symKeeps)
	}
	slices.SortFunc(t.syms, compare)
	t.extend()
	t.cut()
}

// many is how many symbols are charged to the budget at once.
const many = 1024

// read reads the symbols, as far as the budget allows.
func (t *Table) read() (err error) {
	beyond := t.img.Functions(func(s *elfx.Symbol) bool {
		if _, ok := s.Value.Add(s.Size); ok && !t.isBound(s) {
			if len(t.syms)%many == 0 {
				if err = t.img.Reserve(many * symKeeps); err != nil {
					return false
				}
			}
			t.syms = append(t.syms, *s)
			t.all = t.all || s.Static()
		}
		return true
	})
	return cmp.Or(err, beyond)
}

// isBound reports whether a symbol is the linker's, for the start or end of a section whose name is an identifier. The
// symbol is no function, though code may lie there.
func (t *Table) isBound(s *elfx.Symbol) bool {
	if s.Type() != elfx.TypeNone || s.Size != 0 {
		return false
	}
	name, err := t.img.SymbolName(s)
	return err == nil && (strings.HasPrefix(name, "__start_") || strings.HasPrefix(name, "__stop_"))
}

// compare orders symbols by address, and symbols at the same address by preference. The order is the same each time an
// image is read.
func compare(a, b elfx.Symbol) int {
	if c := cmp.Compare(a.Value, b.Value); c != 0 {
		return c
	}
	if c := rank(&a) - rank(&b); c != 0 {
		return c
	}
	return elfx.CompareNames(&a, &b)
}

// rank orders the symbols at one address: a function before a mere label, a symbol with a size before a symbol without,
// and then global before local before weak, because the weak name is usually the alias. Among equals the symbol with
// the later stored name wins.
func rank(s *elfx.Symbol) int {
	r := 0
	if s.Type() != elfx.TypeNone {
		r += 8
	}
	if s.Size != 0 {
		r += 4
	}
	switch s.Bind() {
	case elfx.BindGlobal:
		r += 2
	case elfx.BindLocal:
		r++
	}
	return r
}

// extend gives symbols without a size (hand-written assembly) the code up to the next symbol, at most to the end of
// their section. Where only exported functions have symbols, that code belongs to other functions: there the symbols
// get only their first byte.
func (t *Table) extend() {
	next, hasNext := arch.Addr(0), false
	for i := len(t.syms) - 1; i >= 0; i-- {
		s := &t.syms[i]
		if i+1 < len(t.syms) && t.syms[i+1].Value != s.Value {
			next, hasNext = t.syms[i+1].Value, true
		}
		if s.Size != 0 {
			continue
		}
		end, ok := t.img.CodeEnd(s.Value)
		if !ok {
			continue
		}
		if hasNext {
			end = min(end, next)
		}
		if !t.all {
			end = s.Value + 1
		}
		s.Size = uint64(end - s.Value)
	}
}

// cut turns the symbols into pieces. Symbols can nest and overlap. Code belongs to the last symbol that starts at or
// before the code and has not ended.
func (t *Table) cut() {
	var open []uint32 // symbols that have started, the innermost last
	end := func(i uint32) arch.Addr { return t.syms[i].Value + arch.Addr(t.syms[i].Size) }
	// closeUpTo ends the open symbols that end at or before a.
	closeUpTo := func(a arch.Addr) {
		for len(open) > 0 && end(open[len(open)-1]) <= a {
			at := end(open[len(open)-1])
			for len(open) > 0 && end(open[len(open)-1]) <= at {
				open = open[:len(open)-1]
			}
			outer := none
			if len(open) > 0 {
				outer = open[len(open)-1]
			}
			t.add(piece{at, outer})
		}
	}
	for i := range t.syms {
		if t.syms[i].Size == 0 {
			continue
		}
		closeUpTo(t.syms[i].Value)
		open = append(open, uint32(i))
		t.add(piece{t.syms[i].Value, uint32(i)})
	}
	closeUpTo(^arch.Addr(0))
}

// add appends a piece. A piece with the same start as the last piece replaces the last piece.
func (t *Table) add(p piece) {
	if n := len(t.pieces); n > 0 && t.pieces[n-1].start == p.start {
		t.pieces[n-1] = p
		return
	}
	t.pieces = append(t.pieces, p)
}
