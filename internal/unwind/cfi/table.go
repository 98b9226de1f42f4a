// Package cfi compiles the call frame information of native code (.eh_frame)
// to steps of package unwind. It follows the DWARF 5 standard, section 6.4, for
// the instructions and 2.5 for expressions, and the Linux Standard Base Core
// Specification 5.0 ("LSB"), sections 10.5 and 10.6, for how .eh_frame differs.
//
// A step whose CFA is a register plus an offset, and whose return address and
// saved registers lie at offsets from the CFA, becomes the plain fields of an
// unwind.Step. Anything else (the procedure linkage table, signal frames,
// hand-written assembly) becomes a Stepper that interprets it.
//
// The information is hostile: every length is checked, every loop is bounded,
// and no input makes this package panic.
//
// Known gaps: pointer authentication of arm64 (a signed return address is
// returned as it is); .debug_frame; values that need relocation, which .eh_frame
// does not have in practice (DW_OP_addr yields the link-time address).
package cfi

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// section is a piece of the image that pointers can be relative to.
type section struct {
	data []byte
	addr arch.Addr
}

// Table is the call frame information of one image. All addresses are
// link-time addresses, so that one Table serves every process that maps the
// image: the caller subtracts the load bias from a program counter. It may be
// used concurrently.
type Table struct {
	arch       *arch.Arch
	hdr, frame section

	// The binary search table of .eh_frame_hdr.
	search  reader // positioned at the first entry
	enc     uint8
	entry   int // bytes of an entry
	entries int // 0: there is no usable table

	indexOnce sync.Once
	index     []indexEntry // instead of the search table
}

// indexEntry locates the FDE whose code starts at lo.
type indexEntry struct {
	lo  arch.Addr
	off uint32 // in .eh_frame
}

// New returns the call frame information in frame, the contents of .eh_frame
// at link-time address frameAddr. hdr is .eh_frame_hdr with its binary search
// table; without one, or if its encoding does not allow a search, the first
// lookup builds an index of all of frame. The Table keeps both slices.
func New(hdr []byte, hdrAddr arch.Addr, frame []byte, frameAddr arch.Addr, a *arch.Arch) (*Table, error) {
	if len(frame) == 0 || len(frame) > 1<<31-1 {
		return nil, fmt.Errorf("%w: .eh_frame of %d bytes", unwind.ErrBadInfo, len(frame))
	}
	if _, ok := frameAddr.Add(uint64(len(frame))); !ok {
		return nil, fmt.Errorf("%w: .eh_frame at %v", unwind.ErrBadInfo, frameAddr)
	}
	t := &Table{arch: a, hdr: section{hdr, hdrAddr}, frame: section{frame, frameAddr}}
	t.parseHdr()
	return t, nil
}

// parseHdr finds the search table (LSB 10.6.2): version, encodings of
// eh_frame_ptr, fde_count and the table, the first two values, the table.
func (t *Table) parseHdr() {
	r := reader{b: t.hdr.data}
	version, ptrEnc, countEnc, tableEnc := r.u8(), r.u8(), r.u8(), r.u8()
	if r.bad || version != 1 || ptrEnc == peOmit || countEnc == peOmit || tableEnc == peOmit || tableEnc&peIndirect != 0 {
		return
	}
	t.pointer(&r, &t.hdr, ptrEnc)
	count := t.pointer(&r, &t.hdr, countEnc)
	size := fixedSize(tableEnc)
	if r.bad || size == 0 {
		return
	}
	t.enc, t.entry, t.search = tableEnc, 2*size, r
	t.entries = int(min(uint64(count), uint64(len(r.b)-r.pos)/uint64(t.entry)))
}

// Step compiles the step from code address pc to its caller. For a return
// address pc is the address minus one, which lies in the call instruction and
// so in the right function and row. The result depends on nothing but the
// image and pc. Errors are unwind.ErrNoInfo and unwind.ErrBadInfo.
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

// find returns the FDE that covers pc.
func (t *Table) find(pc arch.Addr) (*fde, error) {
	off, ok := t.offset(pc)
	if !ok {
		return nil, unwind.ErrNoInfo
	}
	f, err := t.parseFDE(off)
	if err != nil {
		return nil, err
	}
	if !pc.In(f.lo, f.hi) {
		return nil, unwind.ErrNoInfo
	}
	return f, nil
}

// offset returns where in .eh_frame the last FDE lies that starts at or before pc.
func (t *Table) offset(pc arch.Addr) (int, bool) {
	if t.entries == 0 {
		t.indexOnce.Do(t.buildIndex)
		i := sort.Search(len(t.index), func(i int) bool { return t.index[i].lo > pc }) - 1
		if i < 0 {
			return 0, false
		}
		return int(t.index[i].off), true
	}
	lo, hi := 0, t.entries
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t.searchKey(mid) > pc {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return 0, false
	}
	r := t.search
	r.pos += (lo-1)*t.entry + t.entry/2
	off := uint64(t.pointer(&r, &t.hdr, t.enc) - t.frame.addr)
	return int(min(off, uint64(len(t.frame.data)))), !r.bad
}

// searchKey is the first code address of entry i of the search table.
func (t *Table) searchKey(i int) arch.Addr {
	pos := t.search.pos + i*t.entry
	if t.enc == peDataRel|peSdata4 { // what every linker writes
		return t.hdr.addr + arch.Addr(int64(int32(binary.LittleEndian.Uint32(t.hdr.data[pos:]))))
	}
	r := t.search
	r.pos = pos
	return t.pointer(&r, &t.hdr, t.enc)
}

// buildIndex lists all FDEs. Records that cannot be understood are left out.
func (t *Table) buildIndex() {
	var last *cie // most FDEs share the CIE of the one before
	for off := 0; off < len(t.frame.data); {
		rec, err := t.parseRecord(off)
		if err != nil {
			break
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
	sort.SliceStable(t.index, func(i, j int) bool { return t.index[i].lo < t.index[j].lo })
}
