package elfx

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// dynamic has the facts about symbols from the dynamic section.
type dynamic struct {
	symtab, strtab, hash, gnuHash arch.Addr // zero: absent
	strsz                         uint64
}

// dynamicInfo reads the dynamic section (gABI, figure 5-9).
func (m *Image) dynamicInfo() (*dynamic, error) {
	m.dynOnce.Do(func() { m.dynErr = m.loadDynamic() })
	return &m.dyn, m.dynErr
}

func (m *Image) loadDynamic() error {
	const (
		dtNull    = 0
		dtHash    = 4
		dtStrtab  = 5
		dtSymtab  = 6
		dtStrsz   = 10
		dtGNUHash = 0x6ffffef5
	)
	var b []byte
	for i := range m.Progs {
		if p := &m.Progs[i]; p.Type == ptDynamic {
			var err error
			if b, err = m.bytes(p.Vaddr, min(m.backed(p), maxDynamic*dynSize)); err != nil {
				return err
			}
			break
		}
	}
	for ; len(b) >= dynSize; b = b[dynSize:] {
		v := binary.LittleEndian.Uint64(b[8:])
		switch binary.LittleEndian.Uint64(b) {
		case dtNull:
			b = b[:dynSize]
		case dtHash:
			m.dyn.hash = m.unrelocated(v)
		case dtStrtab:
			m.dyn.strtab = m.unrelocated(v)
		case dtSymtab:
			m.dyn.symtab = m.unrelocated(v)
		case dtStrsz:
			m.dyn.strsz = v
		case dtGNUHash:
			m.dyn.gnuHash = m.unrelocated(v)
		}
	}
	if m.dyn.symtab == 0 || m.dyn.strtab == 0 {
		return fmt.Errorf("dynamic symbols: %w", ErrNotFound)
	}
	return nil
}

// unrelocated turns an address from the dynamic section into a link-time
// address. glibc adds the load bias to the section's addresses in place
// (elf/get-dynamic-info.h, ADJUST_DYN_INFO), musl and the kernel's vdso do not,
// so in memory both occur.
func (m *Image) unrelocated(v uint64) arch.Addr {
	a := arch.Addr(v)
	if m.mem != nil && m.segment(a, 1) == nil && m.segment(a-m.bias, 1) != nil {
		return a - m.bias
	}
	return a
}

// Lookup finds a dynamic symbol by name through the image's hash table, without
// reading the rest of the symbols. The version of a symbol is ignored.
func (m *Image) Lookup(name string) (Symbol, error) {
	d, err := m.dynamicInfo()
	if err != nil {
		return Symbol{}, err
	}
	l := lookup{m: m, r: target.NewReader(m), d: d, name: name}
	switch {
	case d.gnuHash != 0:
		return l.gnu()
	case d.hash != 0:
		return l.sysv()
	}
	return Symbol{}, fmt.Errorf("hash table of dynamic symbols: %w", ErrNotFound)
}

// lookup is one search for a name.
type lookup struct {
	m    *Image
	r    *target.Reader
	d    *dynamic
	name string
}

// maxChain bounds the number of symbols that a search looks at. Linkers aim at
// chains of two or three.
const maxChain = 1 << 12

func (l *lookup) notFound() (Symbol, error) {
	return Symbol{}, fmt.Errorf("symbol %s: %w", l.name, ErrNotFound)
}

