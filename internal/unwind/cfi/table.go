// Package cfi compiles the call frame information of native code (.eh_frame) to
// steps of package unwind. It follows the DWARF 5 standard, section 6.4, for
// the instructions and 2.5 for expressions, and the Linux Standard Base Core
// Specification 5.0 ("LSB"), sections 10.5 and 10.6, for the differences of
// .eh_frame.
//
// A step becomes the plain fields of an unwind.Step if its CFA is a register
// plus an offset, and its return address and saved registers lie at offsets
// from the CFA. Any other step (the procedure linkage table, signal frames,
// hand-written assembly) becomes an interpreting Stepper.
//
// The information is hostile: every length is checked, every loop is bounded,
// and no input makes the package panic.
//
// Known gaps: pointer authentication of arm64 (a signed return address is
// returned with its signature); .debug_frame; values that need relocation,
// which .eh_frame does not have in practice (DW_OP_addr yields the link-time
// address).
package cfi

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// Section is a section of an image, read on demand.
type Section interface {
	Addr() arch.Addr // at link time
	Size() uint64
	// Bytes returns n bytes at an offset. The caller must not change the bytes.
	Bytes(off uint64, n int) ([]byte, error)
}

// piece is a read piece of the image.
type piece struct {
	data []byte
	addr arch.Addr
	base arch.Addr // base of pointers that are not relative to their own place; 0: none
}

// Table is the call frame information of an image. All addresses are link-time
// addresses, so that a single Table serves every process that maps the image:
// the caller subtracts the load bias from a program counter. Concurrent use is
// safe.
type Table struct {
	arch       *arch.Arch
	hdr, frame Section
	mayKeep    func(bytes int64) error

	// The binary search table of .eh_frame_hdr.
	search  uint64 // offset of the first entry
	enc     uint8
	entry   int // bytes of an entry
	entries int // 0: there is no usable table

	indexOnce sync.Once
	index     []indexEntry // instead of the search table
	indexErr  error        // why the index does not cover all of .eh_frame
}

// indexEntry locates the FDE whose code starts at lo.
type indexEntry struct {
	lo  arch.Addr
	off uint32 // in .eh_frame
}

// Bounds of a single read: a record (the longest known records have some thousand bytes),
// and the .eh_frame of an image without a search table.
const (
	maxRecord  = 1 << 18
	maxIndexed = 16 << 20
)

// New returns the call frame information in frame, the section .eh_frame. hdr is
// .eh_frame_hdr with its binary search table. Without a search table, or if its encoding
// does not allow a search, the first lookup builds an index of frame, as long as mayKeep
// allows the memory.
func New(hdr, frame Section, a *arch.Arch, mayKeep func(bytes int64) error) (*Table, error) {
	if frame.Size() == 0 || frame.Size() > math.MaxInt32 {
		return nil, fmt.Errorf("%w: .eh_frame of %d bytes", unwind.ErrBadInfo, frame.Size())
	}
	if _, ok := frame.Addr().Add(frame.Size()); !ok {
		return nil, fmt.Errorf("%w: .eh_frame at %v", unwind.ErrBadInfo, frame.Addr())
	}
	t := &Table{arch: a, hdr: hdr, frame: frame, mayKeep: mayKeep}
	t.parseHdr()
	return t, nil
}

// parseHdr finds the search table (LSB 10.6.2): version, encodings of
// eh_frame_ptr, fde_count and the table, the first two values, the table.
func (t *Table) parseHdr() {
	const longest = 4 + 2*(maxLEB+8)
	b, err := t.hdr.Bytes(0, int(min(longest, t.hdr.Size())))
	if err != nil {
		return
	}
	p := piece{b, t.hdr.Addr(), t.hdr.Addr()}
	r := reader{b: b}
	version, ptrEnc, countEnc, tableEnc := r.u8(), r.u8(), r.u8(), r.u8()
	if r.bad || version != 1 || ptrEnc == peOmit || countEnc == peOmit || tableEnc == peOmit ||
		tableEnc&peIndirect != 0 {
		return
	}
	t.pointer(&r, &p, ptrEnc)
	count := t.pointer(&r, &p, countEnc)
	size := fixedSize(tableEnc)
	if r.bad || size == 0 {
		return
	}
	t.enc, t.entry, t.search = tableEnc, 2*size, uint64(r.pos)
	t.entries = int(min(uint64(count), (t.hdr.Size()-t.search)/uint64(t.entry)))
}

