package insns

import (
	"slices"
	"testing"

	"clrsnap/internal/arch"
)

// TestConfirms: the confirmed steps at ip, if the function begins at offset start, or
// anywhere.
func TestConfirms(t *testing.T) {
	for name, tt := range map[string]struct {
		code      string
		start, ip arch.Addr // offsets
		exact     bool
		confirmed []string
		opens     []string
	}{
		"push rbx; call; pop rbx; ret": {"53 e8 f2 ff ff ff 5b c3", 0, 6, false,
			[]string{"rsp+16 rbx-16"}, []string{"rsp+16 rbx-16"}},
		"before its first instruction": {"53 e8 f2 ff ff ff 5b c3", 0, 0, true, []string{"rsp+8"}, nil},
		"push rbp; mov rbp,rsp; sub rsp,rax; nop; leave; ret": {"55 48 89 e5 48 29 c4 90 c9 c3", 0, 8, true,
			[]string{"rbp+16 rbp-16"}, []string{"rbp+16 rbp-16"}},
		"sub rsp,8; call; add rsp,8; ret": {"48 83 ec 08 e8 f2 ff ff ff 48 83 c4 08 c3", 0, 9,
			false, []string{"rsp+16"}, nil},
		"sub rsp,8; call of what never returns; push rbx; pop rbx; ret": {"48 83 ec 08 e8 f2 ff ff ff 53 5b c3", 0, 9,
			false, nil, nil},
		"entered behind the push":     {"53 90 e8 f2 ff ff ff 5b c3", 1, 7, false, nil, []string{"rsp+16 rbx-16"}},
		"another register was pushed": {"50 90 e8 f2 ff ff ff 5b c3", 0, 7, false, nil, nil},
		"the register was changed before": {"31 db 53 e8 f2 ff ff ff 5b c3", 0, 8, false, nil,
			[]string{"rsp+16 rbx-16"}},
		"jumped to, not called": {"53 eb 05 e8 f2 ff ff ff 5b c3", 0, 8, false, nil, nil},
		"push rbx; je over pop; both meet": {"53 74 01 5b 90 5b c3", 0, 4, true,
			[]string{"rsp+16 rbx-16"}, []string{"rsp+16 rbx-16"}},
		"never comes there": {"53 c3 e8 f2 ff ff ff 5b c3", 0, 7, false, nil, nil},
	} {
		p := program(unhex(t, tt.code))
		var confirmed, opens []string
		for _, s := range Steps(p, arch.AMD64, 0x1000+tt.ip) {
			if Confirms(p, arch.AMD64, 0x1000+tt.start, 0x1000+tt.ip, tt.exact, s) {
				confirmed = append(confirmed, describe(s))
			}
			if ConfirmsAnyEntry(p, arch.AMD64, 0x1000+tt.ip, tt.exact, s) {
				opens = append(opens, describe(s))
			}
		}
		if !slices.Equal(confirmed, tt.confirmed) || !slices.Equal(opens, tt.opens) {
			t.Errorf("%s: %q, %q opens, want %q, %q", name, confirmed, opens, tt.confirmed, tt.opens)
		}
	}
}

func TestCallees(t *testing.T) {
	for name, tt := range map[string]struct {
		code string
		ip   arch.Addr // offset
		want []arch.Addr
	}{
		"call":       {"e8 0b 00 00 00", 5, []arch.Addr{0x1010}},
		"call [rip]": {"ff 15 02 00 00 00 90 90 34 12 00 00 00 00 00 00", 6, []arch.Addr{0x1234}},
		"call [rbx+10h]": {"ff 53 10 90 90 90 90 90 90 90 90 90 90 90 90 90 78 56 00 00 00 00 00 00", 3,
			[]arch.Addr{0x5678}},
		"call [r12+8]":            {"41 ff 54 24 08 90 90 90 78 56 00 00 00 00 00 00", 5, []arch.Addr{0x5678}},
		"call rbx":                {"ff d3", 2, []arch.Addr{0x1000}},
		"call rax, which is lost": {"ff d0", 2, nil},
		"call [rbx+rcx]":          {"ff 14 0b", 3, nil},
		"through a PLT entry": {"e8 0b 00 00 00 90 90 90 34 12 00 00 00 00 00 00 ff 25 f2 ff ff ff", 5,
			[]arch.Addr{0x1234}},
		"endbr64; bnd jmp": {"e8 0b 00 00 00 90 90 90 34 12 00 00 00 00 00 00 f3 0f 1e fa f2 ff 25 ed ff ff ff", 5,
			[]arch.Addr{0x1234}},
		"no call": {"90 90 90", 3, nil},
	} {
		c := arch.Context{IP: 0x1000 + tt.ip, Machine: arch.MachineAMD64}
		c.Set(arch.RBX, 0x1000)
		c.Set(arch.R12, 0x1000)
		if got := Callees(program(unhex(t, tt.code)), arch.AMD64, &c); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestJumpsAway(t *testing.T) {
	for code, want := range map[string]bool{
		"ff e0":             true,  // jmp rax
		"53 5b ff e0":       true,  // push rbx; pop rbx; jmp rax
		"53 ff 24 c3 5b c3": false, // push rbx; a switch
		"c3":                false,
	} {
		if got := JumpsAway(program(unhex(t, code)), arch.AMD64, 0x1000); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}
