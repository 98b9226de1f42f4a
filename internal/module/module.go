// Package module knows the native modules of a target: the executable or library of an address, the step up the stack
// from an address, and the name of the function.
package module

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/symbol"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

const ptLoad = 1 // a program header's type: a mapped piece

// Opener opens the file behind a mapping of the target.
type Opener func(m *target.Mapping) (target.File, error)

// Module is one ELF image in a target's address space.
type Module struct {
	Path  string // as the target sees it; "[vdso]" for the kernel's own
	Name  string // without the folder
	Start arch.Addr
	End   arch.Addr

	set  *Set
	key  key
	exec target.Mapping // an executable mapping of the image

	once sync.Once
	err  error
	img  *image
	bias arch.Addr
}

// key identifies a module across reads of the mappings.
type key struct {
	file  fileKey
	start arch.Addr
}

// fileKey identifies a file.
type fileKey struct {
	path  string
	dev   uint64
	inode uint64
}

// Set has the modules of one target. A Set is not safe for concurrent use. Reads and memory for all modules together
// are bounded.
type Set struct {
	arch   *arch.Arch
	mem    target.Memory
	opener Opener
	budget *elfx.Budget
	mods   []*Module // by the address of their executable mappings
	spans  []span    // every executable mapping, with or without a module
	files  map[fileKey]*image

	debugging Debugging
}

// Memory returns the target's memory.
func (s *Set) Memory() target.Memory { return s.mem }

// span is one executable mapping.
type span struct {
	start, end arch.Addr
	mod        *Module // nil: the runtime's own memory
}

// NewSet returns an empty set.
func NewSet(a *arch.Arch, mem target.Memory, opener Opener) *Set {
	return &Set{arch: a, mem: mem, opener: opener, budget: elfx.NewBudget(), files: map[fileKey]*image{}}
}

// Debug sets the search for symbols outside the modules themselves. Call Debug before asking for symbols.
func (s *Set) Debug(d Debugging) { s.debugging = d }

// Update replaces the target's mappings. Modules that are still mapped keep their data. Update reports whether a
// module has been unloaded.
func (s *Set) Update(maps target.Mappings) (unloaded bool) {
	old := map[key]*Module{}
	for _, m := range s.mods {
		old[m.key] = m
	}
	s.mods, s.spans = nil, nil
	byKey := map[key]*Module{}
	var start arch.Addr // of the run of adjacent mappings of one file up to i
	for i := range maps {
		mp := &maps[i]
		if i == 0 || !continues(mp, &maps[i-1]) {
			start = mp.Start
		}
		if mp.Perm&target.PermExec == 0 {
			continue
		}
		if !isImage(mp) {
			s.spans = append(s.spans, span{mp.Start, mp.End, nil})
			continue
		}
		k := key{fileKey{mp.Path, mp.Dev, mp.Inode}, start}
		m := byKey[k]
		if m == nil {
			if m = old[k]; m == nil {
				m = s.newModule(mp, k)
			}
			byKey[k] = m
			s.mods = append(s.mods, m)
		}
		s.spans = append(s.spans, span{mp.Start, mp.End, m})
	}
	for k, m := range old {
		if byKey[k] == nil {
			unloaded = true
			m.Close()
		}
	}
	if unloaded {
		s.closeFiles(byKey)
	}
	return unloaded
}

// closeFiles closes the files without a module.
func (s *Set) closeFiles(mods map[key]*Module) {
	mapped := map[fileKey]bool{}
	for k := range mods {
		mapped[k.file] = true
	}
	for k, f := range s.files {
		if !mapped[k] {
			f.close()
			delete(s.files, k)
		}
	}
}

func (s *Set) newModule(mp *target.Mapping, k key) *Module {
	return &Module{Path: mp.Path, Name: path.Base(mp.Path), Start: k.start, End: mp.End, set: s, key: k, exec: *mp}
}

