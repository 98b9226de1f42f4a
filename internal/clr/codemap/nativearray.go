package codemap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// nativeArray is a sparse array of a ReadyToRun image (nativeformatreader.h, NativeArray). The indexes come in blocks
// of 16. A table has the offset of each block's tree. A tree has a node for each bit of the index, the highest bit
// first.
type nativeArray struct {
	mem        *target.Reader
	begin, end arch.Addr
}

const nativeBlock = 16

// entry returns the address of the value of an index; false: there is no value.
func (a *nativeArray) entry(index uint32) (arch.Addr, bool, error) {
	head, n, err := a.unsigned(a.begin)
	if err != nil || index >= head>>2 {
		return 0, false, err
	}
	base := a.begin + arch.Addr(n)
	offset, err := a.offset(base, index/nativeBlock, head&3)
	if err != nil {
		return 0, false, err
	}
	at := base + offset
	for bit := uint32(nativeBlock / 2); bit > 0; bit /= 2 {
		node, n, err := a.unsigned(at)
		if err != nil {
			return 0, false, err
		}
		const hasLow, hasHigh = 1, 2
		switch {
		case index&bit != 0 && node&hasHigh != 0:
			at += arch.Addr(node >> 2)
		case index&bit == 0 && node&hasLow != 0:
			at += arch.Addr(n)
		case node&(hasLow|hasHigh) == 0 && node>>2 == index%nativeBlock:
			return at + arch.Addr(n), true, nil // the only value below this node
		default:
			return 0, false, nil
		}
	}
	return at, true, nil
}

// offset reads an entry of the table of blocks. An entry has 1, 2 or 4 bytes.
func (a *nativeArray) offset(base arch.Addr, block, width uint32) (arch.Addr, error) {
	switch width {
	case 0:
		b, err := a.byte(base + arch.Addr(block))
		return arch.Addr(b), err
	case 1:
		at := base + arch.Addr(2*uint64(block))
		low, err := a.byte(at)
		if err != nil {
			return 0, err
		}
		high, err := a.byte(at + 1)
		return arch.Addr(low) | arch.Addr(high)<<8, err
	}
	return a.uint32(base + arch.Addr(4*uint64(block)))
}

// unsigned reads a number of 1 to 5 bytes. The set low bits of the first byte give the number of bytes that follow.
func (a *nativeArray) unsigned(at arch.Addr) (value uint32, size int, err error) {
	first, err := a.byte(at)
	if err != nil {
		return 0, 0, err
	}
	for size = 1; size < 5 && first&(1<<(size-1)) != 0; size++ {
	}
	if size == 5 {
		v, err := a.uint32(at + 1)
		return uint32(v), size, err
	}
	value = uint32(first) >> size
	for i := 1; i < size; i++ {
		b, err := a.byte(at + arch.Addr(i))
		if err != nil {
			return 0, 0, err
		}
		value |= uint32(b) << (8*i - size)
	}
	return value, size, nil
}

func (a *nativeArray) byte(at arch.Addr) (byte, error) {
	if !at.In(a.begin, a.end) {
		return 0, corrupt("an array of a ReadyToRun image leads out of its section, to %v", at)
	}
	return a.mem.Uint8(at)
}

func (a *nativeArray) uint32(at arch.Addr) (arch.Addr, error) {
	if !at.In(a.begin, a.end-3) {
		return 0, corrupt("an array of a ReadyToRun image leads out of its section, to %v", at)
	}
	v, err := a.mem.Uint32(at)
	return arch.Addr(v), err
}
