package pdb

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/pe"
)

func TestMatch(t *testing.T) {
	d, good := fixturePDB(t)
	f, err := Match(d, good)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := d.Portable()
	if f.ID() != want.ID() {
		t.Errorf("id %x, want %x", f.ID(), want.ID())
	}
	with := func(change func(*pe.Debug)) *pe.Debug {
		c := &pe.Debug{CodeView: slices.Clone(d.CodeView), Checksums: slices.Clone(d.Checksums)}
		change(c)
		return c
	}
	spoilt := bytes.Clone(good)
	spoilt[len(spoilt)-1] ^= 1
	other := one(1, "").bytes()
	for name, tt := range map[string]struct {
		d    *pe.Debug
		b    []byte
		want string // "": a match
	}{
		"without a checksum": {with(func(d *pe.Debug) { d.Checksums = nil }), spoilt, ""},
		"the second checksum": {with(func(d *pe.Debug) {
			d.Checksums = append([]pe.Checksum{{Algorithm: "SHA512", Sum: []byte{1}}}, d.Checksums...)
		}), good, ""},
		"a native PDB, too": {with(func(d *pe.Debug) {
			d.CodeView = append([]pe.CodeView{{Age: 1}}, d.CodeView...)
		}), good, ""},
		"changed":           {d, spoilt, "SHA256 checksum is"},
		"another build":     {d, other, "its id is 00000000-0000-0000-0000-000000000000, 00000000"},
		"another stamp":     {with(func(d *pe.Debug) { d.CodeView[0].Stamp++ }), good, idText(want.ID())},
		"no portable PDB":   {with(func(d *pe.Debug) { d.CodeView[0].Portable = false }), good, "no portable PDB"},
		"unknown checksums": {with(func(d *pe.Debug) { d.Checksums[0].Algorithm = "MD5" }), good, `unknown kind "MD5"`},
		"nothing said":      {&pe.Debug{}, good, "no portable PDB"},
	} {
		f, err := Match(tt.d, tt.b)
		switch {
		case tt.want == "" && (err != nil || f == nil):
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tt.want) || f != nil):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Match(d, []byte(windowsSignature)); !errors.Is(err, ErrNotPortable) {
		t.Errorf("a Windows PDB: %v", err)
	}
}

func TestIDText(t *testing.T) {
	d, _ := fixturePDB(t)
	c, _ := d.Portable()
	if got, want := idText(c.ID()), "a73e77a4-431e-4ae9-8552-ac19780255d5, b12f7cc8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEmbedded(t *testing.T) {
	b, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	open := func(b []byte) (*File, error) {
		d, err := pe.DebugDirectory(pe.File(bytes.NewReader(b)), 0)
		if err != nil {
			t.Fatal(err)
		}
		return Embedded(d, pe.File(bytes.NewReader(b)))
	}
	if f, err := open(b); err != nil || f.Methods() == 0 {
		t.Errorf("%v", err)
	}
	id := bytes.Index(b, []byte("RSDS"))
	b[id+4]++
	if _, err := open(b); !errors.Is(err, ErrMismatch) {
		t.Errorf("with another id: %v", err)
	}
	b[id+4]--
	sum := bytes.Index(b, []byte("SHA256\x00"))
	b[sum+7]++
	if _, err := open(b); !errors.Is(err, ErrMismatch) {
		t.Errorf("with another checksum: %v", err)
	}
	if _, err := Embedded(&pe.Debug{}, pe.File(bytes.NewReader(b))); !errors.Is(err, pe.ErrNoEmbedded) {
		t.Errorf("none: %v", err)
	}
}