// isImage reports whether m belongs to an image. Code made by the runtime does not: the code is in anonymous memory,
// or in a memfd that the runtime maps twice, once writable and once executable.
func isImage(m *target.Mapping) bool {
	if m.Path == "[vdso]" {
		return true
	}
	return m.IsFile() && !isDoubleMapped(m.Path)
}

func isDoubleMapped(p string) bool {
	ok, err := path.Match("/memfd:doublemapper*", p)
	return err == nil && ok
}

// continues reports whether m is a further piece of the file of the mapping before it.
func continues(m, before *target.Mapping) bool {
	return before.End == m.Start && before.Offset <= m.Offset && before.Path == m.Path
}

// Find returns the module whose code has addr, or nil.
func (s *Set) Find(addr arch.Addr) *Module {
	if sp := s.span(addr); sp != nil {
		return sp.mod
	}
	return nil
}

// Executable reports whether addr lies in an executable mapping.
func (s *Set) Executable(addr arch.Addr) bool { return s.span(addr) != nil }

func (s *Set) span(addr arch.Addr) *span {
	i := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].end > addr })
	if i < len(s.spans) && s.spans[i].start <= addr {
		return &s.spans[i]
	}
	return nil
}

// All returns the modules in ascending order.
func (s *Set) All() []*Module { return slices.Clone(s.mods) }

// Close releases the files of every module.
func (s *Set) Close() {
	for _, m := range s.mods {
		m.Close()
	}
	s.mods, s.spans = nil, nil
	s.closeFiles(nil)
}

// Close ends the use of the module. Other modules may still use the file.
func (m *Module) Close() {
	m.once.Do(func() { m.err = fmt.Errorf("%s has been unloaded", m.Path) })
	if m.img != nil && m.img.file == nil {
		m.img.close()
	}
}

// load opens the image on first use: from the file, else from the target's memory, with the dynamic symbols only.
func (m *Module) load() error {
	m.once.Do(func() { m.err = m.open() })
	return m.err
}

func (m *Module) open() error {
	if m.Path == "[vdso]" {
		return m.openMemory()
	}
	err := m.openFile()
	if err != nil && m.openMemory() == nil {
		return nil
	}
	return err
}

