package ecma335

import "testing"

func TestHasAttribute(t *testing.T) {
	b := sample()
	void := b.blob(0x20, 0, 1)
	b.row(TableMemberRef, 5<<3|1, b.str(".ctor"), void) // of System.Decimal
	const typeDef, methodDef, memberRef, method = 3, 0, 3, 2
	b.row(TableCustomAttribute, 1<<5|methodDef, 2<<3|memberRef, 0)
	b.row(TableCustomAttribute, 2<<5|typeDef, 2<<3|memberRef, 0)
	b.row(TableCustomAttribute, 3<<5|methodDef, 1<<3|method, 0) // of Ns.Outer`1
	m := parse(t, b)
	for _, tt := range []struct {
		of    Token
		class string
		want  bool
	}{
		{MakeToken(TableMethodDef, 1), "System.Decimal", true},
		{MakeToken(TableMethodDef, 1), "Decimal", false},
		{MakeToken(TableMethodDef, 2), "System.Decimal", false},
		{MakeToken(TableTypeDef, 2), "System.Decimal", true},
		{MakeToken(TableTypeDef, 1), "System.Decimal", false},
		{MakeToken(TableMethodDef, 3), "Ns.Outer`1", true},
	} {
		if got, err := m.HasAttribute(tt.of, tt.class); got != tt.want || err != nil {
			t.Errorf("%v, %s: %v, %v", tt.of, tt.class, got, err)
		}
	}
	for _, bad := range []Token{MakeToken(TableMethodDef, 4), MakeToken(TableTypeDef, 0), MakeToken(0xff, 1)} {
		if _, err := m.HasAttribute(bad, ""); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}
