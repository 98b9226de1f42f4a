package types

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// A class's descriptions of fields lie one behind the other. The memory behind can begin like a field.
func TestFields(t *testing.T) {
	const listAt = arch.Addr(0x14000)
	for _, name := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		mem := clrtest.Words{}
		s, err := New(mem, clrtest.Descriptor(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []arch.Addr{tableAt, canonAt, classAt, listAt} {
			mem.Zero(at, 128)
		}
		mem[tableAt+arch.Addr(s.l.Class)] = uint64(canonAt | canonTag) // a generic class
		mem[canonAt+arch.Addr(s.l.Class)] = uint64(classAt)
		mem[classAt+arch.Addr(s.fields.List)] = uint64(listAt)
		put := func(i int, one, two uint32) {
			at := listAt + 16*arch.Addr(i)
			mem[at] = uint64(canonAt)
			mem.Uint32(at+8, one)
			mem.Uint32(at+12, two)
		}
		put(0, 0x25<<17|7, 16|elementClass<<fieldType) // with a part of the hash of the field's name
		put(1, 8, 24|8<<fieldType)
		put(2, fieldStatic|9, fieldOffset-1|8<<fieldType) // the offset is a mark
		put(3, fieldStatic|fieldLocal|12, 8|elementClass<<fieldType)
		put(4, 0x5000_0000, 0x7f12) // a MethodDescChunk
		rows := map[uint32]string{7: "a", 8: "b", 9: "c", 10: "constant", 11: "constant", 12: "d"}
		got, err := s.Fields(tableAt, rows)
		want := []Field{
			{RID: 7, Offset: 24, Type: elementClass}, {RID: 8, Offset: 32, Type: 8}, {RID: 9, Type: 8, Static: true},
			{RID: 12, Offset: 8, Type: elementClass, Static: true, Local: true},
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %+v, want %+v", name, got[i], want[i])
			}
		}
		if !got[0].Reference() || got[1].Reference() {
			t.Errorf("%s: references %+v", name, got)
		}
		delete(rows, 8)
		if _, err := s.Fields(tableAt, rows); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: a field that the class does not have: %v", name, err)
		}
		put(1, 8, fieldOffset-2|8<<fieldType)
		rows[8] = "b"
		if _, err := s.Fields(tableAt, rows); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: an instance field without a place: %v", name, err)
		}
	}
}
