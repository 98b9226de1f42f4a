package contract

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// image is memory of a few pieces.
type image []target.Region

func (m image) ReadMemory(p []byte, addr arch.Addr) error {
	for _, r := range m {
		if o := uint64(addr - r.Base); o <= uint64(len(r.Data)) && uint64(len(p)) <= uint64(len(r.Data))-o {
			copy(p, r.Data[o:])
			return nil
		}
	}
	return &target.ReadError{Addr: addr, Len: len(p)}
}

const at = arch.Addr(0x1000)

// layOut builds a target's memory; change may spoil the header.
func layOut(text []byte, pointers []uint64, change func(h []byte)) image {
	const jsonAt, dataAt = 0x10000, 0x80_0000
	h := make([]byte, headerSize)
	le := binary.LittleEndian
	copy(h, "DNCCDAC\x00")
	le.PutUint32(h[offFlags:], flagAlways)
	le.PutUint32(h[offJSONSize:], uint32(len(text)))
	le.PutUint64(h[offJSON:], jsonAt)
	le.PutUint32(h[offPointers:], uint32(len(pointers)))
	le.PutUint64(h[offPointerData:], dataAt)
	data := make([]byte, 0, 8*len(pointers))
	for _, p := range pointers {
		data = le.AppendUint64(data, p)
	}
	if change != nil {
		change(h)
	}
	return image{{Base: at, Data: h}, {Base: jsonAt, Data: text}, {Base: dataAt, Data: data}}
}

func net10(t testing.TB) ([]byte, []uint64) {
	t.Helper()
	text, err := os.ReadFile("testdata/net10.0.12.json")
	if err != nil {
		t.Fatal(err)
	}
	pointers := make([]uint64, 24)
	for i := range pointers {
		pointers[i] = 0x7f00_0000_0000 + 8*uint64(i)
	}
	return text, pointers
}

func TestParseNet10(t *testing.T) {
	text, pointers := net10(t)
	d, err := Parse(layOut(text, pointers, nil), at)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Types) != 101 || len(d.Globals) < 67 || len(d.Contracts) != 15 {
		t.Errorf("%d types, %d globals, %d contracts", len(d.Types), len(d.Globals), len(d.Contracts))
	}
	var l struct {
		ID      uint32    `clr:"Thread.Id"`
		Handle  uint32    `clr:"Thread.GCHandle"`
		Chunk   uint32    `clr:"size:MethodDescChunk"`
		Desc    uint32    `clr:"MethodDesc.!"`
		Datum   uint32    `clr:"InlinedCallFrame.Datum,optional"`
		Link    uint32    `clr:"Thread.LinkNext,optional"`
		Store   arch.Addr `global:"ThreadStore"`
		Mask    uint64    `global:"HashMapValueMask"`
		None    uint64    `global:"NoSuchThing,optional" has:"HasNone"`
		HasNone bool
		Arch    string `global:"Architecture"`
		Other   int
	}
	l.HasNone = true
	if err := d.Bind(&l); err != nil {
		t.Fatal(err)
	}
	if l.ID != 16 || l.Handle != 304 || l.Chunk != 24 || l.Desc != 16 || l.Datum != Absent || l.Link != 112 ||
		l.Store != 0x7f00_0000_0018 || l.Mask != 1<<63-1 || l.HasNone || l.Arch != "x64" {
		t.Errorf("%+v", l)
	}
	if s, ok := d.GlobalString("OperatingSystem"); !ok || s != "1" {
		t.Errorf("OperatingSystem is %q, %v", s, ok)
	}
	if err := d.Require(map[string][]Version{"ExecutionManager": {"1", "2"}, "Thread": {"1"}}); err != nil {
		t.Error(err)
	}
}

