package elfx

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Types and bindings of symbols (gABI, figures 4-17 and 4-18; STT_GNU_IFUNC
// from the GNU ABI).
const (
	TypeNone  = 0
	TypeFunc  = 2
	TypeIFunc = 10

	BindLocal  = 0
	BindGlobal = 1
	BindWeak   = 2
)

// Symbol is a symbol of the image. It refers to its name; SymbolName reads the name.
type Symbol struct {
	Value   arch.Addr
	Size    uint64
	name    uint32 // offset in the string table of Image.tables[table]
	Section uint16 // index of its section, or a reserved index
	Info    uint8
	table   uint8
}

// Type is the symbol's type, for example TypeFunc.
func (s *Symbol) Type() uint8 { return s.Info & 0xf }

// Bind is the symbol's binding, for example BindGlobal.
func (s *Symbol) Bind() uint8 { return s.Info >> 4 }

// Static reports whether the symbol comes from .symtab, which lists all functions, and
// not from .dynsym, which lists the functions for other images.
func (s *Symbol) Static() bool { return s.table == tableStatic }

// parseSymbol reads an Elf64_Sym (gABI, figure 4-16).
func parseSymbol(b []byte, table uint8) Symbol {
	le := binary.LittleEndian
	return Symbol{
		name: le.Uint32(b), table: table, Info: b[4], Section: le.Uint16(b[6:]),
		Value: arch.Addr(le.Uint64(b[8:])), Size: le.Uint64(b[16:]),
	}
}

// symtab is a symbol table with its string table.
type symtab struct {
	syms, strs span
	err        error // why the table is unusable
}

// Indexes of Image.tables.
const (
	tableDynamic = iota // first, because Lookup makes symbols without loading the tables
	tableStatic
	numTables
)

func (m *Image) symtabs() []symtab {
	m.tablesOnce.Do(func() {
		m.loadSections()
		m.tables = make([]symtab, numTables)
		m.tables[tableDynamic] = m.dynamicTable()
		m.tables[tableStatic] = m.sectionTable(shtSymtab)
	})
	return m.tables
}

// sectionTable finds a symbol table by its section header. sh_link is the
// section of its strings (gABI, figure 4-14).
func (m *Image) sectionTable(typ uint32) symtab {
	for i := range m.sections {
		s := &m.sections[i]
		if s.typ != typ || int64(s.link) >= int64(len(m.sections)) {
			continue
		}
		str := &m.sections[s.link]
		if s.off > 1<<62 || str.off > 1<<62 || str.typ == shtNobits {
			continue
		}
		return symtab{
			syms: span{at: s.off, size: min(s.size, maxSymbols*symSize), inFile: true},
			strs: span{at: str.off, size: str.size, inFile: true},
		}
	}
	return symtab{err: ErrNotFound}
}

// dynamicTable finds the dynamic symbols. The dynamic section does not say
// their number; without section headers the hash table implies the number.
func (m *Image) dynamicTable() symtab {
	d, err := m.dynamicInfo()
	if err != nil {
		return symtab{err: err}
	}
	strs := span{at: uint64(d.strtab), size: d.strsz}
	for i := range m.sections {
		if s := &m.sections[i]; s.typ == shtDynsym && s.addr == d.symtab {
			return symtab{syms: span{at: uint64(s.addr), size: min(s.size, maxSymbols*symSize)}, strs: strs}
		}
	}
	n, err := m.countDynamic(d)
	return symtab{syms: span{at: uint64(d.symtab), size: n * symSize}, strs: strs, err: err}
}

func (m *Image) countDynamic(d *dynamic) (uint64, error) {
	r := target.NewReader(m)
	if d.hash != 0 { // nchain is the number of symbols (gABI, "Hash Table")
		n, err := r.Uint32(d.hash + 4)
		return min(uint64(n), maxSymbols), err
	}
	if d.gnuHash == 0 {
		return 0, ErrNotFound
	}
	h, err := m.gnuHeader(r, d.gnuHash)
	if err != nil {
		return 0, err
	}
	if h.nbuckets > maxSymbols {
		return 0, fmt.Errorf("%w: %d hash buckets", ErrFormat, h.nbuckets)
	}
	last, err := m.largest(span{at: uint64(h.buckets), size: 4 * uint64(h.nbuckets)})
	if err != nil {
		return 0, err
	}
	if last < h.first {
		return min(uint64(h.first), maxSymbols), nil // no symbol is hashed: all are imports
	}
	for range maxChain { // the end of the last chain is the end of the table
		c, err := r.Uint32(h.chain + 4*arch.Addr(last-h.first))
		if err != nil {
			return 0, err
		}
		last++
		if c&1 != 0 {
			return min(uint64(last), maxSymbols), nil
		}
	}
	return 0, fmt.Errorf("%w: a hash chain does not end", ErrFormat)
}

// largest returns the largest of an array of words.
func (m *Image) largest(words span) (most uint32, err error) {
	buf := make([]byte, min(words.size, 1<<14))
	for off := uint64(0); off < words.size; off += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), words.size-off)]
		if err := m.readSpan(words, buf, off); err != nil {
			return 0, err
		}
		for b := buf; len(b) >= 4; b = b[4:] {
			most = max(most, binary.LittleEndian.Uint32(b))
		}
	}
	return most, nil
}

