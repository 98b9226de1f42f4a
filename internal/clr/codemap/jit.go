package codemap

import "clrsnap/internal/arch"

// headerSlot is the distance in bytes from the code back to the pointer to its header (codeman.h, struct CodeHeader).
const headerSlot = 8

// maxFunclets bounds the function table of one method: the body and one entry
// for each exception handler.
const maxFunclets = 1 << 14

func (m *Map) lookupJIT(s *section, ip arch.Addr) (Code, error) {
	start, ok, err := m.codeStart(s.heap, ip)
	if err != nil || !ok {
		return Code{}, err
	}
	header, err := m.mem.Pointer(start - headerSlot)
	if err != nil {
		return Code{}, err
	}
	// A small value in place of the pointer marks a block of stubs, and is their kind (codeman.h, enum
	// StubCodeBlockKind).
	if uint64(header) <= m.l.StubLast {
		return Code{Kind: Stub, StubKind: uint8(header), MethodStart: start}, nil
	}
	md, err := m.mem.Pointer(header + arch.Addr(m.l.HdrMethod))
	if err != nil {
		return Code{}, err
	}
	n, err := m.mem.Uint32(header + arch.Addr(m.l.HdrUnwinds))
	if err != nil {
		return Code{}, err
	}
	if n > maxFunclets {
		return Code{}, corrupt("%d function table entries for the code at %v", n, start)
	}
	c := Code{Kind: JIT, MethodStart: start, MethodDesc: md, Base: s.begin, header: header}
	// The entries ascend; the right entry is the last that begins at or below ip.
	rva := uint64(ip - s.begin)
	for i := int(n) - 1; i >= 0; i-- {
		f, err := m.function(header + arch.Addr(m.l.HdrUnwind) + arch.Addr(i)*arch.Addr(m.l.FuncSize))
		if err != nil {
			return Code{}, err
		}
		if rva < uint64(f.begin) {
			continue
		}
		if rva >= uint64(f.end) {
			return Code{}, nil // behind the code: padding or data
		}
		c.Start, c.End = s.begin+arch.Addr(f.begin), s.begin+arch.Addr(f.end)
		c.UnwindInfo = s.begin + arch.Addr(f.unwind)
		c.Funclet = i != 0
		return c, nil
	}
	return Code{}, nil
}

// runtimeFunction is an entry of a function table; RVAs in bytes.
type runtimeFunction struct{ begin, end, unwind uint32 }

func (m *Map) function(at arch.Addr) (f runtimeFunction, err error) {
	if f.begin, err = m.mem.Uint32(at + arch.Addr(m.l.FuncBegin)); err != nil {
		return f, err
	}
	if f.end, err = m.mem.Uint32(at + arch.Addr(m.l.FuncEnd)); err != nil {
		return f, err
	}
	f.unwind, err = m.mem.Uint32(at + arch.Addr(m.l.FuncUnwind))
	return f, err
}

// codeStart finds the start of the code block around ip.
func (m *Map) codeStart(heap, ip arch.Addr) (arch.Addr, bool, error) {
	h, err := m.readHeap(heap)
	if err != nil || ip < h.start || ip > h.end || ip < h.base {
		return 0, false, err
	}
	rel, ok, err := m.nibble(h.nibbles, uint64(ip-h.base))
	if err != nil || !ok {
		return 0, false, err
	}
	code := h.base + arch.Addr(rel)
	if code > ip || code < h.start || code < headerSlot {
		return 0, false, corrupt("the nibble map leads from %v to %v", ip, code)
	}
	return code, true, nil
}

// heap is a code heap of the JIT.
type heap struct {
	start, end, base arch.Addr
	nibbles          arch.Addr
}