// The descriptor of .NET 11, in both forms of globals that data_descriptor.md
// allows: [[index], "pointer"] and [index].
func TestParseNet11(t *testing.T) {
	text, err := os.ReadFile("testdata/net11.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	pointers := make([]uint64, 46)
	for i := range pointers {
		pointers[i] = 0x7f00_0000_0000 + 8*uint64(i)
	}
	untyped := regexp.MustCompile(`\[(\[\d+\]),"pointer"\]`).ReplaceAll(text, []byte("$1"))
	if bytes.Equal(text, untyped) {
		t.Fatal("no pointers")
	}
	for name, text := range map[string][]byte{"typed": text, "untyped": untyped} {
		d, err := Parse(layOut(text, pointers, nil), at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var l struct {
			Exposed uint32    `clr:"Thread.GCHandle|Thread.ExposedObject"`
			First   uint32    `clr:"ThreadStore.FirstThreadLink|ThreadStore.None"`
			None    uint32    `clr:"ArrayClass.Rank|ArrayClass.None,optional"`
			Handle  uint32    `clr:"size:GCHandle|size:ObjectHandle"`
			Store   arch.Addr `global:"ThreadStore"`
			Base    uint64    `global:"ArrayBaseSize"`
			System  string    `global:"OperatingSystem"`
		}
		if err := d.Bind(&l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Exposed != 232 || l.First != 88 || l.None != Absent || l.Handle != 8 ||
			l.Store != 0x7f00_0000_0018 || l.Base != 24 || l.System != "Unix" {
			t.Errorf("%s: %+v", name, l)
		}
		if gc := d.SubDescriptors["GC"]; gc.Value != 0x7f00_0000_0168 || !gc.Indirect {
			t.Errorf("%s: the garbage collector's descriptor is %+v", name, gc)
		}
		if err := d.Require(map[string][]Version{"ExecutionManager": {"2", "c1"},
			"StressLog": {"2", "c2"}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBindMissing(t *testing.T) {
	d, err := FromJSON([]byte(`{"version":0,"types":{"Thread":{}},"globals":{"S":["x","string"]}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Runtime = "9.0.5"
	var l struct {
		ID   uint32    `clr:"Thread.Id"`
		Size uint32    `clr:"size:Thread"`
		Addr arch.Addr `global:"ThreadStore"`
		Text uint64    `global:"S"` // a string is not a number
		Two  uint32    `clr:"Thread.GCHandle|Thread.ExposedObject"`
	}
	err = d.Bind(&l)
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatal(err)
	}
	want := []string{
		"field Thread.Id", "size of Thread", "global ThreadStore", "global S",
		"field Thread.GCHandle or field Thread.ExposedObject",
	}
	if !slices.Equal(missing.Missing, want) || !strings.Contains(err.Error(), ".NET 9.0.5") {
		t.Errorf("%v", err)
	}
	if l.ID != Absent {
		t.Errorf("the offset of a missing field is %d", l.ID)
	}
}

func TestRequire(t *testing.T) {
	d, err := FromJSON([]byte(`{"version":2,"baseline":"empty","contracts":{"Thread":"c2","Loader":1}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Require(map[string][]Version{"Thread": {"1", "c2"}, "Loader": {"1"}}); err != nil {
		t.Error(err)
	}
	var unknown *UnknownVersionError
	err = d.Require(map[string][]Version{"Thread": {"1", "c1"}})
	if !errors.As(err, &unknown) || unknown.Found != "c2" {
		t.Fatal(err)
	}
	want := "this .NET runtime follows version c2 of the contract Thread; this clrsnap understands 1, c1: " +
		"update clrsnap"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
	var missing *MissingError
	if err := d.Require(map[string][]Version{"StackWalk": {"1"}}); !errors.As(err, &missing) {
		t.Error(err)
	}
}

func TestFromJSON(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"version as a string", `{"version":"0"}`, ""},
		{"no baseline", `{"version":0,"types":{},"globals":{},"contracts":{}}`, ""},
		{"unknown keys at the top", `{"version":0,"extra":[1,{"a":2}]}`, ""},
		{"sub-descriptors", `{"version":2,"subDescriptors":{"GC":[[1],"pointer"]}}`, ""},
		{"all forms of globals",
			`{"version":0,"globals":{"a":1,"b":"0x10","c":[0],"d":[5,"uint8"],"e":[[1],"pointer"],` +
				`"f":["-1","int32"],"g":["","string"]}}`, ""},
		{"empty", ``, "unexpected end"},
		{"truncated", `{"version":0,"types":{"Thread":{"Id":1`, "EOF"},
		{"two documents", `{"version":0}{"version":0}`, "invalid character"},
		{"key in capitals", `{"Version":0}`, `version ""`},
		{"null", `null`, `version ""`},
		{"no version", `{}`, `version ""`},
		{"version of a preview", `{"version":1}`, "update clrsnap, or the runtime if it is a preview"},
		{"version is an object", `{"version":{}}`, `version ""`},
		{"unknown baseline", `{"version":0,"baseline":"net9"}`, `baseline "net9"`},
		{"a type twice", `{"version":0,"types":{"T":{},"T":{}}}`, `"T" appears twice`},
		{"a field twice", `{"version":0,"types":{"T":{"a":1,"a":2}}}`, `"a" appears twice`},
		{"a contract twice", `{"version":0,"contracts":{"a":1,"a":2}}`, `"a" appears twice`},
		{"types is an array", `{"version":0,"types":[]}`, "cannot unmarshal"},
		{"huge offset", `{"version":0,"types":{"T":{"a":1048576}}}`, "not an offset"},
		{"negative offset", `{"version":0,"types":{"T":{"a":-8}}}`, "not an offset"},
		{"fractional offset", `{"version":0,"types":{"T":{"a":1.5}}}`, "not an offset"},
		{"huge size", `{"version":0,"types":{"T":{"!":99999999999999999999}}}`, "not an offset"},
		{"offset null", `{"version":0,"types":{"T":{"a":null}}}`, "neither"},
		{"field with three parts", `{"version":0,"types":{"T":{"a":[1,"b",2]}}}`, "neither"},
		{"pointer out of range", `{"version":0,"globals":{"a":[[2],"pointer"]}}`, "number \"2\" of 2 pointers"},
		{"pointer -1", `{"version":0,"globals":{"a":[-1]}}`, "of 2 pointers"},
		{"global null", `{"version":0,"globals":{"a":null}}`, "not a value"},
		{"global with a type that is none", `{"version":0,"globals":{"a":[1,2]}}`, "its type"},
		{"contract null", `{"version":0,"contracts":{"a":null}}`, "no version"},
		{"deep nesting", strings.Repeat("[", 100000) + strings.Repeat("]", 100000), "depth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := FromJSON([]byte(tt.text), []uint64{10, 20})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestGlobals(t *testing.T) {
	d, err := FromJSON([]byte(`{"version":0,"globals":{"a":1,"b":"0x10","c":[0],"d":[5,"uint8"],"e":[[1],"pointer"],`+
		`"f":["-1","int32"],"g":["0x0","string"],"h":"-0x8000000000000001"}}`), []uint64{10, 20})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"a": 1, "b": 16, "c": 10, "d": 5, "e": 20, "f": ^uint64(0)} {
		if v, ok := d.Global(name); !ok || v != want {
			t.Errorf("%s is %d, %v; want %d", name, v, ok, want)
		}
	}
	for _, name := range []string{"g", "h", "none"} {
		if v, ok := d.Global(name); ok {
			t.Errorf("%s has the value %d", name, v)
		}
	}
}

func TestParseHeader(t *testing.T) {
	le := binary.LittleEndian
	for _, tt := range []struct {
		name   string
		change func(h []byte)
		want   string
	}{
		{"other magic", func(h []byte) { h[0] = 'X' }, "begins with"},
		{"big-endian", func(h []byte) { slices.Reverse(h[:8]) }, "big-endian"},
		{"no flags", func(h []byte) { le.PutUint32(h[offFlags:], 0) }, "flags"},
		{"32 bits", func(h []byte) { le.PutUint32(h[offFlags:], 3) }, "32-bit"},
		{"no JSON", func(h []byte) { le.PutUint32(h[offJSONSize:], 0) }, "0 bytes"},
		{"absurd size", func(h []byte) { le.PutUint32(h[offJSONSize:], 1<<31) }, "bytes of JSON"},
		{"absurd count", func(h []byte) { le.PutUint32(h[offPointers:], 1<<31) }, "pointers"},
		{"JSON elsewhere", func(h []byte) { le.PutUint64(h[offJSON:], 1<<63) }, "its JSON"},
		{"pointer data elsewhere", func(h []byte) { le.PutUint64(h[offPointerData:], 1<<63) }, "its pointer data"},
		{"size beyond the JSON", func(h []byte) { le.PutUint32(h[offJSONSize:], maxJSON) }, "its JSON"},
		{"truncated by its size", func(h []byte) { le.PutUint32(h[offJSONSize:], 1000) }, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, pointers := net10(t)
			_, err := Parse(layOut(text, pointers, tt.change), at)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), at.String()) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestBindPanicsOnMistakes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layout any
	}{
		{"not a pointer", struct{}{}},
		{"a tag without dot", new(struct {
			A uint32 `clr:"Thread"`
		})},
		{"an alternative without dot", new(struct {
			A uint32 `clr:"Thread.None|Thread"`
		})},
		{"a wide offset", new(struct {
			A uint64 `clr:"Thread.Id"`
		})},
		{"a narrow global", new(struct {
			A uint32 `global:"ThreadStore"`
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = new(Descriptor).Bind(tt.layout)
		})
	}
}

func FuzzParse(f *testing.F) {
	m := layOut(nil, []uint64{1, 2}, nil)
	f.Add(m[0].Data, []byte(`{"version":"0","types":{},"globals":{"a":["x","string"],"b":-1,"c":[0]}}`))
	f.Add(m[0].Data, []byte(`{"version":2,"baseline":"empty","types":{"T":{"!":8,"a":[1,"b"]}},`+
		`"globals":{"a":[[1],"pointer"],"b":"0x1"},"contracts":{"A":"c1","B":2}}`))
	f.Fuzz(func(t *testing.T, header, text []byte) {
		if len(header) >= headerSize && len(text) <= maxJSON {
			// Let most inputs through to the JSON.
			header = slices.Clone(header)
			binary.LittleEndian.PutUint32(header[offJSONSize:], uint32(len(text)))
		}
		mem := image{{Base: at, Data: header}, {Base: 0x10000, Data: text}, {Base: 0x80_0000, Data: make([]byte, 16)}}
		var d *Descriptor
		var err error
		testenv.Allocates(t, len(header)+len(text), 200, 1<<17, func() { d, err = Parse(mem, at) })
		if err != nil {
			return
		}
		for name, typ := range d.Types {
			if typ.Size >= maxOffset {
				t.Fatalf("size of %q is %d", name, typ.Size)
			}
			for _, fl := range typ.Fields {
				if fl.Offset >= maxOffset {
					t.Fatalf("offset in %q is %d", name, fl.Offset)
				}
			}
		}
		var l struct {
			A uint32 `clr:"T.a,optional"`
			B uint64 `global:"a,optional"`
		}
		if err := d.Bind(&l); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text, pointers := net10(b)
	m := layOut(text, pointers, nil)
	for b.Loop() {
		if _, err := Parse(m, at); err != nil {
			b.Fatal(err)
		}
	}
}
