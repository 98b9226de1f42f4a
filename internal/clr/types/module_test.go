package types

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

const (
	loaderModule = arch.Addr(0x20000)
	ownModule    = arch.Addr(0x21000)
)

// In .NET 8, the defining module of a generic type may be in a slot behind the MethodTable that all instantiations
// share code with.
func TestModuleSlot(t *testing.T) {
	const (
		generic   = 0x10
		shared    = 0x20
		arrayBits = flagComponentSize | categoryArray
	)
	for _, tt := range []struct {
		name            string
		flags           uint32
		canonical       bool // there is a canonical MethodTable
		flags2          uint32
		virtuals        uint16
		at              arch.Addr // of the slot, in the (canonical) MethodTable; 0: none
		want            arch.Addr
		wantCollectible bool
	}{
		{"not generic", 0, false, 0x1f, 4, 0, loaderModule, false},
		{"collectible", tokenCollectible, false, 0, 4, 0, loaderModule, true},
		{"generic, loaded by its own module", generic, true, 0xf, 4, 0, loaderModule, false},
		{"no other slot", generic, true, slotModule, 4, 48, ownModule, false},
		{"the second slot", generic, true, slotModule | 1, 4, 56, ownModule, false},
		{"behind one chunk of virtual methods", generic, true, slotModule | 3, 8, 64 + 8, ownModule, false},
		{"behind two chunks", generic, true, slotModule | 3, 9, 64 + 16, ownModule, false},
		{"the fourth slot", generic, true, slotModule | 7, 4, 64 + 8 + 8, ownModule, false},
		{"shared code", shared, false, slotModule | 0xf, 25, 64 + 32 + 16, ownModule, false},
		{"an array", arrayBits, true, 0, 11, 0, loaderModule, false},
	} {
		mem := clrtest.Words{}
		s, err := New(mem, clrtest.Descriptor(t, clrtest.Net8))
		if err != nil {
			t.Fatal(err)
		}
		mem.Zero(tableAt, 256)
		mem.Zero(canonAt, 256)
		for _, at := range []arch.Addr{tableAt, canonAt} {
			mem[at+arch.Addr(s.l.Module)] = uint64(loaderModule)
			mem[at+arch.Addr(s.l.Class)] = uint64(classAt)
		}
		mem.Uint32(tableAt+arch.Addr(s.l.Flags), tt.flags)
		home := tableAt
		if tt.canonical {
			mem[tableAt+arch.Addr(s.l.Class)] = uint64(canonAt | canonTag)
			if tt.flags&categoryMask != categoryArray {
				home = canonAt
			}
		}
		mem.Uint32(home+arch.Addr(s.l.Flags2), tt.flags2)
		mem.Uint32(home+arch.Addr(s.token.Virtuals), uint32(tt.virtuals))
		if tt.at != 0 {
			mem[home+tt.at] = uint64(ownModule)
		}
		if got, err := s.Module(tableAt); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
		if tt.flags&^tokenCollectible == 0 {
			if got, err := s.Read(tableAt); got.Collectible != tt.wantCollectible || err != nil {
				t.Errorf("%s: %+v, %v", tt.name, got, err)
			}
		}
	}
}

func TestTokenRID(t *testing.T) {
	for flags2, want := range map[uint32]uint32{0x0119080e: 0x119, 0xfffe0000: 0xfffe, 0x0000ffff: 0} {
		if got, err := tokenRID(flags2); got != want || err != nil {
			t.Errorf("%#x: %#x, %v, want %#x", flags2, got, err, want)
		}
	}
	if got, err := tokenRID(0xffff0000); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of more types than fit: %#x, %v", got, err)
	}
}
