package export

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// idTable maps ids to the indices of entries. Most profiles number their entries from 1.
type idTable struct {
	n      int32            // entries
	dense  int32            // how many entries at the start have the id index + 1
	others map[uint64]int32 // the indices of the other entries
}

// add assigns an id to the next entry; false: another entry has the id, or the id is 0.
func (t *idTable) add(id uint64) bool {
	i := t.n
	if i == math.MaxInt32 || id == 0 {
		return false
	}
	t.n++
	if i == t.dense && id == uint64(i)+1 {
		t.dense++
		return true
	}
	if _, ok := t.get(id); ok {
		return false
	}
	if t.others == nil {
		t.others = map[uint64]int32{}
	}
	t.others[id] = i
	return true
}

func (t *idTable) get(id uint64) (int32, bool) {
	if id-1 < uint64(t.dense) {
		return int32(id - 1), true
	}
	i, ok := t.others[id]
	return i, ok
}

// wireField is a field of a message: a number or bytes.
type wireField struct {
	number protowire.Number
	value  uint64
	bytes  []byte
	end    int // offset in the message of the end of the bytes
}

// span returns the part of the message with the bytes of a field.
func (f *wireField) span() pprofSpan {
	return pprofSpan{uint32(f.end - len(f.bytes)), uint32(len(f.bytes))}
}

// messageFields calls field with each field of a message.
func messageFields(message []byte, field func(wireField) error) error {
	for rest := message; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		f := wireField{number: number}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(rest)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(rest)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(rest)
		case protowire.Fixed32Type:
			_, n = protowire.ConsumeFixed32(rest)
		default:
			return fmt.Errorf("field %d has a wire type that no profile uses", number)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		f.end = len(message) - len(rest)
		if err := field(f); err != nil {
			return err
		}
	}
	return nil
}

// numbers calls each with the numbers of a repeated field, packed or not.
func (f *wireField) numbers(each func(uint64) error) error {
	if f.bytes == nil {
		return each(f.value)
	}
	for packed := f.bytes; len(packed) > 0; {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return protowire.ParseError(n)
		}
		packed = packed[n:]
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}
