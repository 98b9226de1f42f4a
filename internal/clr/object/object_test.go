package object

import (
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf16"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/target"
)

const (
	objectAt = arch.Addr(0x7200_0010)
	tableAt  = arch.Addr(0x7300_0000)
	classAt  = arch.Addr(0x7400_0000)
)

func newReader(t testing.TB, mem target.Memory, descriptor string) *Reader {
	t.Helper()
	d := clrtest.Descriptor(t, descriptor)
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := name.New(mem, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(mem, d, ts, ns)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An impossible address of an object is not read, and an address that leads nowhere is no object.
func TestClass(t *testing.T) {
	for _, d := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		mem := clrtest.Words{}
		r := newReader(t, mem, d)
		for _, at := range []arch.Addr{0, 8, objectAt + 1, objectAt + 4, 1 << 47, ^arch.Addr(7)} {
			if _, err := r.Class(at); !errors.Is(err, ErrNoObject) {
				t.Errorf("%v: %v", at, err)
			}
		}
		if _, err := r.Class(objectAt); err == nil {
			t.Error("no memory is an object")
		}
		mem[objectAt] = uint64(tableAt) | 1
		mem.Zero(tableAt, 256)
		mem.Zero(classAt, 256)
		if _, err := r.Class(objectAt); err == nil {
			t.Error("a MethodTable without a class")
		}
		mem[objectAt] = 3
		if _, err := r.Class(objectAt); !errors.Is(err, ErrNoObject) {
			t.Errorf("no MethodTable: %v", err)
		}
	}
}

// TestUntagged: the collector marks objects in the low bits of their first word.
func TestUntagged(t *testing.T) {
	for _, d := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		r := newReader(t, clrtest.Words{}, d)
		for _, mark := range []uint64{0, 1, 2, 3} {
			if at := r.Untagged(uint64(tableAt) | mark); at != tableAt {
				t.Errorf("marked with %d: %v", mark, at)
			}
		}
	}
}

func TestHeader(t *testing.T) {
	mem := clrtest.Words{}
	mem.Zero(objectAt-8, 16)
	mem.Uint32(objectAt-4, 0x0800_0011)
	if w, err := newReader(t, mem, clrtest.Net9).Header(objectAt); err != nil || w != 0x0800_0011 {
		t.Errorf("%#x, %v", w, err)
	}
}

// TestText: a string has two bytes for each UTF-16 code unit, and is cut at the requested length. The program is
// constructed.
func TestText(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net10)
	base := &clrtest.Class{Name: "System.Object", Size: 8}
	class := &clrtest.Class{Name: "System.String", Base: base, Size: 32, Fields: []clrtest.Field{
		{Name: "_stringLength", Offset: 8, Type: clrtest.Int32}, {Name: "_firstChar", Offset: 12, Type: clrtest.Int32},
	}}
	p.Assembly(coreLib, base, class)
	const text = "größer 😀" // of 9 units
	units := append(utf16.Encode([]rune(text)), 'x')
	obj := p.Object(class)
	p.Set(obj, class, "_stringLength", 9)
	for i := 0; i < len(units); i += 2 {
		p.Uint32(obj+12+arch.Addr(2*i), uint32(units[i])|uint32(units[i+1])<<16)
	}
	r := newReader(t, p, p.Descriptor())
	if got, cut, err := r.Text(obj, 100); got != text || cut || err != nil {
		t.Errorf("%q, cut: %v, %v", got, cut, err)
	}
	if got, cut, err := r.Text(obj, 3); got != "grö" || !cut || err != nil {
		t.Errorf("%q, cut: %v, %v", got, cut, err)
	}
}

func TestPlain(t *testing.T) {
	base := &Class{Class: name.Class{Display: "Shop.Order", Assembly: "Shop"}}
	c := &Class{Class: name.Class{Display: "Shop.Box<System.Collections.List<int>>", Assembly: "Shop"}, base: base}
	if c.Plain() != "Shop.Box" || !c.Is("Shop", "Shop.Box") || !c.Is("Shop", "Shop.Order") || c.Is("Own", "Shop.Box") ||
		c.Is("Shop", "System.Collections.List") {
		t.Errorf("%+v", c)
	}
}

// FuzzObject: whatever memory has, nothing panics, and results are bounded.
func FuzzObject(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, []byte{0}, []byte{0})
	f.Fuzz(func(t *testing.T, obj, table, class []byte) {
		mem := clrtest.Words{}
		put := func(at arch.Addr, b []byte) {
			mem.Zero(at, 256)
			for i := 0; i+8 <= len(b) && i < 256; i += 8 {
				mem[at+arch.Addr(i)] = binary.LittleEndian.Uint64(b[i:])
			}
		}
		put(objectAt, obj)
		put(tableAt, table)
		put(classAt, class)
		mem[objectAt] = uint64(tableAt)
		for _, d := range []string{clrtest.Net8, clrtest.Net10} {
			r := newReader(t, mem, d)
			if c, err := r.Class(objectAt); err == nil {
				_, _ = r.RefersTo(objectAt, c, classAt)
				_, _ = r.Uint32(objectAt, c, "x")
			}
			if refs, err := r.References(objectAt, 16); err == nil && len(refs) > 16 {
				t.Errorf("%d references", len(refs))
			}
			_, _ = r.types.(coreCLR).Fields(tableAt, map[uint32]string{1: "x", 2: "y"})
		}
	})
}
