package cfi

import (
	"bytes"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// record is the frame around a CIE or an FDE (LSB 10.6.1).
type record struct {
	piece
	off, end int // in .eh_frame
	body     int // in the piece, after the CIE id or the CIE pointer
	isCIE    bool
	cieOff   int // of an FDE
}

// reader reads the record from a place in it.
func (r *record) reader(pos int) reader { return reader{b: r.data, pos: pos, off: r.off} }

// cie is a Common Information Entry: the common part of a group of FDEs.
type cie struct {
	off       int
	codeAlign uint64
	dataAlign int64
	ra        int // column of the return address
	ptrEnc    uint8
	lsdaEnc   uint8 // peOmit: FDEs have none
	augmented bool  // FDEs have augmentation data, with its length
	signal    bool
	rec       record
	start     int // of the initial instructions, in the record
}

// fde is a Frame Description Entry: the call frame information of lo <= pc < hi.
type fde struct {
	cie    *cie
	lo, hi arch.Addr
	lsda   arch.Addr // language-specific data; 0: none
	rec    record
	start  int // of the instructions, in the record
}

func bad(what string, off int) error {
	return fmt.Errorf("%w: %s at offset 0x%x of .eh_frame", unwind.ErrBadInfo, what, off)
}

// parseRecord reads the common part of CIEs and FDEs. The CIE id and the CIE
// pointer have 4 bytes even after an extended length (LSB 10.6.1.1); the
// pointer is the distance from the pointer itself back to the CIE.
func (t *Table) parseRecord(off int) (record, error) {
	if off < 0 || uint64(off) >= t.frame.Size() {
		return record{}, bad("no record", off)
	}
	left := t.frame.Size() - uint64(off)
	head, err := t.frame.Bytes(uint64(off), int(min(12, left)))
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", unwind.ErrBadInfo, err)
	}
	r := reader{b: head}
	length := r.fixed(4)
	if length == 0xffffffff {
		length = r.fixed(8)
	}
	if r.bad || length == 0 || length < 4 || length > maxRecord || length > left-uint64(r.pos) {
		return record{}, bad("record length", off)
	}
	rec := record{off: off, end: off + r.pos + int(length)}
	rec.addr = t.frame.Addr() + arch.Addr(off)
	if rec.data, err = t.frame.Bytes(uint64(off), rec.end-off); err != nil {
		return record{}, fmt.Errorf("%w: %w", unwind.ErrBadInfo, err)
	}
	field := r.pos
	r = rec.reader(field)
	id := r.fixed(4)
	rec.body = r.pos
	if id == 0 {
		rec.isCIE = true
		return rec, nil
	}
	if id > uint64(off+field) {
		return record{}, bad("CIE pointer", off)
	}
	rec.cieOff = off + field - int(id)
	return rec, nil
}

// parseCIE reads the CIE at off (DWARF 5, 6.4.1; LSB 10.6.1.1).
func (t *Table) parseCIE(off int) (*cie, error) {
	rec, err := t.parseRecord(off)
	if err != nil {
		return nil, err
	}
	if !rec.isCIE {
		return nil, bad("an FDE that is used as a CIE", off)
	}
	r := rec.reader(rec.body)
	version := r.u8()
	if version != 1 && version != 3 && version != 4 {
		return nil, bad("CIE version", off)
	}
	const maxAugmentation = 16
	z := bytes.IndexByte(r.b[r.pos:min(len(r.b), r.pos+maxAugmentation)], 0)
	if z < 0 {
		return nil, bad("augmentation string", off)
	}
	augmentation := r.take(uint64(z) + 1)[:z]
	if version == 4 {
		if addressSize, segmentSize := r.u8(), r.u8(); addressSize != 8 || segmentSize != 0 {
			return nil, bad("address size", off)
		}
	}
	c := &cie{off: off, ptrEnc: peAbsptr, lsdaEnc: peOmit, rec: rec}
	c.codeAlign, c.dataAlign = r.uleb(), r.sleb()
	ra := uint64(0)
	if version == 1 {
		ra = uint64(r.u8())
	} else {
		ra = r.uleb()
	}
	if r.bad || ra >= maxColumns {
		return nil, bad("CIE", off)
	}
	c.ra = int(ra)
	if err := t.augment(c, &r, augmentation); err != nil {
		return nil, err
	}
	c.start = r.pos
	return c, nil
}

// augment reads the data that a CIE's augmentation string announces (LSB
// 10.6.1.1.1; 'S', the frame of a signal handler, and 'B' and 'G', arm64's
// signed return addresses and tagged frames, come from GCC and LLVM).
func (t *Table) augment(c *cie, r *reader, letters []byte) error {
	if len(letters) == 0 {
		return nil
	}
	if letters[0] != 'z' {
		return bad("unknown augmentation", c.off) // without a length, the data cannot be skipped
	}
	c.augmented = true
	size := r.uleb()
	data := r.pos
	rest := r.take(size)
	if r.bad {
		return bad("augmentation data", c.off)
	}
	d := reader{b: r.b[:data+len(rest)], pos: data}
	for i, l := range letters[1:] {
		switch l {
		case 'R':
			c.ptrEnc = d.u8()
		case 'L':
			c.lsdaEnc = d.u8()
		case 'P':
			// Only the length matters. A pointer relative to an unknown base is
			// skipped like any other.
			if enc := d.u8(); enc&peBase == peAligned {
				t.pointer(&d, &c.rec.piece, enc)
			} else if enc != peOmit {
				d.value(enc)
			}
		case 'S':
			c.signal = true
		case 'B', 'G':
		default:
			// The length says where the data ends, but an important letter
			// behind the unknown letter could not be found.
			if bytes.ContainsAny(letters[1+i:], "RS") {
				return bad("unknown augmentation", c.off)
			}
			return nil
		}
	}
	if d.bad {
		return bad("augmentation data", c.off)
	}
	return nil
}

// parseFDE reads the FDE at off and its CIE.
func (t *Table) parseFDE(off int) (*fde, error) {
	rec, err := t.parseRecord(off)
	if err != nil {
		return nil, err
	}
	if rec.isCIE {
		return nil, bad("a CIE that is used as an FDE", off)
	}
	c, err := t.parseCIE(rec.cieOff)
	if err != nil {
		return nil, err
	}
	return t.parseRange(&rec, c)
}

// parseRange reads the rest of an FDE: the range of code, and augmentation data,
// which begins with the address of the language-specific data (LSB 10.6.1.2). The
// range's length has the form of the pointer's encoding, without a base.
func (t *Table) parseRange(rec *record, c *cie) (*fde, error) {
	r := rec.reader(rec.body)
	f := &fde{cie: c, rec: *rec}
	f.lo = t.pointer(&r, &rec.piece, c.ptrEnc)
	// The length is unsigned even with a signed form: no code is too long.
	length := r.value(c.ptrEnc &^ peSigned & peForm)
	if c.augmented {
		size := r.uleb()
		at := r.pos
		data := r.take(size)
		if c.lsdaEnc != peOmit && c.lsdaEnc&peIndirect == 0 && len(data) > 0 {
			l := reader{b: r.b[:at+len(data)], pos: at}
			if f.lsda = t.pointer(&l, &rec.piece, c.lsdaEnc); l.bad {
				f.lsda = 0
			}
		}
	}
	hi, ok := f.lo.Add(length)
	if r.bad || !ok {
		return nil, bad("FDE", rec.off)
	}
	f.hi, f.start = hi, r.pos
	return f, nil
}