// Functions calls yield for every function symbol of .dynsym and, where the
// section headers name a .symtab, of .symtab, until yield returns false. Labels
// without a type in executable sections count as functions if global or weak:
// hand-written assembly often leaves its type out. A symbol in both tables
// comes twice. The pointer is only valid during the call. Functions fails if
// neither table can be read, and if a table is beyond the budget.
func (m *Image) Functions(yield func(*Symbol) bool) error {
	var firstErr error
	found := false
	for i := range m.symtabs() {
		t := &m.tables[i]
		err := t.err
		if err == nil {
			var more bool
			more, err = m.functions(t, uint8(i), yield)
			if !more && err == nil {
				return nil
			}
		}
		if errors.Is(err, ErrBudget) {
			return err
		}
		if err == nil {
			found = true
		} else if firstErr == nil {
			firstErr = err
		}
	}
	if found {
		return nil
	}
	return fmt.Errorf("symbols: %w", firstErr)
}

func (m *Image) functions(t *symtab, table uint8, yield func(*Symbol) bool) (more bool, err error) {
	const chunk = 2048
	size := t.syms.size / symSize * symSize
	buf := make([]byte, min(size, chunk*symSize))
	var s Symbol // a single variable, because passing it to yield allocates it
	for off := uint64(0); off < size; off += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), size-off)]
		if err := m.readSpan(t.syms, buf, off); err != nil {
			return true, err
		}
		for b := buf; len(b) >= symSize; b = b[symSize:] {
			if s = parseSymbol(b, table); m.isFunction(&s) && !yield(&s) {
				return false, nil
			}
		}
	}
	return true, nil
}

func (m *Image) isFunction(s *Symbol) bool {
	const firstReserved = 0xff00 // SHN_LORESERVE
	if s.Section == 0 || s.Section >= firstReserved && s.Section != 0xffff {
		return false
	}
	switch s.Type() {
	case TypeFunc, TypeIFunc:
		return true
	case TypeNone:
		return s.Bind() != BindLocal && int(s.Section) < len(m.sections) && m.sections[s.Section].flags&shfExecute != 0
	}
	return false
}

// CompareNames orders symbols of one image by the places of their names. The
// order is the same each time the image is read, and CompareNames does not read
// the names.
func CompareNames(a, b *Symbol) int {
	if c := cmp.Compare(a.table, b.table); c != 0 {
		return c
	}
	return cmp.Compare(a.name, b.name)
}

// SymbolName reads the name of a symbol of this image.
func (m *Image) SymbolName(s *Symbol) (string, error) {
	t := m.symtabs()
	if int(s.table) >= len(t) {
		return "", fmt.Errorf("name of a symbol: %w", ErrNotFound)
	}
	return m.stringAt(t[s.table].strs, uint64(s.name))
}
