package core

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/target"
)

// Bounds on the dynamic linker's list and on the resulting ranges.
const (
	maxLibraries = 1 << 13
	maxRanges    = 1 << 16
)

// linkMap makes the lines of NT_FILE for a dump without NT_FILE, from the dynamic linker's list
// of loaded images: struct r_debug and struct link_map of <link.h>. The list has only ELF images.
// linkMap finds their parts by their program headers, which must be in the dump.
func (c *Core) linkMap() (out []fileRange) {
	r := target.NewReader(dumped{c})
	lib, ok := c.firstLibrary(r)
	seen := map[arch.Addr]bool{}
	for n := 0; ok && lib != 0 && !seen[lib] && n < maxLibraries && len(out) < maxRanges; n++ {
		seen[lib] = true
		base, err := r.Pointer(lib) // l_addr
		if err != nil {
			break
		}
		var name string
		if p, err := r.Pointer(lib + 8); err == nil { // l_name
			name, _ = r.CString(p, 1<<12)
		}
		if n == 0 && name == "" { // the main program has no name in the list
			name, base = c.execName(), c.mainBase(base)
		}
		if strings.HasPrefix(name, "/") {
			out = append(out, imageRanges(dumped{c}, base, name)...)
		}
		if lib, err = r.Pointer(lib + 24); err != nil { // l_next
			break
		}
	}
	return out
}

// mainBase is the main program's first address: its program headers follow its ELF header.
func (c *Core) mainBase(loaded arch.Addr) arch.Addr {
	if at, ok := c.auxv[auxPHDR]; ok {
		return floor(arch.Addr(at))
	}
	return loaded
}

// firstLibrary finds the list: the main program's dynamic section has the list's address in
// DT_DEBUG.
func (c *Core) firstLibrary(r *target.Reader) (arch.Addr, bool) {
	const (
		dtNull, dtDebug = 0, 21
		maxDynamic      = 1 << 12
	)
	at, ok := c.dynamic()
	for i := 0; ok && i < maxDynamic; i++ {
		tag, err := r.Uint64(at)
		if err != nil || tag == dtNull {
			break
		}
		value, err := r.Pointer(at + 8)
		if err != nil {
			break
		}
		if tag == dtDebug {
			lib, err := r.Pointer(value + 8) // r_map
			return lib, err == nil
		}
		at += 16
	}
	return 0, false
}

// dynamic is the address of the main program's dynamic section.
func (c *Core) dynamic() (arch.Addr, bool) {
	const elfDynamic = 2
	phdr, ok := c.auxv[auxPHDR]
	if !ok {
		return 0, false
	}
	base := floor(arch.Addr(phdr))
	e, err := elfx.NewMemory(dumped{c}, base)
	if err != nil {
		return 0, false
	}
	b, ok := bias(e, &mapping{Mapping: target.Mapping{Start: base}})
	for i := range e.Progs {
		if p := &e.Progs[i]; ok && p.Type == elfDynamic {
			return b + p.Vaddr, true
		}
	}
	return 0, false
}

// imageRanges are the pieces of an ELF image with its header at base.
func imageRanges(mem target.Memory, base arch.Addr, path string) (out []fileRange) {
	e, err := elfx.NewMemory(mem, base)
	if err != nil {
		return nil
	}
	b, ok := bias(e, &mapping{Mapping: target.Mapping{Start: base}})
	for i := range e.Progs {
		p := &e.Progs[i]
		if !ok || p.Type != elfLoad || p.Filesz == 0 {
			continue
		}
		r := fileRange{
			start: floor(b + p.Vaddr), end: ceil(b + p.Vaddr + arch.Addr(p.Filesz)), off: floor(p.Offset), path: path,
		}
		if r.start < r.end {
			out = append(out, r)
		}
	}
	return out
}