func (m *Map) readHeap(at arch.Addr) (h heap, err error) {
	for _, f := range []struct {
		off uint32
		to  *arch.Addr
	}{{m.l.HeapStart, &h.start}, {m.l.HeapEnd, &h.end}, {m.l.HeapBase, &h.base}, {m.l.HeapNibble, &h.nibbles}} {
		if *f.to, err = m.mem.Pointer(at + arch.Addr(f.off)); err != nil {
			return h, err
		}
	}
	return h, nil
}

// Shape of the nibble map (nibblemapmacros.h). The heap is divided into buckets of 32 bytes, each with a nibble. The
// nibble is the number, from 1 on, of the 4-byte step in the bucket at which the last code block begins, or 0 for
// none. Eight nibbles make a 32-bit word, the first nibble in the highest bits. A longer block can cover words
// without a code start. In contract version 2 of the execution manager, each of these words holds the distance of the
// block's start from the map's base in place of nibbles: a multiple of 4, shifted so that the low nibble, 9 or more,
// marks the word. In version 1 these words are 0, and a search backwards finds the block's start.
const (
	bucketBytes   = 32
	nibblesInWord = 8
	wordBytes     = bucketBytes * nibblesInWord
	nibbleMask    = 0xf
	nibblePointer = 9 // the smallest low nibble of a word that is a distance

	versionLinear = "1" // of the contract ExecutionManager
	maxBlock      = 64 << 20
)

// nibble returns the distance from the map's base to the start of the code
// block that covers the address rel bytes after the base.
func (m *Map) nibble(nibbles arch.Addr, rel uint64) (uint64, bool, error) {
	word, err := m.nibbleWord(nibbles, rel)
	if err != nil {
		return 0, false, err
	}
	if d, ok := m.nibbleDistance(word); ok {
		return d, true, nil
	}
	// The start lies in ip's own bucket at or before ip, …
	slot := rel / bucketBytes % nibblesInWord
	if n := nibbleAt(word, slot); n != 0 && uint64(n) <= rel%bucketBytes/4+1 {
		return rel/wordBytes*wordBytes + slot*bucketBytes + uint64(n-1)*4, true, nil
	}
	// … or in an earlier bucket of the same word, …
	if d, ok := lastStart(word, slot); ok {
		return rel/wordBytes*wordBytes + d, true, nil
	}
	// … or the word before holds the start, or has the start's distance, or is 0 like all words up to the word with
	// the start.
	for far := uint64(wordBytes); far <= rel; far += wordBytes {
		at := rel - far
		if word, err = m.nibbleWord(nibbles, at); err != nil {
			return 0, false, err
		}
		if d, ok := m.nibbleDistance(word); ok {
			return d, true, nil
		}
		if d, ok := lastStart(word, nibblesInWord); ok || !m.linear || far >= maxBlock {
			return at/wordBytes*wordBytes + d, ok, nil
		}
	}
	return 0, false, nil
}

func (m *Map) nibbleWord(nibbles arch.Addr, rel uint64) (uint32, error) {
	at, ok := nibbles.Add(rel / wordBytes * 4)
	if !ok {
		return 0, corrupt("nibble map at %v", nibbles)
	}
	return m.mem.Uint32(at)
}

func (m *Map) nibbleDistance(word uint32) (uint64, bool) {
	low := word & nibbleMask
	if m.linear || low < nibblePointer {
		return 0, false
	}
	return uint64(word&^nibbleMask) + uint64(low-nibblePointer)*4, true
}

// nibbleAt returns a word's nibble at slot; slot 0 is in the highest bits.
func nibbleAt(word uint32, slot uint64) uint32 {
	return word >> (28 - 4*slot) & nibbleMask
}

// lastStart returns the distance from the word's first bucket to the last code
// start in the buckets before slot.
func lastStart(word uint32, slot uint64) (uint64, bool) {
	for i := int(slot) - 1; i >= 0; i-- {
		if n := nibbleAt(word, uint64(i)); n != 0 {
			return uint64(i)*bucketBytes + uint64(n-1)*4, true
		}
	}
	return 0, false
}