// gnu searches a DT_GNU_HASH table: four words (buckets, index of the first
// hashed symbol, words of the Bloom filter, its shift), the filter of 64-bit
// words, the buckets, and for each hashed symbol its hash; the hash's lowest
// bit ends a chain (binutils, include/elf/common.h; glibc elf/dl-lookup.c,
// do_lookup_x).
func (l *lookup) gnu() (Symbol, error) {
	h, err := l.m.gnuHeader(l.r, l.d.gnuHash)
	if err != nil {
		return Symbol{}, err
	}
	hash := gnuHash(l.name)
	word, err := l.r.Uint64(h.bloom + 8*arch.Addr(hash/64%h.bloomWords))
	if err != nil {
		return Symbol{}, err
	}
	if word>>(hash%64)&1 == 0 || word>>(hash>>(h.shift&31)%64)&1 == 0 {
		return l.notFound()
	}
	i, err := l.r.Uint32(h.buckets + 4*arch.Addr(hash%h.nbuckets))
	if err != nil {
		return Symbol{}, err
	}
	if i < h.first {
		return l.notFound()
	}
	for range maxChain {
		c, err := l.r.Uint32(h.chain + 4*arch.Addr(i-h.first))
		if err != nil {
			return Symbol{}, err
		}
		if c|1 == hash|1 {
			if s, ok, err := l.match(i); ok || err != nil {
				return s, err
			}
		}
		if c&1 != 0 {
			break
		}
		i++
	}
	return l.notFound()
}

// gnuHeader is the header of a DT_GNU_HASH table and where its parts begin.
type gnuHeader struct {
	nbuckets, first, bloomWords, shift uint32
	bloom, buckets, chain              arch.Addr
}

func (m *Image) gnuHeader(r *target.Reader, at arch.Addr) (h gnuHeader, err error) {
	b, err := r.Bytes(at, 16)
	if err != nil {
		return h, err
	}
	le := binary.LittleEndian
	h.nbuckets, h.first, h.bloomWords, h.shift = le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	if h.nbuckets == 0 || h.bloomWords == 0 {
		return h, fmt.Errorf("%w: empty DT_GNU_HASH", ErrFormat)
	}
	// An address that wraps around is in no segment: reading it fails.
	h.bloom = at + 16
	h.buckets = h.bloom + 8*arch.Addr(h.bloomWords)
	h.chain = h.buckets + 4*arch.Addr(h.nbuckets)
	return h, nil
}

// sysv searches a DT_HASH table: numbers of buckets and chain entries, then
// both arrays; index 0 ends a chain (gABI, figure 5-13).
func (l *lookup) sysv() (Symbol, error) {
	nbuckets, err := l.r.Uint32(l.d.hash)
	if err != nil {
		return Symbol{}, err
	}
	if nbuckets == 0 {
		return l.notFound()
	}
	i, err := l.r.Uint32(l.d.hash + 8 + 4*arch.Addr(sysvHash(l.name)%nbuckets))
	chain := l.d.hash + 8 + 4*arch.Addr(nbuckets)
	for n := 0; err == nil && i != 0 && n < maxChain; n++ {
		s, ok, e := l.match(i)
		if ok || e != nil {
			return s, e
		}
		i, err = l.r.Uint32(chain + 4*arch.Addr(i))
	}
	if err != nil {
		return Symbol{}, err
	}
	return l.notFound()
}

// match reads dynamic symbol i and reports whether the symbol has the wanted
// name.
func (l *lookup) match(i uint32) (Symbol, bool, error) {
	var b [symSize]byte
	if err := l.r.ReadMemory(b[:], l.d.symtab+symSize*arch.Addr(i)); err != nil {
		return Symbol{}, false, err
	}
	s := parseSymbol(b[:], 0)
	n := uint64(len(l.name)) + 1
	if s.Section == 0 || uint64(s.name) > l.d.strsz || n > l.d.strsz-uint64(s.name) {
		return Symbol{}, false, nil
	}
	p, err := l.r.Bytes(l.d.strtab+arch.Addr(s.name), int(n))
	if err != nil {
		return Symbol{}, false, err
	}
	return s, p[n-1] == 0 && string(p[:n-1]) == l.name, nil
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

// sysvHash is the hash function of gABI, figure 5-14.
func sysvHash(name string) uint32 {
	var h uint32
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		g := h & 0xf0000000
		h ^= g >> 24
		h &^= g
	}
	return h
}
