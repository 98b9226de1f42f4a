package bundle

import (
	"bytes"
	"compress/flate"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// packed is a file of a test's bundle.
type packed struct {
	name   string
	text   string
	kind   byte
	packed bool
}

// made makes a single-file program, with the mark at some place.
func made(at int, major uint32, id, deps string, files ...packed) []byte {
	le := binary.LittleEndian
	b := make([]byte, at, at+1<<12)
	b = append(b, mark...)
	put := func(text string) (offset, size uint64) {
		offset = uint64(len(b))
		b = append(b, text...)
		return offset, uint64(len(text))
	}
	depsAt, depsSize := put(deps)
	var list []byte
	for _, f := range files {
		text, inBundle := f.text, uint64(0)
		if f.packed {
			var z bytes.Buffer
			w, _ := flate.NewWriter(&z, 9)
			_, _ = w.Write([]byte(text))
			w.Close()
			text, inBundle = z.String(), uint64(z.Len())
		}
		offset, _ := put(text)
		list = le.AppendUint64(le.AppendUint64(list, offset), uint64(len(f.text)))
		if major >= withPacked {
			list = le.AppendUint64(list, inBundle)
		}
		list = append(binary.AppendUvarint(append(list, f.kind), uint64(len(f.name))), f.name...)
	}
	header := uint64(len(b))
	le.PutUint64(b[at-8:], header)
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, major), 0), uint32(len(files)))
	b = append(binary.AppendUvarint(b, uint64(len(id))), id...)
	if major >= withConfig {
		b = le.AppendUint64(le.AppendUint64(b, depsAt), depsSize)
		b = append(b, make([]byte, configSize-16)...)
	}
	return append(b, list...)
}

const someID = "0123456789ab"

func TestBundle(t *testing.T) {
	long := strings.Repeat("some text ", 10_000)
	files := []packed{
		{"Shop.dll", "MZ", 1, false}, {"Shop.pdb", long, kindSymbol, false}, {"de/Packed.pdb", long, kindSymbol, true},
		{"Other.pdb", "not marked", 0, false},
	}
	for _, at := range []int{8, 4096, chunk - 5, chunk, chunk + 7, 3*chunk - 20} {
		b, err := Open(bytes.NewReader(made(at, 6, someID, "{}", files...)))
		if err != nil {
			t.Fatalf("mark at %d: %v", at, err)
		}
		if deps, err := b.Deps(2); err != nil || string(deps) != "{}" {
			t.Errorf("deps.json: %q, %v", deps, err)
		}
		if _, err := b.Deps(1); err == nil {
			t.Error("a deps.json that is too large was read")
		}
		for name, want := range map[string]string{"Shop.pdb": long, "Packed.pdb": long, "Other.pdb": "not marked"} {
			f, ok, err := b.PDB(name)
			if err != nil || !ok {
				t.Fatalf("%s: %v, %v", name, ok, err)
			}
			if got, err := b.Read(f, len(long)); err != nil || string(got) != want {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			if _, err := b.Read(f, len(want)-1); err == nil {
				t.Errorf("%s was read although it is too large", name)
			}
		}
		if _, ok, err := b.PDB("Shop.dll"); ok || err != nil {
			t.Error("an assembly counts as a PDB", err)
		}
	}
	old, err := Open(bytes.NewReader(made(8, 2, someID, "{}", packed{"a.pdb", "old", kindSymbol, false})))
	if err != nil {
		t.Fatal(err)
	}
	f, ok, _ := old.PDB("a.pdb")
	if got, err := old.Read(f, 10); !ok || err != nil || string(got) != "old" {
		t.Errorf("version 2: %q, %v", got, err)
	}
}

// A host is an ELF file. Only its writable segments are searched.
func TestHost(t *testing.T) {
	const at = 3 << 12
	var head bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&head, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	host := func(flags elf.ProgFlag, from, size uint64) []byte {
		head.Reset()
		h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Phoff: 64, Phentsize: 56, Phnum: 2}
		copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
		put(h)
		put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 4096, Memsz: 4096})
		put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: from, Filesz: size, Memsz: size})
		b := made(at, 6, someID, "{}")
		copy(b, head.Bytes())
		return b
	}
	if _, err := Open(bytes.NewReader(host(elf.PF_R|elf.PF_W, 2<<12, 2<<12))); err != nil {
		t.Error(err)
	}
	for name, b := range map[string][]byte{
		"read-only":  host(elf.PF_R, 2<<12, 2<<12),
		"elsewhere":  host(elf.PF_R|elf.PF_W, 4<<12, 1<<12),
		"too short":  host(elf.PF_R|elf.PF_W, 2<<12, 1<<12+8),
		"beyond end": host(elf.PF_R|elf.PF_W, 1<<40, 1<<50),
	} {
		if _, err := Open(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: a bundle", name)
		}
	}
}

func TestNoBundle(t *testing.T) {
	good := made(4096, 6, someID, "{}", packed{"a.pdb", "text", kindSymbol, false})
	header := binary.LittleEndian.Uint64(good[4088:])
	led := func(to uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[4088:], to)
		return b
	}
	for name, b := range map[string][]byte{
		"empty": {}, "none": make([]byte, 3*chunk), "old": made(4096, 1, someID, ""),
		"cut off": good[:header+6], "cut off later": good[:header+15], "without an id": made(4096, 6, "", ""),
		"long id":    made(4096, 6, strings.Repeat("x", 200), ""),
		"host":       append(make([]byte, 4096), mark...),
		"header far": led(1<<64 - 1), "header outside": led(1 << 32),
	} {
		if _, err := Open(bytes.NewReader(b)); err == nil {
			t.Errorf("%s is a bundle", name)
		}
	}
	b, err := Open(bytes.NewReader(good[:len(good)-3]))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.PDB("a.pdb"); err == nil {
		t.Error("nothing says that the list of files is cut off")
	}
	if _, err := b.Deps(10); err != nil {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(made(8, 6, someID, "{}", packed{"a.pdb", "text", kindSymbol, false},
		packed{"b.pdb", "text", kindSymbol, true}))
	f.Add(made(8, 2, someID, "{}", packed{"a.pdb", "text", kindSymbol, false}))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Open(bytes.NewReader(text))
		if err != nil {
			return
		}
		const most = 1 << 16
		if deps, err := b.Deps(most); err == nil && len(deps) > most {
			t.Errorf("deps.json of %d bytes", len(deps))
		}
		for _, file := range b.pdbs {
			if got, err := b.Read(file, most); err == nil && len(got) > most {
				t.Errorf("a file of %d bytes", len(got))
			}
		}
	})
}
