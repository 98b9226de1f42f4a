package ecma335

import (
	"errors"
	"testing"
)

// The examples of II.23.2.
func TestBlobReader(t *testing.T) {
	for _, tt := range []struct {
		bytes string
		want  uint32
	}{
		{"03", 0x03}, {"7f", 0x7f}, {"80 80", 0x80}, {"ae 57", 0x2e57}, {"bf ff", 0x3fff},
		{"c0 00 40 00", 0x4000}, {"df ff ff ff", 0x1fffffff},
	} {
		r := NewBlobReader(unhex(tt.bytes))
		if got, err := r.Uint(); got != tt.want || err != nil || r.Len() != 0 {
			t.Errorf("unsigned %s = %#x, %v, %d left; want %#x", tt.bytes, got, err, r.Len(), tt.want)
		}
	}
	for _, tt := range []struct {
		bytes string
		want  int32
	}{
		{"06", 3}, {"7b", -3}, {"80 80", 64}, {"01", -64}, {"c0 00 40 00", 8192}, {"80 01", -8192},
		{"df ff ff fe", 268435455}, {"c0 00 00 01", -268435456},
	} {
		r := NewBlobReader(unhex(tt.bytes))
		if got, err := r.Int(); got != tt.want || err != nil || r.Len() != 0 {
			t.Errorf("signed %s = %d, %v, %d left; want %d", tt.bytes, got, err, r.Len(), tt.want)
		}
	}
	r := NewBlobReader(unhex("04 03 02 01 09 ff"))
	if v, err := r.Uint32(); v != 0x01020304 || err != nil {
		t.Errorf("32 bits: %#x, %v", v, err)
	}
	if v, err := r.Byte(); v != 9 || err != nil {
		t.Errorf("a byte: %d, %v", v, err)
	}
	for what, err := range map[string]error{
		"compressed": func() error { _, err := r.Uint(); return err }(),
		"signed":     func() error { _, err := r.Int(); return err }(),
		"32 bits":    func() error { _, err := r.Uint32(); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: read from ff", what)
		}
	}
	if r.Len() != 1 {
		t.Errorf("%d bytes left after errors, want 1", r.Len())
	}
	r.Byte()
	if _, err := r.Byte(); err == nil {
		t.Error("a byte of nothing")
	}
}

func TestToken(t *testing.T) {
	b := newBuilder()
	b.row(TableStateMachineMethod, 3, 4)
	b.row(TableCustomDebugInformation, 2<<5|22, 0, 0) // row 2 of Document
	b.row(TableCustomDebugInformation, 2<<5|27, 0, 0) // no table
	m := parse(t, b)
	for _, tt := range []struct {
		table    Table
		rid      uint32
		col      int
		want     Token
		wantsErr error
	}{
		{TableStateMachineMethod, 1, 1, MakeToken(TableMethodDef, 4), nil},
		{TableCustomDebugInformation, 1, 0, MakeToken(TableDocument, 2), nil},
		{TableCustomDebugInformation, 2, 0, 0, ErrMalformed},
		{TableCustomDebugInformation, 1, 1, 0, ErrMalformed}, // names no row
		{TableCustomDebugInformation, 1, 3, 0, ErrMalformed},
		{TableCustomDebugInformation, 3, 0, 0, ErrNoRow},
	} {
		if got, err := m.Token(tt.table, tt.rid, tt.col); got != tt.want || !errors.Is(err, tt.wantsErr) {
			t.Errorf("Token(%#x, %d, %d) = %v, %v; want %v, %v",
				uint8(tt.table), tt.rid, tt.col, got, err, tt.want, tt.wantsErr)
		}
	}
}
