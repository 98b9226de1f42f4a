package ecma335

import (
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// typeSigs are signatures against sample's metadata.
var typeSigs = []struct{ sig, full, short string }{
	{"01", "void", "void"}, {"02", "bool", "bool"}, {"03", "char", "char"},
	{"04", "sbyte", "sbyte"}, {"05", "byte", "byte"},
	{"06", "short", "short"}, {"07", "ushort", "ushort"}, {"08", "int", "int"},
	{"09", "uint", "uint"}, {"0a", "long", "long"},
	{"0b", "ulong", "ulong"}, {"0c", "float", "float"}, {"0d", "double", "double"}, {"0e", "string", "string"},
	{"16", "TypedReference", "TypedReference"}, {"18", "nint", "nint"},
	{"19", "nuint", "nuint"}, {"1c", "object", "object"},
	{"0f 01", "void*", "void*"},
	{"10 0f 08", "ref int*", "ref int*"},
	{"1d 0e", "string[]", "string[]"},
	{"1d 14 08 02 00 00", "int[][,]", "int[][,]"},
	{"14 08 01 00 00", "int[*]", "int[*]"},
	{"14 08 03 02 05 81 00 02 00 7f", "int[,,]", "int[,,]"},
	{"45 1c", "object", "object"},
	{"13 00", "!0", "!0"}, {"1e 80 80", "!!128", "!!128"},
	{"12 10", "Ns.Outer`1+In", "Outer`1.In"},
	{"12 05", "System.Collections.Generic.List`1", "List`1"},
	{"11 15", "decimal", "decimal"},
	{"15 12 05 01 08", "System.Collections.Generic.List<int>", "List<int>"},
	{"15 12 10 01 0e", "Ns.Outer<string>+In", "Outer<string>.In"},
	{"15 11 09 01 0e", "System.Collections.Generic.List<string>+Enumerator", "List<string>.Enumerator"},
	{"15 11 0d 01 08", "int?", "int?"},
	{"15 11 11 02 08 1d 0e", "(int, string[])", "(int, string[])"},
	{"12 06", "System.Collections.Generic.List<int>", "List<int>"}, // TypeSpec 1
	{"1f 05 08", "int", "int"},                                     // modreq
	{"20 05 0f 08", "int*", "int*"},
	{"21 10 32 54 76 00 00 00 00", "0x76543210", "0x76543210"},
	{"22 01 10 00 00 00 00 00 00 00 08", "int", "int"},
	{"15 21 10 00 00 00 00 00 00 00 01 08", "0x10<int>", "0x10<int>"},
	{"1b 00 02 01 08 0e", "delegate*<int, string, void>", "delegate*<int, string, void>"},
	{"1b 01 00 01", "delegate* unmanaged[Cdecl]<void>", "delegate* unmanaged[Cdecl]<void>"},
	{"1b 09 01 08 08", "delegate* unmanaged<int, int>", "delegate* unmanaged<int, int>"},
	{"12 81 90", "?(0x02000064)", "?(0x02000064)"}, // no such type
}

func TestTypeSig(t *testing.T) {
	m := parse(t, sample())
	for _, tt := range typeSigs {
		s, err := DecodeTypeSig(unhex(tt.sig))
		if err != nil {
			t.Errorf("%s: %v", tt.sig, err)
			continue
		}
		full, short := m.FormatSig(s, TypeArgs{}, Full), m.FormatSig(s, TypeArgs{}, Short)
		if full != tt.full || short != tt.short {
			t.Errorf("%s = %q and %q, want %q and %q", tt.sig, full, short, tt.full, tt.short)
		}
	}
}

func TestTypeSigFields(t *testing.T) {
	s, err := DecodeTypeSig(unhex("14 08 03 02 05 81 00 03 00 7f 80 01"))
	if err != nil || s.Rank != 3 || len(s.Sizes) != 2 || s.Sizes[1] != 0x100 || len(s.LoBounds) != 3 ||
		s.LoBounds[0] != 0 || s.LoBounds[1] != -1 || s.LoBounds[2] != -8192 {
		t.Errorf("array shape %+v, %v", s, err)
	}
	// The examples of II.23.2.
	for _, tt := range []struct {
		b    string
		want int32
	}{{"06", 3}, {"7b", -3}, {"80 80", 64}, {"01", -64}, {"c0 00 40 00", 8192}, {"80 01", -8192},
		{"df ff ff fe", 268435455}, {"c0 00 00 01", -268435456}} {
		if got, err := newSigDecoder(unhex(tt.b)).int(); err != nil || got != tt.want {
			t.Errorf("int(%s) = %d, %v; want %d", tt.b, got, err, tt.want)
		}
	}
}

var methodSigs = []struct{ sig, params, ret string }{
	{"00 00 01", "()", "void"},
	{"20 02 0e 08 10 1c", "(int, ref object)", "string"},
	{"30 01 01 1e 00 1d 1e 00", "(U[])", "U"},
	{"05 01 01 08", "(int, __arglist)", "void"},
	{"05 02 01 08 41 0e", "(int, __arglist, string)", "void"},
}

func TestMethodSig(t *testing.T) {
	m := parse(t, sample())
	args := TypeArgs{Var: func(isMethod bool, i uint32) string {
		if isMethod && i == 0 {
			return "U"
		}
		return ""
	}}
	for _, tt := range methodSigs {
		s, err := DecodeMethodSig(unhex(tt.sig))
		if err != nil {
			t.Errorf("%s: %v", tt.sig, err)
			continue
		}
		if p, r := m.FormatParams(s, args, Full), m.FormatSig(s.Ret, args, Full); p != tt.params || r != tt.ret {
			t.Errorf("%s = %s%s, want %s%s", tt.sig, r, p, tt.ret, tt.params)
		}
	}
	s, err := DecodeMethodSig(unhex("70 02 00 01"))
	if err != nil || !s.HasThis || !s.ExplicitThis || s.GenericParamCount != 2 {
		t.Errorf("flags: %+v, %v", s, err)
	}
}

func TestSigErrors(t *testing.T) {
	for _, tt := range []struct{ name, sig, want string }{
		{"empty", "", "ends early"},
		{"no type", "17", "no type"},
		{"sentinel outside parameters", "41 08", "no type"},
		{"pointer to nothing", "0f", "ends early"},
		{"row 0", "12 00", "row 0"},
		{"tag 3", "12 07", "no table"},
		{"rank 0", "14 08 00 00 00", "rank 0"},
		{"rank 33", "14 08 21 00 00", "rank 33"},
		{"more sizes than ranks", "14 08 01 02 01 01 00", "2 sizes"},
		{"generic int", "15 08 01 08", "cannot be generic"},
		{"no arguments", "15 12 05 00", "without arguments"},
		{"more arguments than bytes", "15 12 05 df ff ff ff 08", "in 1 bytes"},
		{"half a handle", "21 01 02", "TypeHandle"},
		{"bad integer", "13 ff", "compressed integer"},
		{"deep", strings.Repeat("0f", 10000) + "08", "deep"},
		{"deep function pointers", strings.Repeat("1b 00 00", 10000) + "08", "deep"},
	} {
		if s, err := DecodeTypeSig(unhex(tt.sig)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want %q", tt.name, s, err, tt.want)
		}
	}
	for _, tt := range []struct{ name, sig, want string }{
		{"field", "06 08", "no method"},
		{"unknown flag", "80 00 01", "no method"},
		{"two sentinels", "05 02 01 41 08 41 08", "second sentinel"},
		{"parameters", "00 df ff ff ff 01", "in 1 bytes"},
		{"many", "00 c0 00 40 00 01" + strings.Repeat("08", 0x4000), "16384 parameters"},
		{"wide", "00 02 01 1b 00 9f ff 01" + strings.Repeat("08", 8191) + "08", "more than 8192"},
	} {
		if s, err := DecodeMethodSig(unhex(tt.sig)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want %q", tt.name, s, err, tt.want)
		}
	}
}

// TestFormatBounds formats signatures that would not end.
func TestFormatBounds(t *testing.T) {
	m := parse(t, sample())
	s, err := DecodeTypeSig(unhex("12 0a")) // TypeSpec 2 stands for itself
	if err != nil {
		t.Fatal(err)
	}
	if got := m.FormatSig(s, TypeArgs{}, Full); got != "…" {
		t.Errorf("circular TypeSpec = %q", got)
	}
	b := sample() // each spec doubles the previous spec
	for i := range 40 {
		ref := byte(max(1, i+2)<<2 | 2)
		if i == 0 {
			ref = 1<<2 | 2
		}
		b.row(TableTypeSpec, b.blob(0x15, 0x11, 4<<2|1, 2, 0x12, ref, 0x12, ref))
	}
	m = parse(t, b)
	s = SigType{Kind: ElemClass, Token: MakeToken(TableTypeSpec, 31)}
	if got := m.FormatSig(s, TypeArgs{}, Full); len(got) > 4*maxFormatText {
		t.Errorf("doubling TypeSpecs made %d bytes", len(got))
	}
}

func TestQualName(t *testing.T) {
	for _, tt := range []struct {
		name        string
		args        []string
		full, short string
	}{
		{"Ns.Sub.T", nil, "Ns.Sub.T", "T"},
		{"T", nil, "T", "T"},
		{"System.Int32", nil, "int", "int"},
		{"System.Int32+X", nil, "System.Int32+X", "Int32.X"},
		{"My.Int32", nil, "My.Int32", "Int32"},
		{"Ns.A`1+B`2", []string{"x", "y", "z"}, "Ns.A<x>+B<y, z>", "A<x>.B<y, z>"},
		{"Ns.A`1+B", []string{"x"}, "Ns.A<x>+B", "A<x>.B"},
		{"Ns.A+B", []string{"x"}, "Ns.A+B<x>", "A.B<x>"},
		{"Ns.A`1+<Foo>d__3`1", []string{"x", "y"}, "Ns.A<x>+<Foo>d__3<y>", "A<x>.<Foo>d__3<y>"},
		{"Ns.A`2", []string{"x"}, "Ns.A<x>", "A<x>"},
		{"Ns.<>c", nil, "Ns.<>c", "<>c"},
		{"<A.B+C>x", nil, "<A.B+C>x", "<A.B+C>x"},
		{"System.Nullable`1", []string{"int"}, "int?", "int?"},
		{"System.Nullable`1", nil, "System.Nullable`1", "Nullable`1"},
		{"System.ValueTuple`1", []string{"int"}, "System.ValueTuple<int>", "ValueTuple<int>"},
		{"System.ValueTuple`8", strings.Split("1 2 3 4 5 6 7 (8,9)", " "),
			"(1, 2, 3, 4, 5, 6, 7, 8,9)", "(1, 2, 3, 4, 5, 6, 7, 8,9)"},
		{"System.ValueTuple`8", strings.Split("1 2 3 4 5 6 7 ValueTuple<8>", " "),
			"(1, 2, 3, 4, 5, 6, 7, 8)", "(1, 2, 3, 4, 5, 6, 7, 8)"},
	} {
		q := ParseTypeName(tt.name)
		if full, short := q.Format(tt.args, Full), q.Format(tt.args, Short); full != tt.full || short != tt.short {
			t.Errorf("%s%q = %q and %q, want %q and %q", tt.name, tt.args, full, short, tt.full, tt.short)
		}
	}
}