// Step compiles the step from code address pc to its caller. For a return
// address pc is the address minus one: an address in the call instruction and
// so in the right function and row. The result depends only on the image and
// pc. Errors are unwind.ErrNoInfo and unwind.ErrBadInfo.
func (t *Table) Step(pc arch.Addr) (*unwind.Step, error) {
	f, err := t.find(pc)
	if err != nil {
		return nil, err
	}
	var p program
	if err := p.run(t, f, pc); err != nil {
		return nil, err
	}
	return t.compile(f.cie, &p.row)
}

// Function returns the code addresses that the FDE of pc covers: [lo, hi).
func (t *Table) Function(pc arch.Addr) (lo, hi arch.Addr, ok bool) {
	f, err := t.find(pc)
	if err != nil {
		return 0, 0, false
	}
	return f.lo, f.hi, true
}

// LanguageData returns the start of the code that the FDE of pc covers, and the address of the language-specific
// data.
func (t *Table) LanguageData(pc arch.Addr) (start, data arch.Addr, ok bool) {
	f, err := t.find(pc)
	if err != nil || f.lsda == 0 {
		return 0, 0, false
	}
	return f.lo, f.lsda, true
}

// find returns the FDE that covers pc.
func (t *Table) find(pc arch.Addr) (*fde, error) {
	off, err := t.offset(pc)
	if err != nil {
		return nil, err
	}
	f, err := t.parseFDE(off)
	if err != nil {
		return nil, err
	}
	if !pc.In(f.lo, f.hi) {
		return nil, cmp.Or(t.indexErr, unwind.ErrNoInfo)
	}
	return f, nil
}

// offset returns the place in .eh_frame of the last FDE that starts at pc or before.
func (t *Table) offset(pc arch.Addr) (int, error) {
	if t.entries == 0 {
		t.indexOnce.Do(t.buildIndex)
		i := sort.Search(len(t.index), func(i int) bool { return t.index[i].lo > pc }) - 1
		if i < 0 {
			return 0, cmp.Or(t.indexErr, unwind.ErrNoInfo)
		}
		return int(t.index[i].off), nil
	}
	lo, hi := 0, t.entries
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		key, _, err := t.searchEntry(mid)
		if err != nil {
			return 0, err
		}
		if key > pc {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return 0, unwind.ErrNoInfo
	}
	_, at, err := t.searchEntry(lo - 1)
	return int(min(uint64(at-t.frame.Addr()), t.frame.Size())), err
}

// searchEntry is entry i of the search table: the first code address, and the FDE's address.
func (t *Table) searchEntry(i int) (lo, fde arch.Addr, err error) {
	pos := t.search + uint64(i)*uint64(t.entry)
	b, err := t.hdr.Bytes(pos, t.entry)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", unwind.ErrBadInfo, err)
	}
	base := t.hdr.Addr()
	if t.enc == peDataRel|peSdata4 { // written by every linker
		le := binary.LittleEndian
		return base + arch.Addr(int64(int32(le.Uint32(b)))), base + arch.Addr(int64(int32(le.Uint32(b[4:])))), nil
	}
	p, r := piece{b, base + arch.Addr(pos), base}, reader{b: b}
	lo, fde = t.pointer(&r, &p, t.enc), t.pointer(&r, &p, t.enc)
	if r.bad {
		return 0, 0, bad("search table", i)
	}
	return lo, fde, nil
}

// buildIndex lists the FDEs. The list ends at the first unreadable record. FDEs with
// malformed contents are left out.
func (t *Table) buildIndex() {
	const many, keeps = 1024, 16 // bytes for an entry
	var last *cie                // most FDEs share the CIE of the previous FDE
	for off, n := 0, 0; ; n++ {
		rec, err := t.parseRecord(off)
		if err != nil {
			break
		}
		if off > maxIndexed {
			t.indexErr = fmt.Errorf("%w: there is no search table, and .eh_frame is larger than what is read "+
				"without one",
				unwind.ErrNoInfo)
			break
		}
		if n%many == 0 {
			if err := t.mayKeep(many * keeps); err != nil {
				t.indexErr = fmt.Errorf("%w: %w", unwind.ErrNoInfo, err)
				break
			}
		}
		if !rec.isCIE {
			if last == nil || last.off != rec.cieOff {
				last, _ = t.parseCIE(rec.cieOff)
			}
			if last != nil {
				if f, err := t.parseRange(&rec, last); err == nil && f.lo < f.hi {
					t.index = append(t.index, indexEntry{f.lo, uint32(off)})
				}
			}
		}
		off = rec.end
	}
	slices.SortStableFunc(t.index, func(a, b indexEntry) int { return cmp.Compare(a.lo, b.lo) })
}