func (m *Module) openFile() error {
	img, err := m.set.open(m)
	if err != nil {
		return err
	}
	bias, err := img.elf.Bias(m.exec.Start, m.exec.Offset)
	if err == nil && m.replaced(img.elf, bias) {
		err = errReplaced
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	m.img, m.bias = img, bias
	return nil
}

var errReplaced = errors.New("the file is not the mapped file: it was replaced while the program was running")

// replaced reports whether img, read from a file, has another build id than the image mapped at bias. Device and
// inode are not enough: on an overlay they differ from the mappings' device and inode of the same file, and inodes of
// different layers can be equal.
func (m *Module) replaced(img *elfx.Image, bias arch.Addr) bool {
	id, err := img.BuildID()
	if err != nil {
		return false
	}
	for i := range img.Progs {
		if p := &img.Progs[i]; p.Type == ptLoad && p.Offset == 0 {
			mapped, err := m.set.budget.Mapped(m.set.mem, bias+p.Vaddr)
			if err != nil {
				return false
			}
			defer mapped.Close()
			mappedID, err := mapped.BuildID()
			return err == nil && !bytes.Equal(id, mappedID)
		}
	}
	return false
}

func (m *Module) openMemory() error {
	elf, err := m.set.budget.Mapped(m.set.mem, m.Start)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	for i := range elf.Progs {
		if p := &elf.Progs[i]; p.Type == ptLoad && p.Offset == 0 {
			m.img, m.bias = m.set.newImage(elf), m.Start-p.Vaddr
			return nil
		}
	}
	elf.Close()
	return fmt.Errorf("%s: no segment maps the ELF header", m.Path)
}

// Step returns the step from code address pc. The error wraps unwind.ErrNoInfo if the module has no unwind
// information for pc.
func (m *Module) Step(pc arch.Addr) (*unwind.Step, error) {
	if err := m.load(); err != nil {
		return nil, fmt.Errorf("%w: %w", unwind.ErrNoInfo, err)
	}
	if m.img.cfi == nil {
		return nil, unwind.ErrNoInfo
	}
	return m.img.cfi.Step(pc - m.bias)
}

// NoUnwindInfo reports whether the module has no unwind information at all. Only frame pointers, if there are any,
// lead through the module's code then.
func (m *Module) NoUnwindInfo() bool { return m.load() == nil && m.img.bare }

// AheadOfTime reports whether the module is a native AOT program or library of .NET, which contains its own runtime.
// The file tells up to .NET 10 only.
func (m *Module) AheadOfTime() bool {
	return m.load() == nil && m.img.aheadOfTime()
}

// Function returns the start of the function at pc, according to the unwind information.
func (m *Module) Function(pc arch.Addr) (start arch.Addr, ok bool) {
	if m.load() != nil || m.img.cfi == nil {
		return 0, false
	}
	lo, _, ok := m.img.cfi.Function(pc - m.bias)
	return lo + m.bias, ok
}

// LanguageData returns the start of the function at pc, according to the unwind information, and the address of the
// unwind information's data for the function's language.
func (m *Module) LanguageData(pc arch.Addr) (start, data arch.Addr, ok bool) {
	if m.load() != nil || m.img.cfi == nil {
		return 0, 0, false
	}
	start, data, ok = m.img.cfi.LanguageData(pc - m.bias)
	return start + m.bias, data + m.bias, ok
}

// Symbol returns the function at addr and the offset in it.
func (m *Module) Symbol(addr arch.Addr) (f *symbol.Func, offset uint64, ok bool) {
	if m.load() != nil {
		return nil, 0, false
	}
	if f, offset, ok := m.img.syms.Lookup(addr - m.bias); ok {
		return f, offset, true
	}
	return m.strippedSymbol(addr - m.bias)
}

// maxNear is the greatest distance in bytes of a function without a symbol from the exported function that describes
// it. Functions of one source file lie together; a library with few exported functions has most of its code far from
// them.
const maxNear = 64 << 10

// Nearest describes the function at addr, which has no symbol, by the exported function before: "sqlite3_step+0x1f40"
// begins 8000 bytes behind the start of sqlite3_step. Nearest returns "" if no exported function is near, or if the
// beginning of the function is not known.
func (m *Module) Nearest(addr arch.Addr) string {
	start, ok := m.Function(addr)
	if !ok {
		return ""
	}
	f, offset, ok := m.img.syms.Before(start - m.bias)
	if !ok || offset == 0 || offset > maxNear {
		return ""
	}
	return fmt.Sprintf("%s+%#x", f.Short, offset)
}

// SymbolError returns the reason why functions of the module may have no names although there are symbols for them;
// nil: there is no such reason.
func (m *Module) SymbolError() error {
	if m.load() != nil {
		return nil
	}
	if err := m.img.syms.Err(); errors.Is(err, elfx.ErrBudget) {
		return fmt.Errorf("symbols of %s: %w", m.Name, err)
	}
	return nil
}

// Lookup returns the address in the target of a dynamic symbol of the module.
func (m *Module) Lookup(name string) (arch.Addr, error) {
	if err := m.load(); err != nil {
		return 0, err
	}
	s, err := m.img.elf.Lookup(name)
	if err != nil {
		return 0, err
	}
	return s.Value + m.bias, nil
}

// Offset returns the offset of addr in the module as the module's own tools count: relative to link-time address
// zero.
func (m *Module) Offset(addr arch.Addr) uint64 {
	if m.load() != nil {
		return uint64(addr - m.Start)
	}
	return uint64(addr - m.bias)
}

// Image returns the module's ELF image.
func (m *Module) Image() (*elfx.Image, error) {
	if err := m.load(); err != nil {
		return nil, err
	}
	return m.img.elf, nil
}

// InPLT reports whether addr lies in the module's procedure linkage table. The entries of the table jump on to
// functions of other modules.
func (m *Module) InPLT(addr arch.Addr) bool { return m.load() == nil && m.img.elf.InPLT(addr-m.bias) }
